package icmp

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

var (
	guestMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	ourMAC   = wire.MAC{0x52, 0x55, 10, 0, 2, 2}
	guest4   = addr("10.0.2.15")
	guest6   = addr("fd67:7765:7374::15")
	gate4    = addr("10.0.2.2")
	gate6    = addr("fd67:7765:7374::2")
	gateLL   = addr("fe80::2")
	remote4  = addr("192.0.2.7")
	remote6  = addr("2001:db8::7")
	router4  = netip.MustParseAddr("198.51.100.1")
	router6  = netip.MustParseAddr("2001:db8:1::1")
)

func addr(s string) wire.Addr { return wire.FromNetip(netip.MustParseAddr(s)) }

func newPort(t testing.TB) (*guest.Port, *linktest.Endpoint) {
	ep := linktest.NewEndpoint(t, link.Caps{MTU: 1500})
	return &guest.Port{
		EP: ep, Caps: ep.Caps(), Up: true, MAC: guestMAC, OurMAC: ourMAC,
		Addr4: guest4, Addr6: guest6, Gateway4: gate4, Gateway6: gate6, OurLL6: gateLL,
	}, ep
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8)
	}
	return b
}

// packet is a frame of the guest with l4 over the IP version of dst.
func packet(t testing.TB, src, dst wire.Addr, proto layers.IPProtocol, ttl uint8, ls ...gopacket.SerializableLayer) *link.Frame {
	t.Helper()
	e := &layers.Ethernet{SrcMAC: guestMAC[:], DstMAC: ourMAC[:], EthernetType: layers.EthernetTypeIPv4}
	var l3 gopacket.SerializableLayer
	if dst.Is4() {
		l3 = &layers.IPv4{Version: 4, TTL: ttl, Id: 99, Protocol: proto, SrcIP: src[12:], DstIP: dst[12:]}
	} else {
		e.EthernetType = layers.EthernetTypeIPv6
		l3 = &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: src[:], DstIP: dst[:]}
	}
	if c, ok := ls[0].(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		_ = c.SetNetworkLayerForChecksum(l3.(gopacket.NetworkLayer))
	}
	b := gopacket.NewSerializeBuffer()
	all := append([]gopacket.SerializableLayer{e, l3}, ls...)
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	data := append([]byte(nil), b.Bytes()...)
	return &link.Frame{Len: len(data), Segs: [][]byte{data[:50], data[50:]}}
}

func udpPacket(t testing.TB, src, dst wire.Addr, ttl uint8, n int) *link.Frame {
	return packet(t, src, dst, layers.IPProtocolUDP, ttl, &layers.UDP{SrcPort: 40000, DstPort: 5000}, gopacket.Payload(pattern(n)))
}

func parse(t testing.TB, f *link.Frame) *wire.Packet {
	t.Helper()
	var p wire.Packet
	if v := wire.Parse(&p, f); v != wire.OK {
		t.Fatalf("parse: %v", v)
	}
	return &p
}

func flat(f *link.Frame) []byte { return bytes.Join(f.Segs, nil) }

// icmpError reads one error frame with gopacket, checksums verified.
func icmpError(t *testing.T, f linktest.Frame) (from wire.Addr, typ, code uint8, info uint32, quote []byte) {
	t.Helper()
	g := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
	for _, l := range g.Layers() {
		if c, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			_ = c.SetNetworkLayerForChecksum(g.NetworkLayer())
		}
	}
	if errs, bad := g.VerifyChecksums(); errs != nil || len(bad) > 0 {
		t.Fatalf("checksums %v %v\n%v", errs, bad, g)
	}
	var body []byte
	if ip, ok := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		if ip.Length > 576 || wire.FromNetip(netip.AddrFrom4([4]byte(ip.DstIP.To4()))) != guest4 {
			t.Fatalf("%+v", ip)
		}
		ic := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		typ, code, body = ic.TypeCode.Type(), ic.TypeCode.Code(), ip.Payload
		from = wire.Addr4([4]byte(ip.SrcIP.To4()))
	} else {
		ip := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		if ip.Length+40 > 1280 || wire.Addr(ip.DstIP) != guest6 {
			t.Fatalf("%+v", ip)
		}
		ic := g.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		typ, code, body = ic.TypeCode.Type(), ic.TypeCode.Code(), ip.Payload
		from = wire.Addr(ip.SrcIP)
	}
	return from, typ, code, uint32(body[4])<<24 | uint32(body[5])<<16 | uint32(body[6])<<8 | uint32(body[7]), body[8:]
}

