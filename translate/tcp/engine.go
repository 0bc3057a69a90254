package tcp

import (
	"errors"
	"net/netip"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Engine carries the TCP connections of one guest. It is owned by the guest's
// loop.
type Engine struct {
	cfg    Config
	port   *guest.Port
	host   hostsock.Host
	timers *eventloop.Wheel
	flows  *flow.Table
	clock  eventloop.Clock
	deps   Deps
	peeks  bool  // sockets have SO_PEEK_OFF
	shift  uint8 // window scale that we offer

	conns  flow.Slab[conn]
	lists  [nLists]list
	hot    *conn // the connection of the last segment
	hotKey flow.Key

	// The batch under way: which connections it has touched, and the payload
	// that was gathered for them, as slices of guest memory.
	batch   []touched
	segs    [][]byte
	runs    []run
	iov     [][]byte
	rooms   [][]byte
	pending int // chunks that the gathered bytes need if no kernel takes them

	pool    pool
	inBufs  flow.Slab[inBuf]
	outBufs flow.Slab[seqBuf]
	boards  flow.Slab[board]

	reserved   bool  // a reservation is open
	full       bool  // the last reservation found no room
	answers    uint8 // conn.answers of the connection that changed it last: what new ones begin with
	choked     bool  // a connection waits for chunks
	synTokens  bucket
	challenges bucket

	quote wire.Packet // scratch: a SYN rebuilt for an ICMP error
	stats Stats
}

// New makes an Engine without connections.
func New(c Config, d Deps) *Engine {
	c.defaults()
	e := &Engine{
		cfg: c, deps: d,
		port: d.Port, host: d.Host, timers: d.Timers, flows: d.Flows, clock: d.Clock,
		peeks: d.Host.CanPeek(),
		batch: make([]touched, 0, 256),
		segs:  make([][]byte, 0, 4*maxIOV),
		runs:  make([]run, 0, maxIOV),
		iov:   make([][]byte, 0, maxIOV),
		rooms: make([][]byte, 0, 64),
		pool:  newPool(c.BufferMax / chunkSize),
	}
	if e.clock == nil {
		e.clock = e.timers
	}
	for 0xffff<<e.shift < c.WindowMax {
		e.shift++
	}
	e.synTokens = bucket{rate: c.FlowRate, left: c.FlowRate, last: e.clock.Now()}
	e.challenges = bucket{rate: challengeRate, left: challengeRate, last: e.clock.Now()}
	return e
}

// bucket is a rate limit: rate per second, a second's worth at once.
type bucket struct {
	rate, left int
	last       eventloop.Time
}

func (b *bucket) take(now eventloop.Time) bool {
	const second = 1_000_000_000
	if d := int64(now - b.last); d >= second {
		b.left, b.last = b.rate, now
	} else if n := int(d * int64(b.rate) / second); n > 0 {
		b.left = min(b.left+n, b.rate)
		b.last += eventloop.Time(int64(n) * second / int64(b.rate))
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

func (e *Engine) now() eventloop.Time { return e.clock.Now() }

// Input takes one segment of the guest. f is its frame; what of its payload is
// in order is remembered by reference until EndBatch, which must follow before
// the frame's memory goes back to the guest.
func (e *Engine) Input(p *wire.Packet, f *link.Frame) { e.input(p, f) }

// EndBatch ends a batch of segments: gathered payload goes to the host sockets,
// what the guest's ACKs made room for goes to the guest, and every connection
// that owes an ACK sends one.
func (e *Engine) EndBatch() { e.endBatch() }

// Inbound brings a connection that a listener has accepted to the guest: fd is
// its socket, peer and local its ends; the guest sees it come from src and
// peer's port to guestAddr and guestPort. The engine owns fd from now on.
func (e *Engine) Inbound(fd hostsock.FD, peer, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16, src wire.Addr) {
	e.inbound(fd, peer, local, flow.Key{
		Guest: guestAddr, Remote: src, GuestPort: guestPort, RemotePort: peer.Port(), Proto: wire.ProtoTCP,
	})
}

// Writable goes on with the connections that wait for guest buffers: call it
// when the guest has posted some, and at LinkUp without a fresh guest.
func (e *Engine) Writable() { e.serveWaiting() }

// Ready takes the events of a host socket (eventloop.Source).
func (e *Engine) Ready(cookie uint32, ev eventloop.Events) { e.ready(cookie, ev) }

// Expired takes the end of a connection's timer (eventloop.Expirer).
func (e *Engine) Expired(cookie uint32) { e.expired(cookie) }

// Break ends the connection whose event made the loop's call fail, a fault in
// guest memory most likely (eventloop.Breaker).
func (e *Engine) Break(err error) {
	if e.reserved {
		e.commit(0)
	}
	var f *eventloop.Fault
	if !errors.As(err, &f) || !e.conns.Taken(f.Cookie) {
		return
	}
	e.event(e.conns.At(f.Cookie), HostError)
}

// ResetAll ends every connection with a RST to its target: the guest has
// started anew and knows none of them.
func (e *Engine) ResetAll() {
	e.conns.All(func(_ uint32, c *conn) bool {
		e.event(c, Renewed)
		return true
	})
	e.batch, e.segs, e.runs, e.pending = e.batch[:0], e.segs[:0], e.runs[:0], 0
	e.reserved, e.choked = false, false
}
