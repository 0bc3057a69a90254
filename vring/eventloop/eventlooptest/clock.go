// Package eventlooptest has what tests need to drive time by hand.
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
