package udp

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

const ms = eventloop.Time(1_000_000)

var (
	guestMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	ourMAC   = wire.MAC{0x52, 0x55, 10, 0, 2, 2}
	guest4   = addr("10.0.2.15")
	guest6   = addr("fd67:7765:7374::15")
	gate4    = addr("10.0.2.2")
	gate6    = addr("fd67:7765:7374::2")
	remote4  = addr("192.0.2.7")
	remote6  = addr("2001:db8::7")
	banned4  = addr("169.254.169.254")
	mapped4  = addr("10.0.2.100") // the host's loopback
)

func addr(s string) wire.Addr { return wire.FromNetip(netip.MustParseAddr(s)) }

// world is a Policy.
type world struct{}

func (world) Outbound(proto uint8, dst wire.Addr, port uint16) (netip.AddrPort, forward.Verdict) {
	switch dst {
	case banned4:
		return netip.AddrPort{}, forward.RefuseMetadata
	case gate4, gate6:
		return netip.AddrPort{}, forward.RefuseGateway
	case mapped4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), forward.Allow
	}
	return dst.AddrPort(port), forward.Allow
}

func (world) InboundSource(peer netip.AddrPort) wire.Addr {
	if peer.Addr().IsLoopback() {
		if peer.Addr().Is4() {
			return gate4
		}
		return gate6
	}
	return wire.FromNetip(peer.Addr())
}

// rig is an engine between a guest and a kernel, both of memory.
type rig struct {
	t     testing.TB
	k     *hostsocktest.Kernel
	ep    *linktest.Endpoint
	port  *guest.Port
	wheel *eventloop.Wheel
	flows *flow.Table
	e     *Engine
	now   eventloop.Time
}

func newRig(t testing.TB, c Config, caps link.Caps) *rig {
	r := &rig{t: t, k: hostsocktest.New(t), ep: linktest.NewEndpoint(t, caps), wheel: eventloop.NewWheel(0)}
	r.port = &guest.Port{
		EP: r.ep, Caps: r.ep.Caps(), Up: true, MAC: guestMAC, OurMAC: ourMAC,
		Addr4: guest4, Addr6: guest6, Gateway4: gate4, Gateway6: gate6, OurLL6: addr("fe80::2"), Timers: r.wheel,
	}
	r.flows = flow.NewTable(4096, [16]byte{1})
	r.e = New(c, Deps{Port: r.port, Host: r.k, Timers: r.wheel, Flows: r.flows, Policy: world{}})
	return r
}

// advance moves time on in steps, so that timers run when they should.
func (r *rig) advance(d eventloop.Time) {
	for end := r.now + d; r.now < end; {
		r.now = min(r.now+100*ms, end)
		r.wheel.Advance(r.now)
	}
}

// dgram says what the guest sends.
type dgram struct {
	dst          wire.Addr
	sport, dport uint16
	data         []byte
	ttl, tos     uint8
	gso          int
}

// frame builds d with gopacket, split so that headers and payload lie apart.
func (d dgram) frame(t testing.TB) *link.Frame {
	t.Helper()
	if d.ttl == 0 {
		d.ttl = 64
	}
	u := &layers.UDP{SrcPort: layers.UDPPort(d.sport), DstPort: layers.UDPPort(d.dport)}
	e := &layers.Ethernet{SrcMAC: guestMAC[:], DstMAC: ourMAC[:], EthernetType: layers.EthernetTypeIPv4}
	var l3 gopacket.NetworkLayer
	if d.dst.Is4() {
		l3 = &layers.IPv4{Version: 4, TTL: d.ttl, TOS: d.tos, Protocol: layers.IPProtocolUDP, SrcIP: guest4[12:], DstIP: d.dst[12:]}
	} else {
		e.EthernetType = layers.EthernetTypeIPv6
		l3 = &layers.IPv6{Version: 6, HopLimit: d.ttl, TrafficClass: d.tos, NextHeader: layers.IPProtocolUDP, SrcIP: guest6[:], DstIP: d.dst[:]}
	}
	_ = u.SetNetworkLayerForChecksum(l3)
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, e, l3.(gopacket.SerializableLayer), u, gopacket.Payload(d.data)); err != nil {
		t.Fatal(err)
	}
	data := append([]byte(nil), b.Bytes()...)
	h := min(len(data), 60)
	f := &link.Frame{Len: len(data), Segs: [][]byte{data[:30:30], data[30:h:h], data[h:]}}
	if d.gso > 0 {
		start := 34
		if !d.dst.Is4() {
			start = 54
		}
		f.Off = link.Offload{GSO: link.GSOUDP, SegSize: uint16(d.gso), NeedsCsum: true, CsumStart: uint16(start), CsumOff: 6}
	}
	return f
}

