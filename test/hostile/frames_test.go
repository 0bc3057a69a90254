package hostile

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	guestMAC = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	ourMAC   = net.HardwareAddr{0x52, 0x55, 10, 0, 2, 2}
	guestIP  = net.IP{10, 0, 2, 15}
	gateway  = net.IP{10, 0, 2, 2}
)

// frame puts layers together behind an Ethernet header, with lengths and
// checksums.
func frame(t *testing.T, typ layers.EthernetType, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	return assemble(t, true, append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: guestMAC, DstMAC: ourMAC, EthernetType: typ}}, ls...)...)
}

func assemble(t *testing.T, fix bool, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: fix, ComputeChecksums: fix}, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

func ip4(proto layers.IPProtocol, src, dst net.IP) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: proto, SrcIP: src, DstIP: dst}
}

// udp is a datagram from port 4000 of src.
func udp(t *testing.T, src, dst net.IP, port uint16, data []byte) []byte {
	t.Helper()
	return udpFrom(t, src, 4000, dst, port, data)
}

func udpFrom(t *testing.T, src net.IP, sport uint16, dst net.IP, port uint16, data []byte) []byte {
	t.Helper()
	n := ip(layers.IPProtocolUDP, src, dst)
	u := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(port)}
	_ = u.SetNetworkLayerForChecksum(n)
	return frame(t, familyOf(dst).typ, n, u, gopacket.Payload(data))
}

// tcp is a segment from the guest to dst; change sets flags, options, numbers.
func tcp(t *testing.T, dst net.IP, sport, dport uint16, data []byte, change func(*layers.TCP)) []byte {
	t.Helper()
	return tcpFrom(t, familyOf(dst).guest, dst, sport, dport, data, change)
}

func tcpFrom(t *testing.T, src, dst net.IP, sport, dport uint16, data []byte, change func(*layers.TCP)) []byte {
	t.Helper()
	n := ip(layers.IPProtocolTCP, src, dst)
	s := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Window: 65535}
	change(s)
	_ = s.SetNetworkLayerForChecksum(n)
	return frame(t, familyOf(dst).typ, n, s, gopacket.Payload(data))
}

// ping checks that the gateway answers an echo request: the whole way through
// rings, parser, translator and back.
func (g *guest) ping() {
	g.t.Helper()
	g.receive() // room for the reply: a full ring drops it
	g.ipid++
	id := g.ipid
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: id, Seq: 1}
	g.send(frame(g.t, layers.EthernetTypeIPv4, ip4(layers.IPProtocolICMPv4, guestIP, gateway), echo, gopacket.Payload("alive?")))
	g.await("an echo reply", func(f []byte) bool {
		l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		return ok && l.TypeCode.Type() == layers.ICMPv4TypeEchoReply && l.Id == id
	})
}

// segment returns the TCP segment in a frame to guest port, or nil.
func segment(f []byte, port uint16) *layers.TCP {
	s, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || uint16(s.DstPort) != port {
		return nil
	}
	return s
}

// awaitSegment waits for a segment to guest port that fits.
func (g *guest) awaitSegment(what string, port uint16, fits func(*layers.TCP) bool) *layers.TCP {
	g.t.Helper()
	f := g.await(what, func(f []byte) bool { s := segment(f, port); return s != nil && fits(s) })
	return segment(f, port)
}

func isRST(s *layers.TCP) bool { return s.RST }
func isACK(s *layers.TCP) bool { return s.ACK && !s.SYN && !s.RST && !s.FIN && len(s.Payload) == 0 }

// icmpError returns type and code of an ICMP or ICMPv6 error, and what it quotes
// of the L4 packet; type -1 if f is none.
func icmpError(f []byte) (typ, code int, quote []byte) {
	switch {
	case len(f) >= 14+20+8+20 && f[12] == 8 && f[13] == 0 && f[23] == 1 && (f[34] == 3 || f[34] == 11 || f[34] == 12):
		return int(f[34]), int(f[35]), f[42+int(f[42]&15)*4:]
	case len(f) >= 14+40+8+40 && f[12] == 0x86 && f[13] == 0xdd && f[20] == 58 && f[54] < 128:
		return int(f[54]), int(f[55]), f[62+40:]
	}
	return -1, 0, nil
}

func isUnreachable(f []byte) bool {
	typ, _, _ := icmpError(f)
	return typ == 1 || typ == 3
}
