package reasm

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

var (
	guestMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	ourMAC   = wire.MAC{2, 0, 0, 0, 0, 2}
	guest4   = wire.Addr4([4]byte{10, 0, 2, 15})
	remote4  = wire.Addr4([4]byte{192, 0, 2, 7})
	guest6   = wire.Addr{0xfd, 0x67, 15: 0x15}
	remote6  = wire.Addr{0x20, 0x01, 0x0d, 0xb8, 15: 7}
)

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8)
	}
	return b
}

// datagram is a UDP datagram with its checksum, by gopacket.
func datagram(t testing.TB, v6 bool, n int) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: 5000, DstPort: 6000}
	if v6 {
		_ = u.SetNetworkLayerForChecksum(&layers.IPv6{SrcIP: guest6[:], DstIP: remote6[:], NextHeader: layers.IPProtocolUDP})
	} else {
		_ = u.SetNetworkLayerForChecksum(&layers.IPv4{SrcIP: guest4[12:], DstIP: remote4[12:], Protocol: layers.IPProtocolUDP})
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, u, gopacket.Payload(pattern(n))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// frag is the bytes [off, end) of l4 as a frame.
func frag(t testing.TB, v6 bool, proto uint8, id uint32, l4 []byte, off, end int, more bool) *link.Frame {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: guestMAC[:], DstMAC: ourMAC[:], EthernetType: layers.EthernetTypeIPv4}
	var ls []gopacket.SerializableLayer
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		m := byte(0)
		if more {
			m = 1
		}
		h := []byte{proto, 0, byte(off >> 8), byte(off)&^7 | m, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
		ls = append(ls, eth, &layers.IPv6{
			Version: 6, HopLimit: 9, TrafficClass: 4, NextHeader: layers.IPProtocolIPv6Fragment, SrcIP: guest6[:], DstIP: remote6[:],
		}, gopacket.Payload(append(h, l4[off:end]...)))
	} else {
		ip := &layers.IPv4{
			Version: 4, TTL: 9, TOS: 4, Id: uint16(id), Protocol: layers.IPProtocol(proto),
			SrcIP: guest4[12:], DstIP: remote4[12:], FragOffset: uint16(off / 8),
		}
		if more {
			ip.Flags = layers.IPv4MoreFragments
		}
		ls = append(ls, eth, ip, gopacket.Payload(l4[off:end]))
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	data := append([]byte(nil), b.Bytes()...)
	return &link.Frame{Len: len(data), Segs: [][]byte{data[:20], data[20:]}}
}

func input(t testing.TB, tab *Table, f *link.Frame) *link.Frame {
	t.Helper()
	var p wire.Packet
	if v := wire.Parse(&p, f); v != wire.OK || !p.Frag {
		t.Fatalf("parse: %v, fragment %v", v, p.Frag)
	}
	return tab.Input(&p, f)
}

// whole checks that f is the datagram with n bytes of payload.
func whole(t testing.TB, f *link.Frame, v6 bool, n int) {
	t.Helper()
	if f == nil {
		t.Fatal("not complete")
	}
	var p wire.Packet
	if v := wire.Parse(&p, f); v != wire.OK {
		t.Fatalf("whole datagram: %v", v)
	}
	src, dst := guest4, remote4
	if v6 {
		src, dst = guest6, remote6
	}
	got := bytes.Join(wire.Payload(nil, f, p.PayloadOff, p.PayloadLen), nil)
	if p.V6 != v6 || p.Frag || p.Src != src || p.Dst != dst || p.EthSrc != guestMAC || p.EthDst != ourMAC || p.TTL != 9 || p.TOS != 4 ||
		p.SrcPort != 5000 || p.DstPort != 6000 || !bytes.Equal(got, pattern(n)) {
		t.Fatalf("%d bytes: %+v", len(got), p)
	}
}

func TestReassembly(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, v6 := range []bool{false, true} {
		most := 65507
		if v6 {
			most = max6 - 8
		}
		for _, n := range []int{100, 1473, 3000, 40000, most} {
			l4 := datagram(t, v6, n)
			for round := range 4 {
				step := []int{1480, 8 * (1 + r.Intn(400)), 1024, 16}[round]
				if n > 10000 && step < 512 {
					step = 4096
				}
				var fs []*link.Frame
				for off := 0; off < len(l4); off += step {
					end := min(off+step, len(l4))
					fs = append(fs, frag(t, v6, wire.ProtoUDP, 0x10000+uint32(round), l4, off, end, end < len(l4)))
				}
				if len(fs) == 1 {
					continue
				}
				tab := New(eventloop.NewWheel(0))
				order := r.Perm(len(fs))
				for i, k := range order {
					out := input(t, tab, fs[k])
					if i < len(order)-1 {
						if out != nil {
							t.Fatalf("complete after %d of %d", i+1, len(order))
						}
						continue
					}
					whole(t, out, v6, n)
				}
			}
		}
	}
}

func count(tab *Table, name string) (v uint64) {
	tab.Each(func(n string, x uint64) {
		if n == name {
			v = x
		}
	})
	return v
}

// piece is one fragment of a hostile datagram.
type piece struct {
	off, end int
	more     bool
}

func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name   string
		proto  uint8
		pieces []piece
	}{
		{"overlap by 8", wire.ProtoUDP, []piece{{0, 32, true}, {24, 64, false}}},
		{"overlap of the start", wire.ProtoUDP, []piece{{8, 64, false}, {0, 16, true}}},
		{"inside another", wire.ProtoUDP, []piece{{0, 64, true}, {16, 24, true}}},
		{"repeated", wire.ProtoUDP, []piece{{0, 32, true}, {0, 32, true}}},
		{"repeated last", wire.ProtoUDP, []piece{{32, 61, false}, {32, 61, false}}},
		{"two ends", wire.ProtoUDP, []piece{{32, 48, false}, {56, 64, false}}},
		{"end before the data", wire.ProtoUDP, []piece{{32, 64, true}, {8, 16, false}}},
		{"data behind the end", wire.ProtoUDP, []piece{{8, 16, false}, {32, 64, true}}},
		{"tiny first fragment of TCP", wire.ProtoTCP, []piece{{0, 16, true}}},
		{"huge", wire.ProtoUDP, []piece{{0, 32, true}, {65512, 65520, true}}},
	} {
		for _, v6 := range []bool{false, true} {
			if v6 && c.name == "huge" {
				continue // what IPv6's length field cannot tell, wire.Parse has refused
			}
			l4 := make([]byte, 65536)
			tab := New(eventloop.NewWheel(0))
			for _, p := range c.pieces {
				if input(t, tab, frag(t, v6, c.proto, 7, l4, p.off, p.end, p.more)) != nil {
					t.Errorf("%s, v6 %v: completed", c.name, v6)
				}
			}
			if count(tab, "killed") != 1 {
				t.Errorf("%s, v6 %v: not killed", c.name, v6)
			}
			// What would complete it now does not revive it.
			for _, p := range []piece{{0, 32, true}, {32, 64, false}} {
				if input(t, tab, frag(t, v6, c.proto, 7, l4, p.off, p.end, p.more)) != nil {
					t.Errorf("%s, v6 %v: revived", c.name, v6)
				}
			}
			if count(tab, "drop_dead") != 2 {
				t.Errorf("%s, v6 %v: %d fragments of the dead", c.name, v6, count(tab, "drop_dead"))
			}
		}
	}
}

