package vsockbridge

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// turn is how the device gets itself called in the next turn of the loop: a
// registration of an eventfd that nobody writes, for Loop.Again alone. The kick
// eventfds belong to the vhost-user server.
type turn struct {
	fd    int
	token eventloop.Token
	asked bool
}

func (t *turn) open(loop *eventloop.Loop, s eventloop.Source) (err error) {
	if t.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("vsockbridge: eventfd: %w", err)
	}
	if t.token, err = loop.Add(t.fd, 0, s, 0); err != nil {
		unix.Close(t.fd)
		return fmt.Errorf("vsockbridge: eventfd: %w", err)
	}
	return nil
}

// reopen registers anew after a fault, which costs the registration.
func (t *turn) reopen(loop *eventloop.Loop, s eventloop.Source) {
	loop.Remove(t.token)
	t.token, _ = loop.Add(t.fd, 0, s, 0)
	t.asked = false
}

func (t *turn) close(loop *eventloop.Loop) {
	loop.Remove(t.token)
	unix.Close(t.fd)
	t.token, t.fd = 0, -1
}

func (t *turn) ask(loop *eventloop.Loop) {
	t.asked = true
	loop.Again(t.token)
}

// Ready implements eventloop.Source: the turn that was asked for has come. What
// is owed to the guest follows at the turn's end (Flush).
func (d *Device) Ready(uint32, eventloop.Events) {
	d.turn.asked = false
	d.settle()
	d.txRun()
}

// Flush serves the receive ring, publishes what was pushed to either and tells
// the driver, once per ring. It runs at the end of every turn.
func (d *Device) Flush() {
	d.flushing = true
	if d.up {
		d.rxRun()
		d.rx.q.Publish()
		d.tx.publish(d)
		d.linger()
		if d.owesEvent {
			d.sendEvent()
		}
		for _, q := range d.rings[:eventQueue] {
			d.loop.WakeAt(q.Insist(d.loop.Now()))
		}
	}
	d.flushing = false
}

// linger is the end of a turn as the loop's lingering sees it. When packets have gone
// to the guest and its answer will be here soon, it needs no kick for that.
func (d *Device) linger() {
	c := &d.counters
	if c.RxPackets == d.sentPackets {
		return
	}
	d.loop.Worked(eventloop.ToGuest, int(c.RxBytes-d.sentBytes))
	d.sentPackets, d.sentBytes = c.RxPackets, c.RxBytes
	if !d.turn.asked && !d.held() && d.loop.Lingers() {
		d.tx.q.RevokeKick()
		d.turn.ask(d.loop)
	}
}

// Break implements eventloop.Breaker: work of the device has panicked, or has
// met guest memory that is gone. Its rings are not trusted any more, nor is what
// the guest knows of its connections.
func (d *Device) Break(error) {
	d.breakRings()
	d.turn.reopen(d.loop, d)
	if d.flushing {
		d.flushing = false
		d.loop.AfterTurnOf(d, d.Flush) // the fall has cost the old registration
	}
	d.settle()
}

func (d *Device) breakRings() {
	d.counters.Faults++
	for i := range d.rings {
		if q := d.rings[i]; q != nil {
			q.Break(faultReason)
		}
	}
	d.fresh = true
}
