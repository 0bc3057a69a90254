package vhostnet

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/tap"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostkern"
)

const (
	defaultMTU = 1500
	minMTU     = 68
	maxMTU     = 65535

	ethHdrLen = 14
)

// Config describes the interface.
type Config struct {
	Tap   int // of tap.Open; the Endpoint owns it once New has succeeded
	Vhost int // of vhostkern.Open; the Endpoint owns it from New on
	MTU   int // largest L3 packet towards the namespace; 0: 1500

	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
	// Gone is called when the interface has been deleted. nil: nobody cares.
	Gone func()
}

// mover is the kernel's side of the rings: vhostkern.Device.
type mover interface {
	Setup(features uint64, a *vhostkern.Arena) error
	Attach(i int, r vhostkern.Ring, tap int) error
	Detach(i int) error
	Close()
}

// features are those that we ask of the kernel. NetFHeader is not among them: the
// header is the tap's, and passes through.
const features = vhostkern.FVersion1 | vhostkern.NetFMrgRxbuf | vhostkern.FEventIdx

// Endpoint is the link to one namespace over one tap interface.
type Endpoint struct {
	c      Config
	h      link.Handler
	loop   *eventloop.Loop
	kernel mover // nil: closed
	arena  *vhostkern.Arena
	timer  eventloop.TimerID
	events [nEvents]event
	uso    bool
	up     bool // the handler knows of the link
	fresh  bool // the next LinkUp is for a namespace that is not known
	stats  Stats

	in  input
	out output
}

var (
	_ link.Endpoint     = (*Endpoint)(nil)
	_ eventloop.Breaker = (*Endpoint)(nil)
)

// New takes over both descriptors, has the kernel serve them, and registers on
// loop. The handler learns of the link in the next turn. When it fails c.Tap stays
// the caller's, as good as before for tap.New, and c.Vhost is closed.
func New(c Config, h link.Handler, loop *eventloop.Loop) (*Endpoint, error) {
	return open(c, h, loop, vhostkern.New(c.Vhost))
}

// open is New with whoever moves the frames, which it closes when it fails.
func open(c Config, h link.Handler, loop *eventloop.Loop, kernel mover) (*Endpoint, error) {
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	e := &Endpoint{c: c, h: h, loop: loop, kernel: kernel, fresh: true}
	if err := e.start(); err != nil {
		e.release()
		return nil, fmt.Errorf("vhost-net: %w", err)
	}
	e.timer = loop.Timers().New(e, 0)
	e.look()
	loop.AfterTurn(e.flush)
	loop.Again(e.events[fromCall].token)
	return e, nil
}

func (e *Endpoint) start() (err error) {
	if e.c.MTU < minMTU || e.c.MTU > maxMTU {
		return fmt.Errorf("MTU %d is outside %d..%d", e.c.MTU, minMTU, maxMTU)
	}
	if e.uso, err = tap.Setup(e.c.Tap); err != nil {
		return err
	}
	if e.arena, err = vhostkern.NewArena(arenaSize); err != nil {
		return err
	}
	if err := e.kernel.Setup(features, e.arena); err != nil {
		return err
	}
	for i := range e.events {
		if err := e.events[i].open(e.loop, e, uint32(i)); err != nil {
			return err
		}
	}
	return e.attach()
}

// Close gives the interface up: it disappears. The kernel has let go of all
// memory when it returns.
func (e *Endpoint) Close() {
	if e.kernel == nil {
		return
	}
	e.release()
	unix.Close(e.c.Tap)
}

// release frees what is there; the endpoint may be half made.
func (e *Endpoint) release() {
	e.kernel.Close()
	e.kernel, e.up = nil, false
	e.in.q, e.out.q = nil, nil
	if e.timer != 0 {
		e.loop.Timers().Free(e.timer)
	}
	for i := range e.events {
		e.events[i].close(e.loop)
	}
	if e.arena != nil {
		e.arena.Close()
	}
}

// Caps implements link.Endpoint. A tap takes every kind of super-frame but trains
// of datagrams, which came with Linux 6.2.
func (e *Endpoint) Caps() link.Caps {
	return link.Caps{MTU: e.c.MTU, Csum: true, TSO4: true, TSO6: true, USO: e.uso, Stats: &e.stats.Stats}
}

// Ready implements eventloop.Source.
func (e *Endpoint) Ready(which uint32, _ eventloop.Events) {
	if e.in.q == nil {
		return // detached since the event
	}
	if !e.up {
		fresh := e.fresh
		e.up, e.fresh = true, false
		e.h.LinkUp(e, fresh)
	}
	switch which {
	case fromCall:
		e.readable()
	case toCall:
		e.returned()
	case complaint:
		e.fail(errComplaint)
	}
}

// Break implements eventloop.Breaker: the handler panicked under our feet. Nothing
// is wrong with the interface, so the namespace starts anew, as it were.
func (e *Endpoint) Break(err error) {
	if e.kernel == nil {
		return
	}
	e.fail(err)
	e.h.GuestGone()
	e.fresh = true
	for i := range e.events {
		if err := e.events[i].register(e.loop, e, uint32(i)); err != nil {
			e.gone(err)
			return
		}
	}
	e.look() // when it was in the timer that it fell
}
