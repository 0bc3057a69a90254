package icmp

import (
	"errors"
	"net/netip"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Policy says where the guest may go. *forward.Policy is one.
type Policy interface {
	Outbound(proto uint8, dst wire.Addr, port uint16) (host netip.AddrPort, v forward.Verdict)
}

// Config fixes an Engine. Zero fields take their defaults.
type Config struct {
	MaxFlows  int              // echo sessions; default 1024
	Idle      eventloop.Time   // end of a session without traffic; default 60 s
	Outbound4 hostsock.Options // Device and Bind address of ping sockets
	Outbound6 hostsock.Options
}

const (
	defaultMaxFlows = 1024
	defaultIdle     = eventloop.Time(60e9)
)

// Deps are what an Engine works with.
type Deps struct {
	Port   *guest.Port
	Host   hostsock.Host
	Timers *eventloop.Wheel
	Flows  *flow.Table
	Policy Policy
	Log    func(format string, a ...any) // nil: silent
}

// Engine carries the echo requests of one guest.
type Engine struct {
	c     Config
	d     Deps
	slab  flow.Slab[session]
	stats counters

	refused bool // said that ping sockets are forbidden

	head [wire.ICMPLen]byte // of the request being sent
	bufs [][]byte
	out  [1]hostsock.Message

	// One message from the host at a time. held is the session that a message
	// in scratch is for while the guest has no room for it.
	scratch []byte
	in      [1]hostsock.Message
	inBuf   [1][]byte
	held    flow.Handle
	part    guest.Partial // of the held reply, when it goes in fragments
	waiting []flow.Handle // sessions that may have more, behind held
	quote   [quote6]byte
}

// session is one identifier and destination.
type session struct {
	flow    uint32
	timer   eventloop.TimerID
	ttl     uint8 // of the socket
	waiting bool  // in Engine.waiting
}

const maxMessage = 65535

// New returns an engine.
func New(c Config, d Deps) *Engine {
	if c.MaxFlows == 0 {
		c.MaxFlows = defaultMaxFlows
	}
	if c.Idle == 0 {
		c.Idle = defaultIdle
	}
	return &Engine{c: c, d: d}
}

// ResetAll ends all sessions: the guest has started anew.
func (e *Engine) ResetAll() {
	e.slab.All(func(i uint32, _ *session) bool {
		e.end(i)
		return true
	})
	e.resume()
}

// Break implements eventloop.Breaker: a call of Ready met memory of the guest
// that is no longer there. The session that was served ends.
func (e *Engine) Break(err error) {
	e.stats.faults++
	e.d.Port.Abandon()
	e.resume()
	var f *eventloop.Fault
	if errors.As(err, &f) && e.slab.Taken(f.Cookie) {
		e.end(f.Cookie)
	}
}

// resume forgets the message that is held and has the sessions behind it called
// in the next turn.
func (e *Engine) resume() {
	if e.slab.Resolve(e.held) != nil {
		e.wait(e.held.Index)
	}
	e.held, e.part = flow.Handle{}, guest.Partial{}
	for _, h := range e.waiting {
		if s := e.slab.Resolve(h); s != nil {
			s.waiting = false
			e.d.Host.Again(e.d.Flows.At(s.flow).FD)
		}
	}
	e.waiting = e.waiting[:0]
}

// Expired implements eventloop.Expirer for the sessions.
func (e *Engine) Expired(cookie uint32) {
	if !e.slab.Taken(cookie) {
		return
	}
	s := e.slab.At(cookie)
	if at := e.d.Flows.At(s.flow).Last + e.c.Idle; at > e.d.Timers.Now() {
		e.d.Timers.Set(s.timer, at)
		return
	}
	e.end(cookie)
}

// end frees a session and its socket.
func (e *Engine) end(i uint32) {
	s := e.slab.At(i)
	e.d.Host.Close(e.d.Flows.At(s.flow).FD, false)
	e.d.Timers.Free(s.timer)
	e.d.Flows.Remove(s.flow)
	e.slab.Put(i)
}

// buffer is the scratch of one message, made when the first is needed.
func (e *Engine) buffer() []byte {
	if e.scratch == nil {
		e.scratch = make([]byte, maxMessage)
	}
	return e.scratch
}