// send gives one batch to the engine and then takes the frames' memory away.
func (r *rig) send(ds ...dgram) {
	r.t.Helper()
	var frames []*link.Frame
	for _, d := range ds {
		frames = append(frames, d.frame(r.t))
	}
	for _, f := range frames {
		r.input(f)
	}
	r.e.EndBatch()
	for _, f := range frames {
		for _, s := range f.Segs {
			clear(s)
		}
	}
}

func (r *rig) input(f *link.Frame) {
	r.t.Helper()
	var p wire.Packet
	if v := wire.Parse(&p, f); v != wire.OK {
		r.t.Fatalf("parse: %v", v)
	}
	r.e.Input(&p, f)
}

// to is a datagram of n bytes to remote4.
func to(dport uint16, n int) dgram {
	return dgram{dst: remote4, sport: 40000, dport: dport, data: pattern(n)}
}

// from returns the host socket that talks to a.
func (r *rig) from(a netip.AddrPort) hostsock.FD {
	r.t.Helper()
	for _, fd := range r.k.FDs() {
		if r.k.Remote(fd) == a {
			return fd
		}
	}
	r.t.Fatalf("no socket to %v", a)
	return hostsock.None
}

func (r *rig) stat(name string) (v uint64) {
	found := false
	r.e.Each(func(n string, x uint64) {
		if n == name {
			v, found = x, true
		}
	})
	if !found {
		r.t.Fatalf("no counter %q", name)
	}
	return v
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8 + n)
	}
	return b
}

// rxd is a datagram as the guest's own stack would read it.
type rxd struct {
	src, dst     wire.Addr
	sport, dport uint16
	ttl, tos     uint8
	data         []byte
	gso          int
}

// read takes what the guest got, IP and UDP checked by gopacket.
func (r *rig) read() (out []rxd) {
	r.t.Helper()
	for _, f := range r.ep.Take() {
		out = append(out, decode(r.t, f))
	}
	return out
}

func decode(t testing.TB, f linktest.Frame) (d rxd) {
	t.Helper()
	g := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
	if ip, ok := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		d.src, d.dst, d.ttl, d.tos = wire.Addr4([4]byte(ip.SrcIP.To4())), wire.Addr4([4]byte(ip.DstIP.To4())), ip.TTL, ip.TOS
	} else if ip, ok := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ok {
		d.src, d.dst, d.ttl, d.tos = wire.Addr(ip.SrcIP), wire.Addr(ip.DstIP), ip.HopLimit, ip.TrafficClass
	}
	u, ok := g.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		t.Fatalf("not UDP:\n%v", g)
	}
	d.sport, d.dport, d.data, d.gso = uint16(u.SrcPort), uint16(u.DstPort), u.Payload, int(f.Off.SegSize)
	if int(u.Length) != len(u.Payload)+8 || g.Metadata().Truncated {
		t.Fatalf("UDP length %d, payload %d", u.Length, len(u.Payload))
	}
	if f.Off.NeedsCsum {
		// The field holds the pseudo header's sum (virtio 1.3 5.1.6.2).
		want := wire.Fold(wire.PseudoHeader(d.src, d.dst, wire.ProtoUDP, int(u.Length)))
		if u.Checksum != want || int(f.Off.CsumStart)+8 != len(f.Data)-len(u.Payload) || f.Off.CsumOff != 6 {
			t.Fatalf("offload %+v, field %04x, want %04x", f.Off, u.Checksum, want)
		}
		return d
	}
	_ = u.SetNetworkLayerForChecksum(g.NetworkLayer())
	if errs, bad := g.VerifyChecksums(); errs != nil || len(bad) > 0 || u.Checksum == 0 {
		t.Fatalf("checksums %v %v\n%v", errs, bad, g)
	}
	return d
}

func same(t testing.TB, got [][]byte, want ...[]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d datagrams, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("datagram %d: %d bytes, want %d, or other bytes", i, len(got[i]), len(want[i]))
		}
	}
}

func payloads(ds []rxd) (out [][]byte) {
	for _, d := range ds {
		out = append(out, d.data)
	}
	return out
}
