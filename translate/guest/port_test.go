package guest

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

var (
	guest4  = wire.Addr4([4]byte{10, 0, 2, 15})
	remote4 = wire.Addr4([4]byte{192, 0, 2, 7})
	guest6  = wire.Addr{0xfd, 0x67, 15: 0x15}
	remote6 = wire.Addr{0x20, 0x01, 0x0d, 0xb8, 15: 7}
)

func newPort(t *testing.T, mtu int) (*Port, *linktest.Endpoint) {
	ep := linktest.NewEndpoint(t, link.Caps{MTU: mtu})
	return &Port{
		EP: ep, Caps: ep.Caps(), Up: true,
		MAC: wire.MAC{2, 0, 0, 0, 0, 1}, OurMAC: wire.MAC{0x52, 0x55, 10, 0, 2, 2},
		Gateway4: wire.Addr4([4]byte{10, 0, 2, 2}), OurLL6: wire.Addr{0xfe, 0x80, 15: 2},
	}, ep
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8)
	}
	return b
}

// decode has gopacket check lengths and checksums of a whole packet.
func decode(t *testing.T, data []byte) gopacket.Packet {
	t.Helper()
	g := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	if e := g.ErrorLayer(); e != nil {
		t.Fatalf("%v\n%x", e.Error(), data)
	}
	if l, ok := g.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		_ = l.SetNetworkLayerForChecksum(g.NetworkLayer())
	}
	if errs, bad := g.VerifyChecksums(); errs != nil || len(bad) != 0 {
		t.Fatalf("checksums: %v %v\n%v", errs, bad, g)
	}
	return g
}

func TestSendUDPWhole(t *testing.T) {
	for _, n := range []int{0, 1, 1472, 1452} {
		p, ep := newPort(t, 1500)
		if !p.SendUDP(remote4, 5000, guest4, 40000, pattern(n), 57, 0x10) {
			t.Fatal("no room")
		}
		g := decode(t, ep.Take()[0].Data)
		eth := g.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
		ip := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp := g.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if wire.MAC(eth.DstMAC) != p.MAC || wire.MAC(eth.SrcMAC) != p.OurMAC || ip.TTL != 57 || ip.TOS != 0x10 ||
			udp.SrcPort != 5000 || udp.DstPort != 40000 || !bytes.Equal(udp.Payload, pattern(n)) || udp.Checksum == 0 {
			t.Fatalf("len %d: %v", n, g)
		}
	}
	p, ep := newPort(t, 1500)
	if !p.SendUDP(remote6, 5000, guest6, 40000, pattern(1452), 57, 0x10) {
		t.Fatal("no room")
	}
	g := decode(t, ep.Take()[0].Data)
	ip := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	udp := g.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if ip.HopLimit != 57 || ip.TrafficClass != 0x10 || !bytes.Equal(udp.Payload, pattern(1452)) {
		t.Fatalf("%v", g)
	}
}

// TestSendFragments puts the fragments together again by the fields that
// gopacket reads.
func TestSendFragments(t *testing.T) {
	for _, c := range []struct {
		v6     bool
		mtu, n int
		frames int
	}{
		{false, 1500, 1473, 2},
		{false, 1500, 65507, 45},
		{false, 577, 1400, 3},
		{true, 1500, 1453, 2},
		{true, 1280, 65527, 54},
	} {
		p, ep := newPort(t, c.mtu)
		ep.SegLen = 100 // slots in pieces
		src, dst := remote4, guest4
		if c.v6 {
			src, dst = remote6, guest6
		}
		for range 2 { // two datagrams: identifications differ
			if !p.SendUDP(src, 5000, dst, 40000, pattern(c.n), 57, 0) {
				t.Fatalf("%+v: not sent", c)
			}
		}
		frames := ep.Take()
		if len(frames) != 2*c.frames {
			t.Fatalf("%+v: %d frames", c, len(frames))
		}
		id1 := checkFragments(t, frames[:c.frames], c.v6, c.n)
		if id2 := checkFragments(t, frames[c.frames:], c.v6, c.n); id1 == id2 {
			t.Fatalf("%+v: both datagrams have identification %d", c, id1)
		}
	}
}

