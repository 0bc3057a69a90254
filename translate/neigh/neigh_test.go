package neigh

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

func addr(s string) wire.Addr { return wire.FromNetip(netip.MustParseAddr(s)) }

var (
	guestMAC = wire.MAC{0x02, 0, 0, 0, 0, 0x15}
	ourMAC   = wire.MAC{0x52, 0x55, 0x0a, 0, 0x02, 0x02}
	otherMAC = wire.MAC{0x02, 0xff, 0xff, 0xff, 0xff, 0xff}
)

type bench struct {
	t      testing.TB
	n      *Neighbour
	ep     *linktest.Endpoint
	port   *guest.Port
	timers *eventloop.Wheel
}

func newBench(t testing.TB, change func(*Config)) *bench {
	t.Helper()
	c := Config{
		IPv4: true, IPv6: true, NDP: true, RA: true, DHCPv6: true,
		Net4: netip.MustParsePrefix("10.0.2.0/24"), Net6: netip.MustParsePrefix("fd67:7765:7374::/64"),
		Guest4: addr("10.0.2.15"), Guest6: addr("fd67:7765:7374::15"),
		DNS4: addr("10.0.2.3"), DNS6: addr("fd67:7765:7374::3"),
		RDNSS:  []wire.Addr{addr("fd67:7765:7374::3")},
		Search: func() []string { return []string{"example.com", "corp.example"} },
		MTU:    1500,
		Rand:   func() uint32 { return 0 },
	}
	if change != nil {
		change(&c)
	}
	b := &bench{t: t, ep: linktest.NewEndpoint(t, link.Caps{MTU: 1500}), timers: eventloop.NewWheel(0)}
	b.port = &guest.Port{
		EP: b.ep, Caps: b.ep.Caps(), Up: true, OurMAC: ourMAC,
		Gateway4: addr("10.0.2.2"), Gateway6: addr("fd67:7765:7374::2"), OurLL6: addr("fe80::2"),
	}
	b.n = New(c, b.port, b.timers)
	return b
}

// give parses a frame as the translator does and hands it over.
func (b *bench) give(frame []byte) []linktest.Frame {
	b.t.Helper()
	var p wire.Packet
	f := link.Frame{Len: len(frame), Segs: [][]byte{frame[:7], frame[7:]}}
	if v := wire.Parse(&p, &f); v != wire.OK {
		b.t.Fatalf("wire.Parse: %v", v)
	}
	b.n.Input(&p, &f)
	return b.ep.Take()
}

