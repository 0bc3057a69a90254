package vhostnet

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/vhostkern"
)

// lookEvery is how often the timer looks whether the interface is still there, and
// for how long a ring that broke stays down.
const lookEvery = eventloop.Time(time.Second)

var (
	errComplaint = errors.New("the kernel found a fault in a ring")
	errTorn      = errors.New("the kernel returned a frame in part")
)

// The eventfds, which are also the cookies on the loop.
const (
	fromCall  = iota // the kernel has put frames into the ring that was empty
	toCall           // it has returned slots that were waited for
	complaint        // it has found a fault in one of the rings
	fromKick         // ours: there are buffers in the ring again
	toKick           // ours: there are frames in the ring
	nEvents
)

// event is an eventfd. Those that the kernel writes are on the loop, reporting each
// write by itself (Edge): nobody need read them.
type event struct {
	fd    int
	made  bool
	token eventloop.Token
}

func (v *event) open(loop *eventloop.Loop, s eventloop.Source, which uint32) (err error) {
	if v.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	v.made = true
	return v.register(loop, s, which)
}

// register puts the event on the loop, in the place of an earlier registration.
func (v *event) register(loop *eventloop.Loop, s eventloop.Source, which uint32) (err error) {
	if which == fromKick || which == toKick {
		return nil
	}
	loop.Remove(v.token)
	v.token, err = loop.Add(v.fd, eventloop.In|eventloop.Edge, s, which)
	return err
}

func (v *event) close(loop *eventloop.Loop) {
	if v.made {
		loop.Remove(v.token)
		unix.Close(v.fd)
		v.made = false
	}
}

// attach lays both rings anew, gives them to the kernel and posts all buffers.
func (e *Endpoint) attach() error {
	if err := e.layIn(); err != nil {
		return err
	}
	if err := e.layOut(); err != nil {
		return err
	}
	for i, r := range [...]vhostkern.Ring{
		vhostkern.RX: e.ring(inRingAt, inRing, fromKick, fromCall),
		vhostkern.TX: e.ring(outRingAt, outRing, toKick, toCall),
	} {
		if err := e.kernel.Attach(i, r, e.c.Tap); err != nil {
			return err
		}
	}
	e.post()
	return nil
}

// detach takes both rings back: the kernel no longer touches their memory.
func (e *Endpoint) detach() {
	for _, i := range [...]int{vhostkern.RX, vhostkern.TX} {
		if err := e.kernel.Detach(i); err != nil {
			e.c.Log("vhost-net: %v", err)
		}
	}
	e.stats.add(e.in.q)
	e.stats.add(e.out.q)
	e.in.q, e.out.q, e.out.open = nil, nil, 0
}

// fail takes the link down until the next look.
func (e *Endpoint) fail(why error) {
	if e.in.q == nil {
		return
	}
	e.c.Log("vhost-net: %v; the rings are set up anew", why)
	e.stats.Broken++
	e.detach()
	if e.up {
		e.up = false
		e.h.LinkDown()
	}
}

// broken takes the link down when a ring has shown what cannot be.
func (e *Endpoint) broken() bool {
	switch in, out := e.in.q.Broken(), e.out.q.Broken(); {
	case in != nil:
		e.fail(in)
	case out != nil:
		e.fail(out)
	case e.in.torn:
		e.fail(errTorn)
	default:
		return false
	}
	return true
}

func (e *Endpoint) look() { e.loop.Timers().Set(e.timer, e.loop.Now()+lookEvery) }

// Expired implements eventloop.Expirer: it is time to look.
func (e *Endpoint) Expired(uint32) {
	if err := attached(e.c.Tap); err != nil {
		e.gone(err)
		return
	}
	if e.in.q == nil {
		if err := e.attach(); err != nil {
			e.gone(err)
			return
		}
		e.loop.Again(e.events[fromCall].token)
	}
	e.look()
}

// attached tells whether the interface of a tap's descriptor exists.
func attached(fd int) error {
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr)
}

// gone ends the link: the interface is no more.
func (e *Endpoint) gone(why error) {
	up := e.up
	e.Close()
	e.c.Log("vhost-net: the interface is gone: %v", why)
	if up {
		e.h.LinkDown()
		e.h.GuestGone()
	}
	if e.c.Gone != nil {
		e.c.Gone()
	}
}
