package dns

import (
	"net/netip"
	"time"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Resolver says what the host's resolver configuration is now.
type Resolver interface {
	Upstreams() []netip.AddrPort // best first; the caller must not keep the slice
	Search() []string
}

// Config fixes a Forwarder.
type Config struct {
	MaxPending int // queries in flight; 0: DefaultMaxPending
}

// DefaultMaxPending bounds the queries in flight.
const DefaultMaxPending = 1024

// Deps is what a Forwarder works with.
type Deps struct {
	Port     *guest.Port
	Host     hostsock.Host
	Timers   *eventloop.Wheel
	Resolver Resolver
	Rand     func() uint32                 // unpredictable
	Log      func(format string, a ...any) // nil: silent
}

// Port is the UDP port that the translator gives to Input.
const Port = 53

const (
	maxQuery     = 2048
	maxAttempts  = 4
	attemptTime  = 1250 * eventloop.Time(time.Millisecond)
	evictableAge = eventloop.Time(time.Second) // queries younger than this do not give way
	recvBudget   = 32                          // datagrams per Ready
)

// Forwarder relays queries and answers.
type Forwarder struct {
	c Config
	d Deps

	queries []query // grows up to MaxPending
	free    []int32 // unused entries of queries
	byID    map[uint16]int32
	socks   [maxSocks]sock
	health  [maxUpstreams]health

	timer   eventloop.TimerID
	armed   eventloop.Time // when timer runs out, if it is armed
	failing bool           // said so in the log
	stats   Stats

	in   [maxQuery]byte
	recv []byte // one datagram or GRO run of an upstream; allocated at the first query
	msg  [1]hostsock.Message
	bufs [1][]byte
}

// New returns a forwarder.
func New(c Config, d Deps) *Forwarder {
	if c.MaxPending <= 0 {
		c.MaxPending = DefaultMaxPending
	}
	c.MaxPending = min(c.MaxPending, 1<<15) // of 65,536 ids
	r := &Forwarder{c: c, d: d, byID: make(map[uint16]int32)}
	r.timer = d.Timers.New(r, 0)
	for i := range r.socks {
		r.socks[i].fd = hostsock.None
	}
	return r
}

// Input takes a datagram of the guest to a --dns-forward address, port 53.
func (r *Forwarder) Input(p *wire.Packet, f *link.Frame) {
	switch {
	case p.PayloadLen > maxQuery:
		r.drop(DropLong)
		return
	case p.PayloadLen < headerLen || p.SrcPort == 0:
		r.drop(DropShort)
		return
	}
	msg := r.in[:p.PayloadLen]
	if wire.Copy(msg, f, p.PayloadOff) < len(msg) {
		r.drop(DropShort)
		return
	}
	h := parseHeader(msg)
	if h.response {
		r.drop(DropResponse)
		return
	}
	if h.opcode != opcodeQuery {
		r.stats.NotImplemented++
		r.toGuest(p.Dst, p.Src, p.SrcPort, refusal(msg, headerLen, rcodeNotImplemented))
		return
	}
	end, ok := questionEnd(msg)
	if !ok {
		r.drop(DropQuestion)
		return
	}
	i := r.take()
	if i < 0 {
		r.drop(DropFull)
		return
	}
	q := &r.queries[i]
	q.msg = append(q.msg[:0], msg...)
	q.end, q.guestID = end, h.id
	q.guest, q.guestPort, q.ours = p.Src, p.SrcPort, p.Dst
	q.start = r.now()
	q.id = r.newID()
	r.byID[q.id] = i
	r.stats.Queries++
	r.attempt(i)
}

// Expired implements eventloop.Expirer: it moves on what has waited long enough.
func (r *Forwarder) Expired(uint32) {
	now := r.now()
	for i := range r.queries {
		q := &r.queries[i]
		if !q.live || q.due > now {
			continue
		}
		if a := q.last(); !a.hard {
			r.silent(a.to)
		}
		if q.attempts == maxAttempts || now >= q.start+maxAttempts*attemptTime {
			r.fail(int32(i))
			continue
		}
		r.stats.Retries++
		r.attempt(int32(i))
	}
	r.closeIdle(now)
	r.arm()
}

// arm sets the timer to the next thing that has a time, if there is one.
func (r *Forwarder) arm() {
	next, any := eventloop.Time(0), false
	note := func(t eventloop.Time) {
		if !any || t < next {
			next, any = t, true
		}
	}
	for i := range r.queries {
		if r.queries[i].live {
			note(r.queries[i].due)
		}
	}
	for i := range r.socks {
		if r.socks[i].fd != hostsock.None {
			note(r.socks[i].closeAt())
		}
	}
	if any {
		r.armed = next
		r.d.Timers.Set(r.timer, next)
	}
}

// armFor makes sure that the timer runs out at t or before.
func (r *Forwarder) armFor(t eventloop.Time) {
	if !r.d.Timers.Armed(r.timer) || t < r.armed {
		r.armed = t
		r.d.Timers.Set(r.timer, t)
	}
}

// ResetAll forgets all queries; the guest has started anew.
func (r *Forwarder) ResetAll() {
	for i := range r.queries {
		if r.queries[i].live {
			r.release(int32(i))
		}
	}
	for i := range r.socks {
		r.close(i)
	}
	r.d.Timers.Stop(r.timer)
}

func (r *Forwarder) now() eventloop.Time { return r.d.Timers.Now() }

// toGuest sends an answer.
func (r *Forwarder) toGuest(from, to wire.Addr, port uint16, msg []byte) {
	if !r.d.Port.SendUDP(from, Port, to, port, msg, guest.DefaultTTL, 0) {
		r.drop(DropNoRoom)
	}
}

func (r *Forwarder) logf(format string, a ...any) {
	if r.d.Log != nil {
		r.d.Log(format, a...)
	}
}