func serialize(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, l...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func hw(m wire.MAC) net.HardwareAddr { return net.HardwareAddr(m[:]) }

func ip4(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func arpFrame(t testing.TB, op uint16, ethSrc, sender wire.MAC, from, target string) []byte {
	return serialize(t,
		&layers.Ethernet{SrcMAC: hw(ethSrc), DstMAC: hw(wire.Broadcast), EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: 1, Protocol: 0x0800, HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
			SourceHwAddress: sender[:], SourceProtAddress: ip4(from), DstHwAddress: make([]byte, 6), DstProtAddress: ip4(target)})
}

func TestARP(t *testing.T) {
	tests := []struct {
		name   string
		op     uint16
		sender wire.MAC
		from   string
		target string
		answer bool
		drop   Drop
	}{
		{"gateway", 1, guestMAC, "10.0.2.15", "10.0.2.2", true, 0},
		{"forwarder", 1, guestMAC, "10.0.2.15", "10.0.2.3", true, 0},
		{"anything else on the link", 1, guestMAC, "10.0.2.15", "10.0.2.200", true, 0},
		{"guest's own address", 1, guestMAC, "10.0.2.14", "10.0.2.15", false, DropOther},
		{"off the link", 1, guestMAC, "10.0.2.15", "10.0.3.1", false, DropOther},
		{"network address", 1, guestMAC, "10.0.2.15", "10.0.2.0", false, DropOther},
		{"directed broadcast", 1, guestMAC, "10.0.2.15", "10.0.2.255", false, DropOther},
		{"probe for the lease", 1, guestMAC, "0.0.0.0", "10.0.2.15", false, DropOther},
		{"probe for a free address", 1, guestMAC, "0.0.0.0", "10.0.2.77", false, DropOther},
		{"probe for the gateway", 1, guestMAC, "0.0.0.0", "10.0.2.2", true, 0},
		{"announcement", 1, guestMAC, "10.0.2.15", "10.0.2.15", false, NumDrops},
		{"announcement by reply", 2, guestMAC, "10.0.2.15", "10.0.2.15", false, NumDrops},
		{"claim of the gateway", 1, guestMAC, "10.0.2.2", "10.0.2.2", false, DropClaim},
		{"claim of the gateway by reply", 2, guestMAC, "10.0.2.2", "10.0.2.15", false, DropClaim},
		{"claim of the forwarder", 1, guestMAC, "10.0.2.3", "10.0.2.9", false, DropClaim},
		{"foreign hardware address", 1, otherMAC, "10.0.2.15", "10.0.2.2", false, DropFormat},
		{"multicast sender", 1, guestMAC, "224.0.0.1", "10.0.2.2", false, DropFormat},
		{"reverse ARP", 3, guestMAC, "10.0.2.15", "10.0.2.2", false, DropFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			sent := b.give(arpFrame(t, tt.op, guestMAC, tt.sender, tt.from, tt.target))
			var want [NumDrops]uint64
			if !tt.answer && tt.drop < NumDrops {
				want[tt.drop] = 1
			}
			if got := b.n.Stats().Drops; got != want {
				t.Errorf("drops %v, want %v", got, want)
			}
			if !tt.answer {
				if len(sent) != 0 {
					t.Errorf("answered with %d frames", len(sent))
				}
				return
			}
			if len(sent) != 1 {
				t.Fatalf("%d frames, want 1", len(sent))
			}
			if len(sent[0].Data) != 60 {
				t.Errorf("frame of %d bytes, want 60", len(sent[0].Data))
			}
			pkt := gopacket.NewPacket(sent[0].Data, layers.LayerTypeEthernet, gopacket.Default)
			eth := pkt.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
			a := pkt.Layer(layers.LayerTypeARP).(*layers.ARP)
			if eth.DstMAC.String() != guestMAC.String() || eth.SrcMAC.String() != ourMAC.String() {
				t.Errorf("ethernet %s -> %s", eth.SrcMAC, eth.DstMAC)
			}
			if a.Operation != layers.ARPReply || net.IP(a.SourceProtAddress).String() != tt.target ||
				net.HardwareAddr(a.SourceHwAddress).String() != ourMAC.String() ||
				net.IP(a.DstProtAddress).String() != tt.from || net.HardwareAddr(a.DstHwAddress).String() != guestMAC.String() {
				t.Errorf("reply %+v", a)
			}
		})
	}
}

func TestARPHostile(t *testing.T) {
	good := arpFrame(t, 1, guestMAC, guestMAC, "10.0.2.15", "10.0.2.2")[:42]
	tests := []struct {
		name  string
		frame []byte
		drop  Drop
	}{
		{"hardware type", patch(good, 15, 6), DropFormat},
		{"protocol", patch(good, 16, 0x86), DropFormat},
		{"hardware length 255", patch(good, 18, 255), DropFormat},
		{"protocol length 16", patch(good, 19, 16), DropFormat},
		{"operation 0", patch(good, 21, 0), DropFormat},
	}
	for _, tt := range tests {
		b := newBench(t, nil)
		if sent := b.give(tt.frame); len(sent) != 0 || b.n.Stats().Drops[tt.drop] != 1 {
			t.Errorf("%s: %d frames, drops %v", tt.name, len(sent), b.n.Stats().Drops)
		}
	}
	for n := 14; n < 42; n++ {
		b := newBench(t, nil)
		f := link.Frame{Len: n, Segs: [][]byte{good[:n]}}
		var p wire.Packet
		if wire.Parse(&p, &f) != wire.OK {
			continue // refused before it gets here
		}
		b.n.Input(&p, &f)
		if len(b.ep.Take()) != 0 || b.n.Stats().Drops[DropShort] != 1 {
			t.Errorf("%d bytes: drops %v", n, b.n.Stats().Drops)
		}
	}
}

func patch(b []byte, at int, v byte) []byte {
	c := append([]byte(nil), b...)
	c[at] = v
	return c
}

// A flood is answered within the rate, and time brings the rate back.
func TestRateLimit(t *testing.T) {
	b := newBench(t, nil)
	frame := arpFrame(t, 1, guestMAC, guestMAC, "10.0.2.15", "10.0.2.2")
	answers := func(n int) (k int) {
		for range n {
			k += len(b.give(frame))
		}
		return k
	}
	if k := answers(1000); k != burst {
		t.Errorf("%d answers to a flood, want %d", k, burst)
	}
	if d := b.n.Stats().Drops[DropRate]; d != 1000-burst {
		t.Errorf("%d counted, want %d", d, 1000-burst)
	}
	b.timers.Advance(500e6)
	if k := answers(1000); k != 128 {
		t.Errorf("%d answers after half a second, want 128", k)
	}
	b.timers.Advance(3600e9)
	if k := answers(1000); k != burst {
		t.Errorf("%d answers after an hour, want %d", k, burst)
	}
}

func TestLearning(t *testing.T) {
	b := newBench(t, nil)
	give := func(from string) { b.give(arpFrame(t, 1, guestMAC, guestMAC, from, "10.0.2.2")) }
	give("0.0.0.0")
	give("192.0.2.1")
	if !b.port.Addr4.IsZero() || !b.port.MAC.IsZero() {
		t.Errorf("learned from off the link: %v %v", b.port.Addr4, b.port.MAC)
	}
	give("10.0.2.99")
	give("10.0.2.98")
	if b.port.Addr4 != addr("10.0.2.99") || b.port.MAC != guestMAC {
		t.Errorf("learned %v %v", b.port.Addr4, b.port.MAC)
	}
	give("10.0.2.15")
	give("10.0.2.99")
	if b.port.Addr4 != addr("10.0.2.15") {
		t.Errorf("the lease was not preferred: %v", b.port.Addr4)
	}
	b.give(arpFrame(t, 1, otherMAC, otherMAC, "10.0.2.15", "10.0.2.2"))
	if b.port.MAC != guestMAC {
		t.Errorf("a second MAC displaced the first: %v", b.port.MAC)
	}
}

func TestNoRoom(t *testing.T) {
	b := newBench(t, nil)
	b.ep.Room = 0
	b.give(arpFrame(t, 1, guestMAC, guestMAC, "10.0.2.15", "10.0.2.2"))
	if s := b.n.Stats(); s.Drops[DropNoRoom] != 1 || s.ARPReplies != 0 {
		t.Errorf("%+v", s)
	}
}

func TestEach(t *testing.T) {
	b := newBench(t, nil)
	b.give(arpFrame(t, 1, guestMAC, guestMAC, "10.0.2.15", "10.0.2.2"))
	got := map[string]uint64{}
	b.n.Each(func(name string, v uint64) { got[name] = v })
	if got["arp_replies"] != 1 || len(got) != 4+int(NumDrops) {
		t.Errorf("%v", got)
	}
}

// TestLinkUpWithoutBuffers: a Linux driver says that it is there before its
// interface is up and posts buffers only then.
func TestLinkUpWithoutBuffers(t *testing.T) {
	r := newBench(t, nil)
	r.ep.Take()
	r.ep.Room = 0
	r.n.LinkUp()
	r.ep.Room = 1000
	r.n.Writable()
	var adverts int
	for _, f := range r.ep.Take() {
		p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
		if l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && l.TypeCode.Type() == layers.ICMPv6TypeRouterAdvertisement {
			adverts++
		}
	}
	if adverts != 1 {
		t.Errorf("%d router advertisements once there is room, want 1", adverts)
	}
	r.n.Writable()
	if more := r.ep.Take(); len(more) != 0 {
		t.Errorf("%d frames more for nothing", len(more))
	}
	// One buffer at a time: what takes the last one must not ask for the next.
	r.n.LinkUp()
	r.ep.Take()
	for range 20 {
		r.ep.Room = 1
		r.n.Writable()
	}
	if got := r.ep.Take(); len(got) > 2 {
		t.Errorf("%d frames for a guest that posts single buffers", len(got))
	}
}
