package reasm

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

const (
	slots   = 64
	timeout = eventloop.Time(30e9)

	base = wire.EthLen + wire.IPv6Len // where data begin in a slot's memory

	// Most data that the length field of each IP version can tell.
	max4  = 65535 - wire.IPv4Len
	max6  = 65535
	units = (max6 + 7) / 8 // fragments begin at multiples of 8 bytes
)

// key tells datagrams apart (RFC 791 3.2, RFC 8200 4.5). IPv6 has no protocol in
// its key: the fragments of one datagram may differ in their next header.
type key struct {
	src, dst wire.Addr
	id       uint32
	proto    uint8
}

type state uint8

const (
	free state = iota
	collecting
	dead
)

// slot is one datagram in the making.
type slot struct {
	key   key
	state state
	born  eventloop.Time
	order uint64 // of beginning: many begin at one time

	total int // length of the data, 0 while the last fragment is missing
	end   int // highest byte received
	have  int // units received

	// From the first fragment.
	ethSrc, ethDst      wire.MAC
	ttl, tos, nextProto uint8

	mem  []byte
	seen [(units + 63) / 64]uint64
}

// Table holds the datagrams in the making of one guest.
type Table struct {
	timers *eventloop.Wheel
	timer  eventloop.TimerID
	slots  [slots]slot
	last   int // slot that was used last
	begun  uint64
	out    link.Frame
	segs   [1][]byte
	stats  counters
}

// New returns an empty table.
func New(timers *eventloop.Wheel) *Table {
	t := &Table{timers: timers}
	t.timer = timers.New(t, 0)
	return t
}

// Input takes the fragment p that f carries. It returns the whole datagram when
// it is complete, valid until the next Input, and nil otherwise.
func (t *Table) Input(p *wire.Packet, f *link.Frame) *link.Frame {
	t.stats.fragments++
	k := key{src: p.Src, dst: p.Dst, id: p.FragID}
	if !p.V6 {
		k.proto = p.Proto
	}
	s := t.find(&k)
	if s == nil {
		s = t.begin(&k)
	}
	if s.state == dead {
		t.stats.dropDead++
		return nil
	}
	if !s.add(p, f) {
		t.stats.killed++
		s.state = dead
		return nil
	}
	if s.total == 0 || s.have < (s.total+7)/8 {
		return nil
	}
	return t.complete(s, p.V6)
}

// find returns the slot of k, nil if there is none.
func (t *Table) find(k *key) *slot {
	if s := &t.slots[t.last]; s.state != free && s.key == *k {
		return s
	}
	for i := range t.slots {
		if s := &t.slots[i]; s.state != free && s.key == *k {
			t.last = i
			return s
		}
	}
	return nil
}

// begin takes a slot for k: a free one, best one with memory, or the oldest.
func (t *Table) begin(k *key) *slot {
	best := 0
	for i := range t.slots {
		if better(&t.slots[i], &t.slots[best]) {
			best = i
		}
	}
	s := &t.slots[best]
	if s.state != free {
		t.stats.evicted++
	}
	if s.mem == nil {
		s.mem = make([]byte, base+max6)
	}
	mem := s.mem
	*s = slot{key: *k, state: collecting, born: t.timers.Now(), order: t.begun, mem: mem}
	t.begun++
	t.last = best
	if !t.timers.Armed(t.timer) {
		t.timers.Set(t.timer, s.born+timeout)
	}
	return s
}

// better says whether a is to be taken rather than b.
func better(a, b *slot) bool {
	if a.state == free || b.state == free {
		return a.state == free && (b.state != free || a.mem != nil && b.mem == nil)
	}
	return a.order < b.order
}

// complete turns s into a frame and frees it.
func (t *Table) complete(s *slot, v6 bool) *link.Frame {
	t.stats.completed++
	s.state = free
	var b []byte
	if v6 {
		b = s.mem[:base+s.total]
		n := wire.PutEthernet(b, s.ethDst, s.ethSrc, wire.EtherIPv6)
		wire.PutIPv6(b[n:], &wire.IPv6Fields{
			Src: s.key.src, Dst: s.key.dst, NextHeader: s.nextProto, HopLimit: s.ttl, TrafficClass: s.tos, PayloadLen: s.total,
		})
	} else {
		b = s.mem[base-wire.EthLen-wire.IPv4Len : base+s.total]
		n := wire.PutEthernet(b, s.ethDst, s.ethSrc, wire.EtherIPv4)
		wire.PutIPv4(b[n:], &wire.IPv4Fields{
			Src: s.key.src, Dst: s.key.dst, Proto: s.nextProto, TTL: s.ttl, TOS: s.tos, ID: uint16(s.key.id), PayloadLen: s.total,
		})
	}
	t.segs[0] = b
	t.out = link.Frame{Len: len(b), Segs: t.segs[:]}
	return &t.out
}

// Expired implements eventloop.Expirer: it frees the slots whose time is over,
// memory included, and sets the timer for the next.
func (t *Table) Expired(uint32) {
	now := t.timers.Now()
	next := eventloop.Time(0)
	for i := range t.slots {
		s := &t.slots[i]
		switch {
		case s.state == free:
		case s.born+timeout <= now:
			t.stats.expired++
			s.state, s.mem = free, nil
		case next == 0 || s.born+timeout < next:
			next = s.born + timeout
		}
	}
	if next != 0 {
		t.timers.Set(t.timer, next)
	}
}

// Reset forgets everything: the guest has started anew.
func (t *Table) Reset() {
	for i := range t.slots {
		t.slots[i].state, t.slots[i].mem = free, nil
	}
	t.timers.Stop(t.timer)
}

type counters struct {
	fragments, completed uint64
	killed, dropDead     uint64
	evicted, expired     uint64
}

// Each calls f with the name and value of every counter.
func (t *Table) Each(f func(name string, value uint64)) {
	f("fragments", t.stats.fragments) // taken in
	f("completed", t.stats.completed) // datagrams
	f("killed", t.stats.killed)       // datagrams, for an overlap or a lie
	f("drop_dead", t.stats.dropDead)  // fragments of these
	f("evicted", t.stats.evicted)     // datagrams pushed out by newer ones
	f("expired", t.stats.expired)     // datagrams that were not complete in time
}
