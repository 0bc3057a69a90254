package icmp

import (
	"encoding/binary"
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Work of one call: what is left waits for another turn.
const (
	readBudget  = 64 // messages of one socket
	errorBudget = 16 // entries of one error queue
)

// Ready implements eventloop.Source for the ping sockets. Their readiness is
// edge-triggered: a session that is not read to its end goes on in Writable or
// in the next turn.
func (e *Engine) Ready(cookie uint32, ev eventloop.Events) {
	if !e.slab.Taken(cookie) {
		return
	}
	if ev&(eventloop.Err|eventloop.Again) != 0 {
		e.errors(cookie)
	}
	if ev&(eventloop.In|eventloop.Again|eventloop.Err) != 0 {
		e.receive(cookie)
	}
}

// receive passes replies on until the socket is empty, the guest is full or the
// budget is spent.
func (e *Engine) receive(i uint32) {
	if e.held != (flow.Handle{}) {
		e.wait(i)
		return
	}
	fd := e.d.Flows.At(e.slab.At(i).flow).FD
	failed := false
	for range readBudget {
		e.inBuf[0] = e.buffer()
		e.in[0] = hostsock.Message{Bufs: e.inBuf[:]}
		n, errno := e.d.Host.Recv(fd, e.in[:])
		if n == 0 {
			if errno == 0 || errno == syscall.EAGAIN || failed {
				return
			}
			// The pending error of a socket takes the place of data once.
			failed = true
			e.errors(i)
			continue
		}
		if !e.deliver(i) {
			e.held = e.slab.Handle(i)
			return
		}
	}
	e.d.Host.Again(fd)
}

// deliver sends the message in scratch to the guest as session i's. It reports
// false when the guest has no room.
func (e *Engine) deliver(i uint32) bool {
	m := &e.in[0]
	if m.Trunc || m.N < wire.ICMPLen || m.N > len(e.scratch) {
		e.stats.dropReply++
		return true
	}
	b := e.scratch[:m.N]
	fl := e.d.Flows.At(e.slab.At(i).flow)
	want := uint8(wire.ICMPEchoReply)
	if !fl.Key.Remote.Is4() {
		want = wire.ICMPv6EchoReply
	}
	if b[0] != want {
		e.stats.dropReply++
		return true
	}
	ttl := m.TTL
	if ttl == 0 {
		ttl = guest.DefaultTTL
	}
	seq := binary.BigEndian.Uint16(b[6:])
	if !e.reply(&e.part, b, fl.Key.Remote, fl.Key.Guest, fl.Key.GuestPort, seq, ttl, m.TOS) {
		return false
	}
	e.stats.replies++
	e.d.Flows.Advance(e.slab.At(i).flow, flow.Active)
	e.d.Flows.Touch(e.slab.At(i).flow, e.d.Timers.Now())
	return true
}

// wait queues a session for Writable.
func (e *Engine) wait(i uint32) {
	if s := e.slab.At(i); !s.waiting {
		s.waiting = true
		e.waiting = append(e.waiting, e.slab.Handle(i))
	}
}

// Writable goes on towards the guest, in the order in which sessions stopped.
func (e *Engine) Writable() {
	h := e.held
	if h == (flow.Handle{}) {
		return
	}
	if e.slab.Resolve(h) != nil {
		if !e.deliver(h.Index) {
			return
		}
		e.wait(h.Index) // it may have more
	}
	e.held, e.part = flow.Handle{}, guest.Partial{}
	n := 0
	for n < len(e.waiting) && e.held == (flow.Handle{}) {
		h := e.waiting[n]
		n++
		if s := e.slab.Resolve(h); s != nil {
			s.waiting = false
			e.receive(h.Index)
		}
	}
	e.waiting = e.waiting[:copy(e.waiting, e.waiting[n:])]
}

// errors tells the guest what the error queue of session i holds.
func (e *Engine) errors(i uint32) {
	fl := e.d.Flows.At(e.slab.At(i).flow)
	for range errorBudget {
		se, errno := e.d.Host.Errors(fl.FD, e.quote[:])
		if errno != 0 {
			return
		}
		e.stats.errorsIn++
		q := Quote{Src: fl.Key.Guest, Dst: fl.Key.Remote, Proto: fl.Key.Proto, SrcPort: fl.Key.GuestPort}
		if n := min(se.N, len(e.quote)); n >= wire.ICMPLen { // the quote begins with our ICMP header
			q.DstPort = binary.BigEndian.Uint16(e.quote[6:])
			q.Data = e.quote[wire.ICMPLen:n]
		}
		if Relay(e.d.Port, &q, &se, fl.Host.Addr()) {
			e.stats.errorsOut++
		}
	}
	e.d.Host.Again(fl.FD)
}