func TestUnreachableTypes(t *testing.T) {
	for _, c := range []struct {
		why        Reason
		t4, c4     uint8
		t6, c6     uint8
		fromTarget bool
	}{
		{NetUnreachable, 3, 0, 1, 0, false},
		{HostUnreachable, 3, 1, 1, 3, false},
		{ProtoUnreachable, 3, 2, 4, 1, true},
		{PortUnreachable, 3, 3, 1, 4, true},
		{AdminProhibited, 3, 13, 1, 1, false},
		{HopsExceeded, 11, 0, 3, 0, false},
	} {
		port, ep := newPort(t)
		for _, v6 := range []bool{false, true} {
			src, dst, gate, typ, code := guest4, remote4, gate4, c.t4, c.c4
			if v6 {
				src, dst, gate, typ, code = guest6, remote6, gate6, c.t6, c.c6
			}
			if c.fromTarget {
				gate = dst
			}
			f := udpPacket(t, src, dst, 64, 300)
			if !Unreachable(port, parse(t, f), f, c.why) {
				t.Fatalf("%d: not sent", c.why)
			}
			from, gt, gc, _, quote := icmpError(t, ep.Take()[0])
			if from != gate || gt != typ || gc != code || !bytes.Equal(quote, flat(f)[14:]) {
				t.Errorf("reason %d v6 %v: from %v type %d code %d, quote of %d bytes", c.why, v6, from, gt, gc, len(quote))
			}
		}
	}
}

// TestQuoteBounds: as much as fits, and what Head holds when the frame is gone.
func TestQuoteBounds(t *testing.T) {
	port, ep := newPort(t)
	for _, c := range []struct {
		src, dst wire.Addr
		n        int
		gone     bool
		want     int
	}{
		{guest4, remote4, 1400, false, 548},
		{guest6, remote6, 1400, false, 1232},
		{guest4, remote4, 1400, true, 114},
		{guest4, remote4, 0, false, 28}, // not the padding
		{guest4, remote4, 0, true, 28},
	} {
		f := udpPacket(t, c.src, c.dst, 64, c.n)
		p := parse(t, f)
		whole := flat(f)
		if c.gone {
			f = nil
		}
		if !Unreachable(port, p, f, HostUnreachable) {
			t.Fatal("not sent")
		}
		_, _, _, _, quote := icmpError(t, ep.Take()[0])
		if len(quote) != c.want || !bytes.Equal(quote, whole[14:14+c.want]) {
			t.Errorf("%+v: quote of %d bytes", c, len(quote))
		}
	}
}

func TestTooBigAndHop(t *testing.T) {
	port, ep := newPort(t)
	for _, v6 := range []bool{false, true} {
		src, dst, gate := guest4, remote4, gate4
		typ, code := uint8(3), uint8(4)
		if v6 {
			src, dst, gate, typ, code = guest6, remote6, gate6, 2, 0
		}
		f := udpPacket(t, src, dst, 64, 1400)
		if !TooBig(port, parse(t, f), f, 1300) {
			t.Fatal("not sent")
		}
		if from, gt, gc, info, _ := icmpError(t, ep.Take()[0]); from != gate || gt != typ || gc != code || info != 1300 {
			t.Errorf("too big: from %v type %d code %d mtu %d", from, gt, gc, info)
		}
		for _, c := range []struct {
			ttl, want uint8
			ok        bool
		}{{64, 63, true}, {2, 1, true}, {1, 0, false}, {0, 0, false}} {
			f := udpPacket(t, src, dst, c.ttl, 10)
			ttl, ok := Hop(port, parse(t, f), f)
			if ttl != c.want || ok != c.ok || (len(ep.Sent) == 0) != ok {
				t.Errorf("ttl %d: %d %v, %d messages", c.ttl, ttl, ok, len(ep.Sent))
			}
			ep.Reset()
		}
	}
}

