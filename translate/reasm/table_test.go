package reasm

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// piece is one fragment to be sent: payload bytes [from, to) of a datagram.
type piece struct {
	from, to int
	last     bool
}

// fragment4 builds an IPv4 fragment by gopacket, independently of our builders.
func fragment4(t testing.TB, id uint16, proto layers.IPProtocol, payload []byte, p piece) []byte {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: proto, Id: id, FragOffset: uint16(p.from / 8),
		SrcIP: net.IP{10, 0, 2, 15}, DstIP: net.IP{198, 51, 100, 1}}
	if !p.last {
		ip.Flags = layers.IPv4MoreFragments
	}
	return serialize(t, layers.EthernetTypeIPv4, ip, gopacket.Payload(payload[p.from:p.to]))
}

func fragment6(t testing.TB, id uint32, proto uint8, payload []byte, p piece) []byte {
	more := byte(1)
	if p.last {
		more = 0
	}
	off := uint16(p.from)
	head := []byte{proto, 0, byte(off >> 8), byte(off)&^7 | more, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Fragment,
		SrcIP: net.ParseIP("fd00::15"), DstIP: net.ParseIP("2001:db8::1")}
	return serialize(t, layers.EthernetTypeIPv6, ip, gopacket.Payload(append(head, payload[p.from:p.to]...)))
}

func serialize(t testing.TB, et layers.EthernetType, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: et}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append([]gopacket.SerializableLayer{eth}, ls...)...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// udp returns a UDP datagram (header and data) with a right checksum.
func udp(t testing.TB, v6 bool, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	u := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	var ip gopacket.SerializableLayer
	if v6 {
		l := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 64, SrcIP: net.ParseIP("fd00::15"), DstIP: net.ParseIP("2001:db8::1")}
		_ = u.SetNetworkLayerForChecksum(l)
		ip = l
	} else {
		l := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 2, 15}, DstIP: net.IP{198, 51, 100, 1}}
		_ = u.SetNetworkLayerForChecksum(l)
		ip = l
	}
	et, skip := layers.EthernetTypeIPv4, 34
	if v6 {
		et, skip = layers.EthernetTypeIPv6, 54
	}
	return serialize(t, et, ip, u, gopacket.Payload(data))[skip:]
}

type bench struct {
	t     testing.TB
	wheel *eventloop.Wheel
	table *Table
	p     wire.Packet
}

func newBench(t testing.TB) *bench {
	w := eventloop.NewWheel(1)
	return &bench{t: t, wheel: w, table: New(w)}
}

func (b *bench) send(frame []byte) *link.Frame {
	b.t.Helper()
	f := &link.Frame{Len: len(frame), Segs: [][]byte{frame[:20], frame[20:]}}
	if v := wire.Parse(&b.p, f); v != wire.OK || !b.p.Frag {
		b.t.Fatalf("the parser says %v, fragment %v", v, b.p.Frag)
	}
	return b.table.Input(&b.p, f)
}

// cut splits n bytes into pieces of size bytes.
func cut(n, size int) []piece {
	var ps []piece
	for from := 0; from < n; from += size {
		ps = append(ps, piece{from, min(from+size, n), from+size >= n})
	}
	return ps
}

func TestAnyOrder(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for round := range 20 {
			b := newBench(t)
			whole := udp(t, v6, 9000)
			pieces := cut(len(whole), 1480)
			rand.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
			var got *link.Frame
			for i, p := range pieces {
				if got != nil {
					t.Fatalf("complete after %d of %d", i, len(pieces))
				}
				if v6 {
					got = b.send(fragment6(t, 7, wire.ProtoUDP, whole, p))
				} else {
					got = b.send(fragment4(t, 7, layers.IPProtocolUDP, whole, p))
				}
			}
			if got == nil {
				t.Fatalf("round %d: not complete", round)
			}
			if v := wire.Parse(&b.p, got); v != wire.OK || b.p.Frag || b.p.DstPort != 2000 {
				t.Fatalf("the whole parses as %v", v)
			}
			if !bytes.Equal(got.Segs[0][b.p.L4Off:], whole) {
				t.Error("bytes differ")
			}
			if b.table.used != 0 {
				t.Error("the slot is still in use")
			}
		}
	}
}

// TestLargest carries the largest datagrams that IPv4 and IPv6 know (U3).
func TestLargest(t *testing.T) {
	b := newBench(t)
	whole := udp(t, false, 65507)
	var got *link.Frame
	for _, p := range cut(len(whole), 1480) {
		got = b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, p))
	}
	if got == nil || got.Len != 14+20+65515 {
		t.Fatalf("got %+v", got)
	}
}

