// Package eventlooptest has what tests need to drive time by hand: a clock that
// stands still, and a driver for a Wheel without a Loop.
package eventlooptest

import (
	"time"

	"guestwire/vring/eventloop"
)

// FakeClock is an eventloop.Clock that stands still until Advance. The zero
// value is ready; it starts at 0.
type FakeClock struct{ T eventloop.Time }

// Now returns the fake time.
func (c *FakeClock) Now() eventloop.Time { return c.T }

// Advance moves the clock on.
func (c *FakeClock) Advance(d time.Duration) { c.T += eventloop.Time(d) }

// Driver is a Wheel with a clock of its own. Code under test gets the Wheel; the
// test moves time with Advance.
type Driver struct {
	FakeClock
	Wheel *eventloop.Wheel
}

// NewDriver returns a Driver that starts at one hour, so that no time is 0.
func NewDriver() *Driver {
	d := &Driver{FakeClock: FakeClock{T: eventloop.Time(time.Hour)}}
	d.Wheel = eventloop.NewWheel(d.T)
	return d
}

// Advance moves time on by d as a loop would: it stops wherever a timer is due,
// so that each runs at its own time and not all at the end.
func (d *Driver) Advance(by time.Duration) {
	end := d.T + eventloop.Time(by)
	for {
		next, ok := d.Wheel.Next()
		if !ok || next > end {
			break
		}
		d.T = max(d.T, next)
		d.Wheel.Advance(d.T)
	}
	d.T = end
	d.Wheel.Advance(end)
}

// Next advances to the next timer that is due within limit, and reports false
// (having advanced by limit) when there is none. Waking up only to sort timers
// does not count.
func (d *Driver) Next(limit time.Duration) bool {
	end := d.T + eventloop.Time(limit)
	for {
		next, ok := d.Wheel.Next()
		if !ok || next > end {
			d.T = end
			d.Wheel.Advance(end)
			return false
		}
		d.T = max(d.T, next)
		before := d.Wheel.Runs()
		d.Wheel.Advance(d.T)
		if d.Wheel.Runs() != before {
			return true
		}
	}
}