// TestNeverAnswered lists what no error may be sent about.
func TestNeverAnswered(t *testing.T) {
	port, ep := newPort(t)
	frag := udpPacket(t, guest4, remote4, 64, 64)
	late := parse(t, frag)
	late.Frag, late.FragOff = true, 8
	group := parse(t, udpPacket(t, guest4, remote4, 64, 64))
	group.EthDst = wire.Broadcast
	for name, p := range map[string]*wire.Packet{
		"multicast":             parse(t, udpPacket(t, guest4, addr("224.0.0.251"), 64, 10)),
		"multicast v6":          parse(t, udpPacket(t, guest6, addr("ff02::fb"), 64, 10)),
		"broadcast":             parse(t, udpPacket(t, guest4, addr("255.255.255.255"), 64, 10)),
		"unspecified source":    parse(t, udpPacket(t, addr("0.0.0.0"), remote4, 64, 10)),
		"unspecified source v6": parse(t, udpPacket(t, addr("::"), remote6, 64, 10)),
		"later fragment":        late,
		"link broadcast":        group,
		"ICMP error":            parse(t, packet(t, guest4, remote4, layers.IPProtocolICMPv4, 64, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(pattern(40)))),
		"ICMPv6 error":          parse(t, packet(t, guest6, remote6, layers.IPProtocolICMPv6, 64, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}, gopacket.Payload(pattern(44)))),
	} {
		if Unreachable(port, p, nil, HostUnreachable) || len(ep.Take()) != 0 {
			t.Errorf("%s: answered", name)
		}
	}
}

func TestRateLimit(t *testing.T) {
	port, ep := newPort(t)
	port.Timers = eventloop.NewWheel(0)
	f := udpPacket(t, guest4, remote4, 64, 10)
	p := parse(t, f)
	for range 1000 {
		Unreachable(port, p, f, PortUnreachable)
	}
	if ep.Count != guest.DefaultBurst {
		t.Fatalf("%d errors at once", ep.Count)
	}
	port.Timers.Advance(1e9)
	for range 1000 {
		Report(port, &Quote{Src: guest4, Dst: remote4, Proto: 17}, &Error{Type: 3})
	}
	if ep.Count != 2*guest.DefaultBurst {
		t.Fatalf("%d errors after a second", ep.Count)
	}
}

// TestReportQuotes: a quote that is made up reads like the packet it stands for.
func TestReportQuotes(t *testing.T) {
	port, ep := newPort(t)
	for _, v6 := range []bool{false, true} {
		src, dst := guest4, remote4
		first := layers.LayerTypeIPv4
		icmpProto := uint8(wire.ProtoICMP)
		if v6 {
			src, dst, first, icmpProto = guest6, remote6, layers.LayerTypeIPv6, wire.ProtoICMPv6
		}
		for _, q := range []Quote{
			{Src: src, Dst: dst, Proto: wire.ProtoTCP, SrcPort: 40000, DstPort: 443, Seq: 0xdeadbeef},
			{Src: src, Dst: dst, Proto: wire.ProtoUDP, SrcPort: 40000, DstPort: 33434, Data: pattern(32)},
			{Src: src, Dst: dst, Proto: icmpProto, SrcPort: 77, DstPort: 5, Data: pattern(56)},
		} {
			if !ReportReason(port, &q, HostUnreachable) {
				t.Fatal("not sent")
			}
			_, _, _, _, quote := icmpError(t, ep.Take()[0])
			g := gopacket.NewPacket(quote, first, gopacket.Default)
			for _, l := range g.Layers() {
				if c, ok := l.(interface {
					SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
				}); ok {
					_ = c.SetNetworkLayerForChecksum(g.NetworkLayer())
				}
			}
			if errs, bad := g.VerifyChecksums(); q.Proto != wire.ProtoTCP && (errs != nil || len(bad) > 0) {
				t.Errorf("proto %d v6 %v: checksums %v %v\n%v", q.Proto, v6, errs, bad, g)
			}
			checkQuote(t, g, &q, v6)
		}
	}
}

func checkQuote(t *testing.T, g gopacket.Packet, q *Quote, v6 bool) {
	t.Helper()
	switch q.Proto {
	case wire.ProtoTCP:
		l := g.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if l.SrcPort != 40000 || l.DstPort != 443 || l.Seq != 0xdeadbeef {
			t.Errorf("TCP quote: %+v", l)
		}
	case wire.ProtoUDP:
		l := g.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if l.SrcPort != 40000 || l.DstPort != 33434 || !bytes.Equal(l.Payload, q.Data) {
			t.Errorf("UDP quote: %+v", l)
		}
	case wire.ProtoICMP:
		l := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if l.TypeCode != layers.CreateICMPv4TypeCode(8, 0) || l.Id != 77 || l.Seq != 5 || !bytes.Equal(l.Payload, q.Data) {
			t.Errorf("echo quote: %+v", l)
		}
	default:
		l := g.Layer(layers.LayerTypeICMPv6Echo).(*layers.ICMPv6Echo)
		if !v6 || l.Identifier != 77 || l.SeqNumber != 5 {
			t.Errorf("echo quote: %+v", l)
		}
	}
}