// TestHostileFragments is row U3 of the hostile inputs, in parts.
func TestHostileFragments(t *testing.T) {
	whole := udp(t, false, 4000)
	for _, tt := range []struct {
		name    string
		pieces  []piece
		counter func(*Stats) uint64
	}{
		{"overlap ahead", []piece{{0, 1000, false}, {992, 2000, false}}, func(s *Stats) uint64 { return s.Overlap }},
		{"overlap behind", []piece{{1000, 2000, false}, {0, 1008, false}}, func(s *Stats) uint64 { return s.Overlap }},
		{"covers both sides", []piece{{1000, 2000, false}, {0, 3000, false}}, func(s *Stats) uint64 { return s.Overlap }},
		{"two ends", []piece{{3000, 4000, true}, {3000, 4008, true}}, func(s *Stats) uint64 { return s.Overlap }},
		{"behind the end", []piece{{1000, 2000, true}, {2000, 3000, false}}, func(s *Stats) uint64 { return s.Overlap }},
		{"end before data", []piece{{2000, 3000, false}, {1000, 2000, true}}, func(s *Stats) uint64 { return s.Overlap }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			for _, p := range tt.pieces {
				if b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, p)) != nil {
					t.Error("complete")
				}
			}
			if tt.counter(&b.table.stats) != 1 || b.table.used != 0 {
				t.Errorf("stats %+v, %d in use", b.table.stats, b.table.used)
			}
		})
	}
}

func TestTinyFirstFragmentHidesNoPorts(t *testing.T) {
	b := newBench(t)
	whole := make([]byte, 40) // a TCP header cut after 8 bytes (RFC 1858)
	if b.send(fragment4(t, 1, layers.IPProtocolTCP, whole, piece{0, 8, false})) != nil || b.table.stats.Tiny != 1 {
		t.Errorf("stats %+v", b.table.stats)
	}
}

func TestDuplicateIsIgnored(t *testing.T) {
	b := newBench(t)
	whole := udp(t, false, 2000)
	first, last := piece{0, 1000, false}, piece{1000, len(whole), true}
	b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, first))
	b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, first))
	if b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, last)) == nil {
		t.Error("not complete")
	}
}

func TestFloodIsBounded(t *testing.T) {
	b := newBench(t)
	whole := udp(t, false, 2000)
	for id := range 1000 {
		b.send(fragment4(t, uint16(id), layers.IPProtocolUDP, whole, piece{0, 1000, false}))
	}
	if b.table.used != Slots || b.table.stats.Evicted != 1000-Slots {
		t.Errorf("%d in use, stats %+v", b.table.used, b.table.stats)
	}
	many := make([]byte, 8000)
	for from := 0; from < 40*16; from += 16 {
		b.send(fragment4(t, 2000, layers.IPProtocolUDP, many, piece{from, from + 8, false}))
	}
	if b.table.stats.Holes != 1 {
		t.Errorf("%d datagrams killed for their holes", b.table.stats.Holes)
	}
}

func TestTimeout(t *testing.T) {
	b := newBench(t)
	whole := udp(t, false, 2000)
	b.send(fragment4(t, 1, layers.IPProtocolUDP, whole, piece{0, 1000, false}))
	b.wheel.Advance(29_000_000_000)
	if b.table.used != 1 {
		t.Fatal("gave up too early")
	}
	for now := eventloop.Time(29_000_000_000); now < 33_000_000_000; now += 1_000_000_000 {
		b.wheel.Advance(now)
	}
	if b.table.used != 0 || b.table.stats.TimedOut != 1 {
		t.Errorf("%d in use, stats %+v", b.table.used, b.table.stats)
	}
	for i := range b.table.slots {
		if b.table.slots[i].buf != nil {
			t.Error("memory is not given back")
		}
	}
}

func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0, 10, 0, 1, 0, 5, 1}, false)
	f.Fuzz(func(t *testing.T, script []byte, v6 bool) {
		b := newBench(t)
		payload := make([]byte, 4096)
		for len(script) >= 4 {
			from, n := int(script[0])*8, int(script[1])*8+8
			p := piece{from, min(from+n, 4096), script[2]&1 != 0}
			if v6 {
				b.send(fragment6(t, uint32(script[3]), wire.ProtoUDP, payload, p))
			} else {
				b.send(fragment4(t, uint16(script[3]), layers.IPProtocolUDP, payload, p))
			}
			if b.table.used > Slots {
				t.Fatal("too many slots")
			}
			script = script[4:]
		}
	})
}