func checkFragments(t *testing.T, frames []linktest.Frame, v6 bool, n int) (id uint32) {
	t.Helper()
	var l4 []byte
	for i, f := range frames {
		g := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
		var off int
		var more bool
		var got uint32
		var data []byte
		if v6 {
			fr := g.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
			off, more, got, data = int(fr.FragmentOffset)*8, fr.MoreFragments, fr.Identification, fr.Payload
			if fr.NextHeader != layers.IPProtocolUDP {
				t.Fatalf("next header %v", fr.NextHeader)
			}
		} else {
			ip := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			off, more, got, data = int(ip.FragOffset)*8, ip.Flags&layers.IPv4MoreFragments != 0, uint32(ip.Id), ip.Payload
			if ip.Flags&layers.IPv4DontFragment != 0 || ip.Protocol != layers.IPProtocolUDP {
				t.Fatalf("fragment %d: %+v", i, ip)
			}
		}
		if i == 0 {
			id = got
		}
		if off != len(l4) || more != (i < len(frames)-1) || got != id {
			t.Fatalf("fragment %d: offset %d of %d, more %v, id %d", i, off, len(l4), more, got)
		}
		l4 = append(l4, data...)
	}
	if len(l4) != n+8 || !bytes.Equal(l4[8:], pattern(n)) {
		t.Fatalf("%d bytes, want %d", len(l4), n+8)
	}
	src, dst := remote4, guest4
	if v6 {
		src, dst = remote6, guest6
	}
	if s := wire.Fold(wire.Checksum(wire.PseudoHeader(src, dst, wire.ProtoUDP, len(l4)), l4)); s != 0xffff {
		t.Fatalf("UDP checksum: %04x", s)
	}
	return id
}

func TestSendAllOrNothing(t *testing.T) {
	p, ep := newPort(t, 1500)
	ep.Room = 2
	if p.SendUDP(remote4, 1, guest4, 2, pattern(4000), 64, 0) {
		t.Fatal("three fragments fit into two buffers")
	}
	if ep.Count != 0 || ep.Room != 2 {
		t.Fatalf("%d frames sent, room %d", ep.Count, ep.Room)
	}
	if !p.SendUDP(remote4, 1, guest4, 2, pattern(2000), 64, 0) || ep.Count != 2 {
		t.Fatal("two fragments do not fit into two buffers")
	}
	p.Up = false
	ep.Room = linktest.Unlimited
	if p.SendUDP(remote4, 1, guest4, 2, nil, 64, 0) {
		t.Fatal("sent while the link is down")
	}
	p.Up = true
	if p.SendUDP(remote4, 1, guest4, 2, pattern(65508), 64, 0) || p.SendL4(remote6, guest6, 17, 64, 0, pattern(65536)) {
		t.Fatal("sent a packet longer than IP can carry")
	}
}

func TestSendNoAlloc(t *testing.T) {
	p, ep := newPort(t, 1500)
	ep.Discard = true
	b := pattern(5000)
	send := func() {
		p.SendUDP(remote4, 1, guest4, 2, b[:1000], 64, 0)
		p.SendUDP(remote6, 1, guest6, 2, b, 64, 0)
	}
	send()
	if n := testing.AllocsPerRun(100, send); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestBudget(t *testing.T) {
	const ms = eventloop.Time(1_000_000)
	b := Budget{Rate: 100, Burst: 5}
	now := 1000 * ms
	take := func(n int) (got int) {
		for range n {
			if b.Take(now) {
				got++
			}
		}
		return got
	}
	for i, c := range []struct {
		gap        eventloop.Time
		want, have int
	}{
		{0, 9, 5},
		{9 * ms, 9, 0},
		{1 * ms, 9, 1}, // one token every 10 ms, fractions are not lost
		{25 * ms, 9, 2},
		{5 * ms, 9, 1},
		{10000 * ms, 9, 5},
		{-5 * ms, 9, 5}, // a clock that went back cannot lock anybody out
	} {
		now += c.gap
		if got := take(c.want); got != c.have {
			t.Fatalf("step %d: %d tokens, want %d", i, got, c.have)
		}
	}
}

func TestOurAddr(t *testing.T) {
	p, _ := newPort(t, 1500)
	if p.OurAddr(guest4) != p.Gateway4 || p.OurAddr(guest6) != p.OurLL6 {
		t.Error("without a global IPv6 address")
	}
	p.Gateway6 = wire.Addr{0xfd, 0x67, 15: 2}
	if p.OurAddr(guest6) != p.Gateway6 || p.OurAddr(wire.Addr{0xfe, 0x80, 15: 9}) != p.OurLL6 {
		t.Error("with a global IPv6 address")
	}
	if p.IsOurs(wire.Addr{}) || !p.IsOurs(p.Gateway4) || p.IsOurs(guest4) {
		t.Error("IsOurs")
	}
}