func TestRelay(t *testing.T) {
	host4, host6 := remote4.ToNetip(), remote6.ToNetip()
	loop := netip.MustParseAddr("127.0.0.1")
	mapped := addr("10.0.2.100")
	for _, c := range []struct {
		name      string
		dst       wire.Addr
		host      netip.Addr
		se        hostsock.SockErr
		sent      bool
		from      wire.Addr
		typ, code uint8
		info      uint32
	}{
		{"port unreachable", remote4, host4, hostsock.SockErr{Type: 3, Code: 3, Offender: host4}, true, remote4, 3, 3, 0},
		{"time exceeded on the way", remote4, host4, hostsock.SockErr{Type: 11, Offender: router4}, true, wire.FromNetip(router4), 11, 0, 0},
		{"time exceeded v6", remote6, host6, hostsock.SockErr{V6: true, Type: 3, Offender: router6}, true, wire.FromNetip(router6), 3, 0, 0},
		{"fragmentation needed", remote4, host4, hostsock.SockErr{Type: 3, Code: 4, MTU: 1400, Offender: router4}, true, wire.FromNetip(router4), 3, 4, 1400},
		{"too big", remote6, host6, hostsock.SockErr{V6: true, Type: 2, MTU: 1300, Offender: router6}, true, wire.FromNetip(router6), 2, 0, 1300},
		{"redirect", remote4, host4, hostsock.SockErr{Type: 5, Code: 1, Offender: router4}, false, wire.Addr{}, 0, 0, 0},
		{"source quench", remote4, host4, hostsock.SockErr{Type: 4, Offender: router4}, false, wire.Addr{}, 0, 0, 0},
		{"neighbour advertisement", remote6, host6, hostsock.SockErr{V6: true, Type: 136, Offender: router6}, false, wire.Addr{}, 0, 0, 0},
		{"mapped loopback refuses", mapped, loop, hostsock.SockErr{Type: 3, Code: 3, Offender: loop}, true, mapped, 3, 3, 0},
		{"loopback about another", remote4, host4, hostsock.SockErr{Type: 3, Code: 1, Offender: loop}, true, gate4, 3, 1, 0},
		{"unknown sender", remote4, host4, hostsock.SockErr{Type: 3, Code: 1}, true, gate4, 3, 1, 0},
		{"local, no route", remote4, host4, hostsock.SockErr{Local: true, Errno: syscall.ENETUNREACH}, true, gate4, 3, 0, 0},
		{"local, too long", remote4, host4, hostsock.SockErr{Local: true, Errno: syscall.EMSGSIZE, MTU: 1400}, true, gate4, 3, 4, 1400},
		{"local, too long for unknown reasons", remote4, host4, hostsock.SockErr{Local: true, Errno: syscall.EMSGSIZE}, false, wire.Addr{}, 0, 0, 0},
		{"local, out of memory", remote4, host4, hostsock.SockErr{Local: true, Errno: syscall.ENOMEM}, false, wire.Addr{}, 0, 0, 0},
		{"host side speaks IPv6", remote4, host6, hostsock.SockErr{V6: true, Type: 1, Code: 4, Errno: syscall.ECONNREFUSED, Offender: host6}, true, remote4, 3, 3, 0},
	} {
		port, ep := newPort(t)
		q := Quote{Src: guest4, Dst: c.dst, Proto: wire.ProtoUDP, SrcPort: 40000, DstPort: 5000, Data: pattern(20)}
		if !c.dst.Is4() {
			q.Src = guest6
		}
		sent := Relay(port, &q, &c.se, c.host)
		if sent != c.sent || (ep.Count == 1) != c.sent {
			t.Errorf("%s: sent %v", c.name, sent)
			continue
		}
		if !sent {
			continue
		}
		if from, typ, code, info, _ := icmpError(t, ep.Take()[0]); from != c.from || typ != c.typ || code != c.code || info != c.info {
			t.Errorf("%s: from %v type %d code %d info %d", c.name, from, typ, code, info)
		}
	}
}

func TestErrorsNoAlloc(t *testing.T) {
	port, ep := newPort(t)
	ep.Discard = true
	f := udpPacket(t, guest6, remote6, 64, 1400)
	p := parse(t, f)
	q := Quote{Src: guest4, Dst: remote4, Proto: wire.ProtoUDP, Data: pattern(20)}
	se := hostsock.SockErr{Type: 3, Code: 3, Offender: router4}
	send := func() {
		Unreachable(port, p, f, PortUnreachable)
		Relay(port, &q, &se, remote4.ToNetip())
	}
	send()
	if n := testing.AllocsPerRun(100, send); n != 0 || ep.Count < 200 {
		t.Fatalf("%v allocations, %d sent", n, ep.Count)
	}
}