// TestTimeout: what is not complete in 30 s never is, and its memory goes.
func TestTimeout(t *testing.T) {
	w := eventloop.NewWheel(0)
	tab := New(w)
	l4 := datagram(t, false, 100)
	first := frag(t, false, wire.ProtoUDP, 1, l4, 0, 64, true)
	rest := frag(t, false, wire.ProtoUDP, 1, l4, 64, len(l4), false)
	input(t, tab, first)
	w.Advance(20e9)
	input(t, tab, frag(t, false, wire.ProtoUDP, 2, l4, 0, 64, true))
	w.Advance(29_990_000_000)
	if count(tab, "expired") != 0 {
		t.Fatal("expired early")
	}
	w.Advance(30_010_000_000)
	if count(tab, "expired") != 1 || tab.slots[0].mem != nil {
		t.Fatalf("%d expired, memory %d", count(tab, "expired"), len(tab.slots[0].mem))
	}
	if input(t, tab, rest) != nil {
		t.Fatal("completed after its time")
	}
	w.Advance(51e9)
	if count(tab, "expired") != 2 {
		t.Fatalf("%d expired", count(tab, "expired"))
	}
	w.Advance(100e9)
	if w.Len() != 0 {
		t.Fatal("a timer runs for nothing")
	}
}

// TestFlood: first fragments without end cannot take more than the slots, and a
// datagram that comes in one go still gets through.
func TestFlood(t *testing.T) {
	tab := New(eventloop.NewWheel(0))
	l4 := datagram(t, true, 100)
	for id := range uint32(1000) {
		input(t, tab, frag(t, true, wire.ProtoUDP, id, l4, 0, 64, true))
	}
	if n := count(tab, "evicted"); n != 1000-slots {
		t.Fatalf("%d evicted", n)
	}
	input(t, tab, frag(t, true, wire.ProtoUDP, 5000, l4, 0, 64, true))
	whole(t, input(t, tab, frag(t, true, wire.ProtoUDP, 5000, l4, 64, len(l4), false)), true, 100)
	// It pushed out the oldest that was left, not its neighbours.
	if input(t, tab, frag(t, true, wire.ProtoUDP, 1000-slots, l4, 64, len(l4), false)) != nil {
		t.Fatal("the oldest is still there")
	}
	whole(t, input(t, tab, frag(t, true, wire.ProtoUDP, 1000-slots+2, l4, 64, len(l4), false)), true, 100)
	tab.Reset()
	if input(t, tab, frag(t, true, wire.ProtoUDP, 999, l4, 64, len(l4), false)) != nil {
		t.Fatal("a datagram outlives the reset")
	}
}

