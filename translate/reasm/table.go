package reasm

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Limits.
const (
	Slots   = 64             // datagrams under way
	Timeout = 30_000_000_000 // nanoseconds that one may take
	maxRuns = 32             // pieces of one datagram with holes between them
	tick    = 1_000_000_000  // how often old ones are looked for, ns
)

// headRoom is for the Ethernet and IP header of the whole datagram.
const headRoom = wire.EthLen + wire.IPv6Len

// maxData is the longest payload of an IP datagram.
const maxData = 65535

// key is what fragments of one datagram have in common (RFC 791, RFC 8200 4.5).
type key struct {
	src, dst wire.Addr
	id       uint32
	proto    uint8
}

// run is a piece without holes, [from, to) in bytes of the datagram's payload.
type run struct{ from, to int32 }

// slot is one datagram under way.
type slot struct {
	key      key
	used     bool
	deadline eventloop.Time
	end      int32 // length of the payload, -1 until the last fragment is there
	runs     [maxRuns]run
	n        int // runs in use, sorted, never touching each other
	ttl, tos uint8
	id16     uint32
	src, dst wire.MAC
	buf      []byte // headRoom + maxData, allocated at first use
}

// Table collects the fragments of one guest.
type Table struct {
	timers *eventloop.Wheel
	timer  eventloop.TimerID
	slots  [Slots]slot
	used   int
	out    link.Frame
	segs   [1][]byte
	stats  Stats
}

// Stats are counters.
type Stats struct {
	Fragments uint64 // taken
	Whole     uint64 // datagrams completed
	Overlap   uint64 // datagrams killed: overlapping fragments, or two ends
	Tiny      uint64 // datagrams killed: first fragment without the L4 header
	Holes     uint64 // datagrams killed: more than maxRuns pieces
	Evicted   uint64 // datagrams that made room for newer ones
	TimedOut  uint64 // datagrams that stayed incomplete
}

// New returns an empty table. timers is the loop's wheel.
func New(timers *eventloop.Wheel) *Table {
	t := &Table{timers: timers}
	t.timer = timers.New(t, 0)
	return t
}

// Each calls f with the name and value of every counter.
func (t *Table) Each(f func(name string, value uint64)) {
	s := &t.stats
	f("fragments", s.Fragments)
	f("whole", s.Whole)
	f("drop_overlap", s.Overlap)
	f("drop_tiny", s.Tiny)
	f("drop_holes", s.Holes)
	f("drop_evicted", s.Evicted)
	f("drop_timeout", s.TimedOut)
}

// Input takes fragment p, which f carries. It returns the whole datagram, as a
// plain frame in memory of the table that stays valid until the next call, or
// nil while something is missing.
func (t *Table) Input(p *wire.Packet, f *link.Frame) *link.Frame {
	t.stats.Fragments++
	s := t.find(p)
	from := int32(p.FragOff)
	to := from + int32(p.PayloadLen)
	switch {
	case from == 0 && p.PayloadLen < l4Len(p.Proto):
		t.kill(s, &t.stats.Tiny)
		return nil
	case !s.setEnd(to, p.MoreFrags):
		t.kill(s, &t.stats.Overlap)
		return nil
	}
	switch s.add(from, to) {
	case duplicate:
		return nil
	case overlap:
		t.kill(s, &t.stats.Overlap)
		return nil
	case holes:
		t.kill(s, &t.stats.Holes)
		return nil
	}
	wire.Copy(s.buf[headRoom+from:headRoom+to], f, p.PayloadOff)
	if from == 0 {
		s.ttl, s.tos, s.id16, s.src, s.dst = p.TTL, p.TOS, p.ID, p.EthSrc, p.EthDst
	}
	if s.end < 0 || s.n != 1 || s.runs[0] != (run{0, s.end}) {
		return nil
	}
	t.stats.Whole++
	t.release(s)
	return t.frame(s)
}

// l4Len is the shortest header of a protocol that is carried.
func l4Len(proto uint8) int {
	switch proto {
	case wire.ProtoTCP:
		return wire.TCPLen
	case wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6:
		return wire.UDPLen
	}
	return 1
}

// setEnd notes where the datagram ends. It reports false if p contradicts what
// came before.
func (s *slot) setEnd(to int32, more bool) bool {
	switch {
	case s.end >= 0 && (to > s.end || !more && to != s.end):
		return false
	case more:
		return true
	}
	s.end = to
	return s.n == 0 || s.runs[s.n-1].to <= to
}

type outcome uint8

const (
	added outcome = iota
	duplicate
	overlap
	holes
)

// add enters [from, to) into the sorted runs, joining what touches.
func (s *slot) add(from, to int32) outcome {
	i := 0
	for i < s.n && s.runs[i].to < from {
		i++
	}
	// runs[i] is the first that ends at from or behind it.
	if i < s.n && s.runs[i].from <= from && to <= s.runs[i].to {
		return duplicate
	}
	left := i < s.n && s.runs[i].to == from
	next := i
	if left {
		next++
	}
	if next < s.n && s.runs[next].from < to {
		return overlap
	}
	right := next < s.n && s.runs[next].from == to
	switch {
	case left && right:
		s.runs[i].to = s.runs[next].to
		copy(s.runs[next:s.n], s.runs[next+1:s.n])
		s.n--
	case left:
		s.runs[i].to = to
	case right:
		s.runs[next].from = from
	case s.n == maxRuns:
		return holes
	default:
		copy(s.runs[next+1:s.n+1], s.runs[next:s.n])
		s.runs[next] = run{from, to}
		s.n++
	}
	return added
}

// frame writes the headers of a complete datagram in front of its payload. The
// checksum of what is inside is still to be verified: by the parser, again.
func (t *Table) frame(s *slot) *link.Frame {
	l3 := wire.IPv4Len
	if !s.key.dst.Is4() {
		l3 = wire.IPv6Len
	}
	start := headRoom - l3 - wire.EthLen
	b := s.buf[start:]
	if s.key.dst.Is4() {
		wire.PutEthernet(b, s.dst, s.src, wire.EtherIPv4)
		wire.PutIPv4(b[wire.EthLen:], &wire.IPv4Fields{
			Src: s.key.src, Dst: s.key.dst, Proto: s.key.proto, TTL: s.ttl, TOS: s.tos,
			ID: uint16(s.id16), PayloadLen: int(s.end),
		})
	} else {
		wire.PutEthernet(b, s.dst, s.src, wire.EtherIPv6)
		wire.PutIPv6(b[wire.EthLen:], &wire.IPv6Fields{
			Src: s.key.src, Dst: s.key.dst, NextHeader: s.key.proto, HopLimit: s.ttl,
			TrafficClass: s.tos, PayloadLen: int(s.end),
		})
	}
	t.segs[0] = s.buf[start : headRoom+int(s.end)]
	t.out = link.Frame{Segs: t.segs[:], Len: len(t.segs[0])}
	return &t.out
}
