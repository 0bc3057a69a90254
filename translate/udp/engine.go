package udp

import (
	"errors"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Engine is the UDP translator of one guest.
type Engine struct {
	c     Config
	d     Deps
	conns flow.Slab[conn]
	stats counters

	listeners []listener

	last     flow.Key    // of the datagram before, whose flow is
	lastConn flow.Handle // this one

	batch batch
	out   outgoing
	rx    incoming
	wait  waitlist
	quote [quoteLen]byte

	scarce bool // said that sockets run out
}

// conn is UDP's part of a flow.
type conn struct {
	flow     uint32
	timer    eventloop.TimerID
	listener uint32 // the served socket that carries it; 0: it has its own
	ttl      uint8  // of its own socket
	waiting  bool   // in Engine.wait
	idle     idle   // of its own socket

	// In the batch being gathered.
	first, final uint16 // items, 0: none
	next         uint32 // conn with items after this one
}

// New returns an engine.
func New(c Config, d Deps) *Engine {
	if c.Unreplied == 0 {
		c.Unreplied = defaultUnreplied
	}
	if c.Stream == 0 {
		c.Stream = defaultStream
	}
	if c.MaxFlows > 0 {
		d.Flows.SetLimit(wire.ProtoUDP, c.MaxFlows)
	}
	e := &Engine{c: c, d: d, listeners: make([]listener, 1)}
	e.batch.init()
	return e
}

// ResetAll ends all flows: the guest has started anew. Served sockets stay.
func (e *Engine) ResetAll() {
	e.batch.drop()
	e.conns.All(func(i uint32, c *conn) bool {
		c.first = 0
		e.end(i)
		return true
	})
	for i := range e.listeners {
		e.listeners[i].first, e.listeners[i].final = 0, 0
	}
	e.resume()
}

// Break implements eventloop.Breaker: a call of Ready met memory of the guest
// that is no longer there. The flow that was served is given up; the rest goes
// on.
func (e *Engine) Break(err error) {
	e.stats.faults++
	e.d.Port.Abandon()
	clear(e.out.iov)
	e.out.n, e.out.iov = 0, e.out.iov[:0]
	e.resume()
	var f *eventloop.Fault
	if !errors.As(err, &f) {
		return
	}
	if n := f.Cookie &^ served; n != f.Cookie {
		e.rewatch(n)
	} else if e.conns.Taken(f.Cookie) {
		e.end(f.Cookie)
	}
}

// Expired implements eventloop.Expirer for the flows. The timer of a busy flow
// is moved on here, not with every datagram.
func (e *Engine) Expired(cookie uint32) {
	if !e.conns.Taken(cookie) {
		return
	}
	c := e.conns.At(cookie)
	f := e.d.Flows.At(c.flow)
	idle := e.c.Unreplied
	if f.State == flow.Active {
		idle = e.c.Stream
	}
	if at := f.Last + idle; at > e.d.Timers.Now() {
		e.d.Timers.Set(c.timer, at)
		return
	}
	e.stats.expired++
	e.end(cookie)
}

// begin makes the conn of a new flow.
func (e *Engine) begin(i uint32) (uint32, *conn) {
	slot, c := e.conns.Get()
	c.flow = i
	c.timer = e.d.Timers.New(e, slot)
	e.d.Timers.Set(c.timer, e.d.Timers.Now()+e.c.Unreplied)
	f := e.d.Flows.At(i)
	f.FD, f.Slot = hostsock.None, slot
	e.stats.flows++
	return slot, c
}

// end frees a flow and its socket. What it has in the batch is sent first.
func (e *Engine) end(i uint32) {
	c := e.conns.At(i)
	if c.first != 0 {
		e.EndBatch()
	}
	if c.listener == 0 {
		e.d.Host.Close(e.d.Flows.At(c.flow).FD, false)
	}
	e.d.Timers.Free(c.timer)
	e.d.Flows.Remove(c.flow)
	e.conns.Put(i)
}

// evictScan is how far evict looks for a flow that was never answered.
const evictScan = 32

// evict ends one flow to make room for another.
func (e *Engine) evict() bool {
	oldest, ok := e.d.Flows.OldestIdle(wire.ProtoUDP)
	if !ok {
		return false
	}
	slot := e.d.Flows.At(oldest).Slot
	for i, n := oldest, 0; ok && n < evictScan; n++ {
		if f := e.d.Flows.At(i); f.State == flow.Opening && f.Slot != 0 {
			slot = f.Slot
			break
		}
		i, ok = e.d.Flows.Newer(i)
	}
	if slot == 0 {
		return false // still being made, for itself
	}
	e.stats.evicted++
	e.end(slot)
	return true
}