// TestSameIDOtherDatagram: protocol and addresses are part of the key.
func TestSameIDOtherDatagram(t *testing.T) {
	tab := New(eventloop.NewWheel(0))
	l4 := datagram(t, false, 100)
	input(t, tab, frag(t, false, wire.ProtoUDP, 1, l4, 0, 64, true))
	if input(t, tab, frag(t, false, wire.ProtoICMP, 1, l4, 64, len(l4), false)) != nil {
		t.Fatal("fragments of two protocols make a datagram")
	}
}

func TestNoAlloc(t *testing.T) {
	tab := New(eventloop.NewWheel(0))
	l4 := datagram(t, false, 2000)
	a := frag(t, false, wire.ProtoUDP, 1, l4, 0, 1480, true)
	b := frag(t, false, wire.ProtoUDP, 1, l4, 1480, len(l4), false)
	var p wire.Packet
	if n := testing.AllocsPerRun(100, func() {
		wire.Parse(&p, a)
		tab.Input(&p, a)
		wire.Parse(&p, b)
		if tab.Input(&p, b) == nil {
			t.Fatal("not complete")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// FuzzInput feeds fragments made of the fuzzer's bytes and compares with a plain
// model: a datagram is complete exactly when its pieces tile it.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 4, 1, 4, 3, 0}, false)
	f.Add([]byte{4, 3, 0, 0, 4, 1, 0, 4, 1}, true)
	l4 := make([]byte, 65536)
	for i := range l4 {
		l4[i] = byte(i / 8)
	}
	f.Fuzz(func(t *testing.T, script []byte, v6 bool) {
		tab := New(eventloop.NewWheel(0))
		var got []piece
		deadOrDone := false
		for ; len(script) >= 3 && !deadOrDone && len(got) < 40; script = script[3:] {
			p := piece{off: int(script[0]) * 8, more: script[2]&1 == 1}
			p.end = p.off + int(script[1])*8
			if !p.more {
				p.end -= int(script[2]>>1) % 8
			}
			if p.end <= p.off || p.off == 0 && !p.more || p.end > len(l4) {
				continue
			}
			out := input(t, tab, frag(t, v6, wire.ProtoUDP, 1, l4, p.off, p.end, p.more))
			got = append(got, p)
			ok, size := tiles(got)
			if (out != nil) != (ok && size > 0) {
				t.Fatalf("%+v: complete %v, model %v %d", got, out != nil, ok, size)
			}
			if out != nil {
				hl := 34
				if v6 {
					hl = 54
				}
				if !bytes.Equal(out.Segs[0][hl:], l4[:size]) {
					t.Fatal("bytes differ")
				}
			}
			deadOrDone = !ok || out != nil
		}
	})
}

// tiles says whether the pieces may belong together, and how long the whole is
// when it is complete.
func tiles(ps []piece) (ok bool, size int) {
	var have [70000]bool
	total, n, top := 0, 0, 0
	for _, p := range ps {
		last := (p.end + 7) &^ 7
		for i := p.off; i < last; i++ {
			if have[i] {
				return false, 0
			}
			have[i] = true
		}
		n += last - p.off
		if !p.more {
			if total != 0 {
				return false, 0
			}
			total = p.end
		}
		top = max(top, p.end)
	}
	if total != 0 && top > total {
		return false, 0
	}
	if total != 0 && n == (total+7)&^7 {
		return true, total
	}
	return true, 0
}
