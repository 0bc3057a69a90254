package udp

import (
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

const (
	rxMessages = 16    // of one recvmmsg
	rxBuffer   = 65536 // bytes each: the longest UDP_GRO run
	readBudget = 4     // recvmmsg calls for one socket in a turn
)

// incoming is what was read last and not passed on yet. It is full while the
// guest has no room.
type incoming struct {
	mem  []byte
	bufs [rxMessages][1][]byte
	msgs [rxMessages]hostsock.Message
	conn [rxMessages]flow.Handle // whose message it is; zero: nobody's
	src  source                  // the socket they came from

	n, i int           // messages, next one
	off  int           // bytes of it that the guest has
	part guest.Partial // of a datagram that goes in fragments
}

// source is a socket that is read: a flow's own, or a served one.
type source struct {
	cookie uint32
	gen    uint32
}

func (r *incoming) stalled() bool { return r.i < r.n }

// Ready implements eventloop.Source for the host sockets. Readiness is
// edge-triggered: whoever is not read to its end is in the waitlist or has asked
// for another turn.
func (e *Engine) Ready(cookie uint32, ev eventloop.Events) {
	s, ok := e.source(cookie)
	if !ok {
		return
	}
	if ev&(eventloop.Err|eventloop.Again) != 0 {
		e.errorsOf(s)
	}
	if r := e.idleOf(s); r.resting && e.d.Clock.Now() < r.until {
		return
	}
	e.read(s)
}

// source names the socket behind a cookie.
func (e *Engine) source(cookie uint32) (source, bool) {
	if n := cookie &^ served; cookie != n {
		if int(n) >= len(e.listeners) || e.listeners[n].fd == hostsock.None {
			return source{}, false
		}
		return source{cookie, e.listeners[n].gen}, true
	}
	if !e.conns.Taken(cookie) {
		return source{}, false
	}
	return source{cookie, e.conns.Handle(cookie).Gen}, true
}

// alive says whether s is still the socket that it named.
func (e *Engine) alive(s source) bool {
	now, ok := e.source(s.cookie)
	return ok && now == s
}

func (e *Engine) fdOf(s source) hostsock.FD {
	if s.cookie&served != 0 {
		return e.listeners[s.cookie&^served].fd
	}
	return e.d.Flows.At(e.conns.At(s.cookie).flow).FD
}

// read passes on what s has, until it is empty, the guest is full or the budget
// is spent.
func (e *Engine) read(s source) {
	r := &e.rx
	if r.stalled() {
		e.enqueue(s)
		return
	}
	if r.mem == nil {
		r.mem = make([]byte, rxMessages*rxBuffer)
	}
	fd := e.fdOf(s)
	failed := false
	for range readBudget {
		for i := range r.msgs {
			r.bufs[i][0] = r.mem[i*rxBuffer : (i+1)*rxBuffer]
			r.msgs[i] = hostsock.Message{Bufs: r.bufs[i][:]}
		}
		n, errno := e.d.Host.Recv(fd, r.msgs[:])
		if n == 0 {
			if errno == 0 || errno == syscall.EAGAIN || failed {
				e.rest(s, fd, 0)
				return
			}
			// The pending error of a socket takes the place of data once.
			failed = true
			e.errorsOf(s)
			continue
		}
		r.n, r.i, r.off, r.part, r.src = n, 0, 0, guest.Partial{}, s
		e.assign(s)
		came := r.datagrams()
		if !e.deliver() {
			return
		}
		if n < rxMessages {
			e.rest(s, fd, came)
			return
		}
	}
	e.d.Host.Again(fd)
}

// assign finds the flow of every message just read.
func (e *Engine) assign(s source) {
	r := &e.rx
	if s.cookie&served == 0 {
		h := e.conns.Handle(s.cookie)
		for i := range r.n {
			r.conn[i] = h
		}
		c := e.conns.At(s.cookie)
		e.d.Flows.Touch(c.flow, e.d.Timers.Now())
		e.d.Flows.Advance(c.flow, flow.Active)
		return
	}
	for i := range r.n {
		r.conn[i] = flow.Handle{}
		if slot, ok := e.place(s.cookie&^served, &r.msgs[i]); ok {
			r.conn[i] = e.conns.Handle(slot)
			e.d.Flows.Touch(e.conns.At(slot).flow, e.d.Timers.Now())
		}
	}
}
