package tap

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

const (
	defaultMTU = 1500
	minMTU     = 68
	maxMTU     = 65535
)

// Config describes the interface.
type Config struct {
	FD  int // of Open; the Endpoint owns it from New on
	MTU int // largest L3 packet towards the namespace; 0: 1500

	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
	// Gone is called when the interface has been deleted. nil: nobody cares.
	Gone func()
}

// Stats are counters. RX is towards the namespace.
type Stats struct {
	link.Stats
	Batches    uint64 // calls of Handler.Frames
	Header     uint64 // frames from the namespace with a header that cannot be, or too short or long; dropped
	RxShort    uint64 // reservations that came back short
	Blocked    uint64 // frames that had to wait for the interface's send buffer
	RxOffload  uint64 // frames towards the namespace that ask for what cannot be done; dropped
	RxDown     uint64 // frames dropped because the interface is down
	RxRefused  uint64 // frames that the kernel refused
	RxNoMemory uint64 // frames dropped because the kernel had no memory for them
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("rx_frames", s.RxFrames)
	f("rx_bytes", s.RxBytes)
	f("tx_frames", s.TxFrames)
	f("tx_bytes", s.TxBytes)
	f("tx_batches", s.Batches)
	f("rx_short", s.RxShort)
	f("rx_blocked", s.Blocked)
	f("drop_header", s.Header)
	f("drop_rx_offload", s.RxOffload)
	f("drop_rx_down", s.RxDown)
	f("drop_rx_refused", s.RxRefused)
	f("drop_rx_memory", s.RxNoMemory)
}

// Endpoint is the link to one namespace over one tap interface.
type Endpoint struct {
	c     Config
	h     link.Handler
	loop  *eventloop.Loop
	token eventloop.Token
	fd    int // -1: gone
	up    bool
	uso   bool
	lost  unix.Errno // a write found the interface gone: to be told in a turn of our own
	stats Stats

	in  input
	out output
}

var (
	_ link.Endpoint     = (*Endpoint)(nil)
	_ eventloop.Breaker = (*Endpoint)(nil)
)

// New takes over c.FD, and registers on loop. The handler learns of the link in
// the next turn. When it fails c.FD is closed.
func New(c Config, h link.Handler, loop *eventloop.Loop) (*Endpoint, error) {
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	e := &Endpoint{c: c, h: h, loop: loop, fd: c.FD}
	var err error
	if c.MTU < minMTU || c.MTU > maxMTU {
		err = fmt.Errorf("MTU %d is outside %d..%d", c.MTU, minMTU, maxMTU)
	}
	if err == nil {
		e.uso, err = Setup(c.FD)
	}
	if err == nil {
		e.token, err = loop.Add(c.FD, eventloop.In, e, 0)
	}
	if err != nil {
		unix.Close(c.FD)
		return nil, fmt.Errorf("tap: %w", err)
	}
	e.in.buf = make([]byte, inSize)
	e.out.buf = make([]byte, outSize)
	loop.Again(e.token)
	return e, nil
}

// Close gives the interface up: it disappears.
func (e *Endpoint) Close() {
	if e.fd >= 0 {
		e.loop.Remove(e.token)
		unix.Close(e.fd)
		e.fd, e.up = -1, false
	}
}

// Caps implements link.Endpoint. A tap takes every kind of super-frame but trains
// of datagrams, which came with Linux 6.2.
func (e *Endpoint) Caps() link.Caps {
	return link.Caps{MTU: e.c.MTU, Csum: true, TSO4: true, TSO6: true, USO: e.uso, Stats: &e.stats.Stats}
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats { return e.stats }

// Ready implements eventloop.Source.
func (e *Endpoint) Ready(_ uint32, ev eventloop.Events) {
	if e.lost != 0 {
		e.gone(e.lost)
		return
	}
	if !e.up {
		e.up = true
		e.h.LinkUp(e, true)
	}
	if ev&(eventloop.Out|eventloop.Again) != 0 {
		e.drained()
	}
	if e.fd >= 0 && ev&^(eventloop.Out|eventloop.Again) != 0 {
		e.readable()
	}
}

// gone ends the link: the interface is no more.
func (e *Endpoint) gone(why unix.Errno) {
	if e.fd < 0 {
		return
	}
	up := e.up
	e.Close()
	e.c.Log("tap: the interface is gone: %v", why)
	e.loop.Rest()
	if up {
		e.h.LinkDown()
		e.h.GuestGone()
	}
	if e.c.Gone != nil {
		e.c.Gone()
	}
}

// Break implements eventloop.Breaker: the handler panicked under our feet. Nothing
// is wrong with the interface, so the namespace starts anew, as it were.
func (e *Endpoint) Break(err error) {
	e.c.Log("tap: %v", err)
	e.out.open = 0
	e.h.LinkDown()
	e.h.GuestGone()
	e.up = false
	t, addErr := e.loop.Add(e.fd, eventloop.In, e, 0)
	if addErr != nil {
		e.gone(unix.ENOMEM)
		return
	}
	e.token = t
	e.loop.Again(t)
}
