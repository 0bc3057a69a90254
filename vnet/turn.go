package vnet

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
		return fmt.Errorf("vnet: eventfd: %w", err)
	}
	if t.token, err = loop.Add(t.fd, 0, s, 0); err != nil {
		unix.Close(t.fd)
		return fmt.Errorf("vnet: eventfd: %w", err)
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
	t.token = 0
	unix.Close(t.fd)
}

func (t *turn) ask(loop *eventloop.Loop) {
	t.asked = true
	loop.Again(t.token)
}

// Ready implements eventloop.Source: the turn that was asked for has come.
func (d *Device) Ready(uint32, eventloop.Events) {
	d.turn.asked = false
	d.settleBroken()
	d.rxTurn()
	d.txRun()
}

// linger is the end of a turn as the loop's lingering sees it. When frames have gone
// to the guest and its answer will be here soon, it needs no kick for that.
func (d *Device) linger() {
	sent := d.link.RxBytes - d.sent
	if sent == 0 {
		return
	}
	d.sent = d.link.RxBytes
	d.loop.Worked(eventloop.ToGuest, int(sent))
	if d.up && !d.turn.asked && !d.tx.pace.resting && d.loop.Lingers() {
		d.tx.q.RevokeKick()
		d.turn.ask(d.loop)
	}
}

// settleBroken takes the link down when a ring has broken meanwhile.
func (d *Device) settleBroken() {
	if d.up && (d.rx.q.Broken() != nil || d.tx.q.Broken() != nil) {
		d.settle()
	}
}
