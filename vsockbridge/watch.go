package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// deadline starts the limit of a phase; it takes the timer from the probe.
func (d *Device) deadline(c *conn, limit eventloop.Time) {
	c.probing = false
	d.arm(c, limit)
}

func (d *Device) arm(c *conn, after eventloop.Time) {
	w := d.loop.Timers()
	if c.timer == 0 {
		c.timer = w.New((*deadlines)(d), uint32(c.slot))
	}
	w.Set(c.timer, d.loop.Now()+after)
}

func (d *Device) noDeadline(c *conn) {
	c.probing = false
	d.loop.Timers().Stop(c.timer)
}

// Expired implements eventloop.Expirer.
func (x *deadlines) Expired(cookie uint32) {
	d := (*Device)(x)
	c := d.conns.at(int32(cookie))
	if !c.probing {
		d.counters.TimedOut++
		if c.sibling != nil {
			d.separate(c)
			return
		}
		d.happen(c, evTimeout, unix.ETIMEDOUT)
		return
	}
	if c.blocked {
		c.owe |= oweCreditRequest
		d.enqueue(c)
	}
	c.probing = false
}

// Break implements eventloop.Breaker.
func (x *hostSide) Break(err error)  { (*Device)(x).Break(err) }
func (x *deadlines) Break(err error) { (*Device)(x).Break(err) }

// Ready implements eventloop.Source for host sockets. Conditions are reported
// once, when they come about (edge): what cannot be done now is remembered, and
// nothing is disarmed or armed for it.
func (x *hostSide) Ready(cookie uint32, ev eventloop.Events) {
	d := (*Device)(x)
	c := d.conns.at(int32(cookie))
	if c.state.phase == dialing {
		d.dialed(c)
		return
	}
	if ev&(eventloop.HUP|eventloop.Err) != 0 {
		if !c.reads() {
			d.happen(c, evClosed, 0) // nobody would find out by reading
			return
		}
		c.closed = true
	}
	c.hungUp = c.hungUp || ev&(eventloop.HUP|eventloop.Err|eventloop.RDHup) != 0
	if ev&eventloop.Out != 0 && c.waiting && !d.flush(c) {
		return
	}
	if ev&^eventloop.Out != 0 && c.state.phase == open {
		c.readable = true
		d.enqueue(c)
	}
}

// dialed ends a connect that was under way.
func (d *Device) dialed(c *conn) {
	if sockOption(c.fd, unix.SO_ERROR) != 0 {
		d.counters.DialsFailed++
		d.happen(c, evFailed, 0)
		return
	}
	if d.loop.Modify(c.token, eventloop.In|eventloop.RDHup|eventloop.Edge) != nil {
		d.happen(c, evFailed, 0)
		return
	}
	d.noDeadline(c)
	d.happen(c, evConnected, 0)
}
