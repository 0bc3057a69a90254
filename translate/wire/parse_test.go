package wire

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/vnet/link"
)

func TestParseFields(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		l3 := map[bool]int{false: 20, true: 40}[v6]
		data := l4over(t, v6, layers.IPProtocolTCP, tcpLayer(), payload(37))
		for _, f := range cuttings(data) {
			var p Packet
			if v := Parse(&p, f); v != OK {
				t.Fatalf("v6 %v: %v", v6, v)
			}
			if p.EthSrc != guestMAC || p.EthDst != ourMAC || p.V6 != v6 || p.Proto != ProtoTCP || p.TTL != 61 || p.TOS != 0x28 {
				t.Fatalf("headers: %+v", p)
			}
			wantSrc, wantDst, wantID := guest4, remote4, uint32(0x1234)
			if v6 {
				wantSrc, wantDst, wantID = guest6, remote6, 0
			}
			if p.Src != wantSrc || p.Dst != wantDst || p.ID != wantID || p.Frag || !p.DontFrag {
				t.Fatalf("L3: %+v", p)
			}
			hl := 20 + 20
			if p.L3Len != l3 || p.L4Off != 14+l3 || p.PayloadOff != 14+l3+hl || p.PayloadLen != 37 || p.L4Len() != hl+37 || p.End() != len(data) {
				t.Fatalf("offsets: %+v", p)
			}
			want := TCPHeader{
				Seq: 0xfffffff0, Ack: 77, Flags: SYN | ACK | ECE, Window: 4321,
				MSS: 1460, WScale: 9, SACKPermitted: true, TS: true, TSVal: 256, TSEcr: 5,
			}
			if p.SrcPort != 40001 || p.DstPort != 443 || p.TCP != want {
				t.Fatalf("TCP: %d %d %+v", p.SrcPort, p.DstPort, p.TCP)
			}
			if !bytes.Equal(p.Head[:p.HeadLen], data[:min(len(data), HeadSize)]) {
				t.Fatal("Head differs from the frame")
			}
		}
	}
}

func TestParseSACK(t *testing.T) {
	var p Packet
	if v := Parse(&p, frame(l4over(t, false, layers.IPProtocolTCP, sackLayer()))); v != OK {
		t.Fatal(v)
	}
	if p.TCP.NSACK != 2 || p.TCP.SACK[0] != [2]Seq{10, 20} || p.TCP.SACK[1] != [2]Seq{0xffffffff, 9} || p.TCP.WScale != -1 || p.TCP.MSS != 0 || p.TCP.TS {
		t.Fatalf("%+v", p.TCP)
	}
}

func TestParseUDPAndICMP(t *testing.T) {
	udp := &layers.UDP{SrcPort: 5000, DstPort: 53}
	echo4 := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 77, Seq: 5}
	for _, n := range []int{0, 1, 2, 9, 200} {
		for _, v6 := range []bool{false, true} {
			for i, f := range cuttings(l4over(t, v6, layers.IPProtocolUDP, udp, payload(n))) {
				var p Packet
				if v := Parse(&p, f); v != OK || p.SrcPort != 5000 || p.DstPort != 53 || p.PayloadLen != n {
					t.Fatalf("udp v6 %v len %d cutting %d: %v %+v", v6, n, i, v, p)
				}
			}
		}
		for _, f := range cuttings(l4over(t, false, layers.IPProtocolICMPv4, echo4, payload(n))) {
			var p Packet
			if v := Parse(&p, f); v != OK || !p.IsEcho() || p.SrcPort != 77 || p.ICMPSeq != 5 || p.PayloadLen != n {
				t.Fatalf("echo len %d: %v %+v", n, v, p)
			}
		}
		data := l4over(t, true, layers.IPProtocolICMPv6, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)},
			&layers.ICMPv6Echo{Identifier: 78, SeqNumber: 6}, payload(n))
		for _, f := range cuttings(data) {
			var p Packet
			if v := Parse(&p, f); v != OK || !p.IsEcho() || p.SrcPort != 78 || p.ICMPSeq != 6 || p.PayloadLen != n {
				t.Fatalf("echo6 len %d: %v %+v", n, v, p)
			}
		}
	}
}

// TestParseARP: everything that neigh needs is in Head.
func TestParseARP(t *testing.T) {
	data := serialize(t, eth(layers.EthernetTypeARP), &layers.ARP{
		AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
		SourceHwAddress: guestMAC[:], SourceProtAddress: []byte{10, 0, 2, 15},
		DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 0, 2, 2},
	})
	var p Packet
	if v := Parse(&p, frame(data, 20)); v != OK || p.EtherType != EtherARP || p.L4Off != 14 || p.HeadLen != len(data) {
		t.Fatalf("%v %+v", v, p)
	}
}

// TestParseTrimsPadding: a frame padded to Ethernet's 60 bytes ends where IP says.
func TestParseTrimsPadding(t *testing.T) {
	data := l4over(t, false, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(3))
	data = append(data, 0xaa, 0xbb, 0xcc, 0xdd)
	f := frame(data)
	var p Packet
	if v := Parse(&p, f); v != OK || p.PayloadLen != 3 || p.End() != 14+20+8+3 {
		t.Fatalf("%v %+v", v, p)
	}
	got := Payload(nil, f, p.PayloadOff, p.PayloadLen)
	if !bytes.Equal(bytes.Join(got, nil), payload(3)) {
		t.Fatalf("payload %x", got)
	}
}

func TestParseIPv4Options(t *testing.T) {
	h := ip4(layers.IPProtocolUDP)
	h.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}, {OptionType: 1}}
	u := &layers.UDP{SrcPort: 1, DstPort: 2}
	_ = u.SetNetworkLayerForChecksum(h)
	data := serialize(t, eth(layers.EthernetTypeIPv4), h, u, payload(4))
	var p Packet
	if v := Parse(&p, frame(data)); v != OK || p.L3Len != 28 || p.DstPort != 2 || p.PayloadLen != 4 {
		t.Fatalf("%v %+v", v, p)
	}
}

// ext prefixes an IPv6 payload with raw extension headers.
func ext(t *testing.T, first uint8, headers []byte, l4 gopacket.SerializableLayer, n int) []byte {
	t.Helper()
	whole := l4over(t, true, layers.IPProtocolUDP, l4, payload(n))
	data := append([]byte(nil), whole[:54]...)
	data = append(append(data, headers...), whole[54:]...)
	data[20] = first
	size := len(data) - 54
	data[18], data[19] = byte(size>>8), byte(size)
	return data
}

func TestParseExtensions(t *testing.T) {
	udp := &layers.UDP{SrcPort: 9, DstPort: 10}
	opts := func(next uint8) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	long := make([]byte, 24)
	long[0], long[1] = ProtoUDP, 2
	chain := func(n int) (b []byte) {
		for range n - 1 {
			b = append(b, opts(extDstOpts)...)
		}
		return append(b, opts(ProtoUDP)...)
	}
	for _, c := range []struct {
		name    string
		first   uint8
		headers []byte
		want    Verdict
		off     int
	}{
		{"hop by hop", extHopByHop, opts(ProtoUDP), OK, 62},
		{"long destination options", extDstOpts, long, OK, 78},
		{"spent routing header", extRouting, opts(ProtoUDP)[:2:2], OK, 62},
		{"routing header with a waypoint", extRouting, []byte{ProtoUDP, 0, 2, 1, 0, 0, 0, 0}, Extension, 0},
		{"hop by hop not first", extDstOpts, append(opts(extHopByHop), opts(ProtoUDP)...), Extension, 0},
		{"eight headers", extDstOpts, chain(8)[:64], OK, 118},
		{"nine headers", extDstOpts, chain(9), Extension, 0},
		{"atomic fragment", extFragment, []byte{ProtoUDP, 0, 0, 0, 0, 0, 0, 1}, OK, 62},
		{"header beyond the packet", extDstOpts, []byte{ProtoUDP, 200, 1, 4, 0, 0, 0, 0}, Length, 0},
		{"headers beyond Head", extDstOpts, append([]byte{extDstOpts, 8}, make([]byte, 70)...), HeadersLong, 0},
	} {
		h := c.headers
		if len(h) == 2 {
			h = append(h, 0, 0, 0, 0, 0, 0)
		}
		var p Packet
		v := Parse(&p, frame(ext(t, c.first, h, udp, 5)))
		if v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
		if v == OK && (p.L4Off != c.off || p.SrcPort != 9 || p.PayloadLen != 5 || p.Proto != ProtoUDP) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

func TestParseFragments(t *testing.T) {
	h := ip4(layers.IPProtocolUDP)
	h.Flags, h.FragOffset = layers.IPv4MoreFragments, 185
	data := serialize(t, eth(layers.EthernetTypeIPv4), h, payload(64))
	var p Packet
	if v := Parse(&p, frame(data)); v != OK || !p.Frag || !p.MoreFrags || p.FragOff != 1480 || p.FragID != 0x1234 || p.PayloadLen != 64 || p.PayloadOff != 34 {
		t.Fatalf("v4: %v %+v", v, p)
	}
	frag6 := []byte{ProtoUDP, 0, 0x05, 0xc9, 1, 2, 3, 4} // offset 1480, more
	data = ext(t, extFragment, frag6, &layers.UDP{}, 8)
	p = Packet{}
	if v := Parse(&p, frame(data)); v != OK || !p.Frag || !p.MoreFrags || p.FragOff != 1480 || p.FragID != 0x01020304 || p.PayloadLen != 16 || p.Proto != ProtoUDP || p.PayloadOff != 62 {
		t.Fatalf("v6: %v %+v", v, p)
	}
	for _, c := range []struct {
		name string
		edit func(h *layers.IPv4) (n int)
		off  link.Offload
		want Verdict
	}{
		{"ping of death", func(h *layers.IPv4) int { h.FragOffset = 8189; return 24 }, link.Offload{}, Fragment},
		{"odd length with more to come", func(h *layers.IPv4) int { h.Flags = layers.IPv4MoreFragments; return 33 }, link.Offload{}, Fragment},
		{"empty", func(h *layers.IPv4) int { h.FragOffset = 2; return 0 }, link.Offload{}, Fragment},
		{"with offload", func(h *layers.IPv4) int { h.FragOffset = 2; return 8 }, link.Offload{NeedsCsum: true}, Offload},
		{"odd last", func(h *layers.IPv4) int { h.FragOffset = 2; return 33 }, link.Offload{}, OK},
	} {
		h := ip4(layers.IPProtocolUDP)
		h.Flags = 0
		n := c.edit(h)
		f := frame(serialize(t, eth(layers.EthernetTypeIPv4), h, payload(n)))
		f.Off = c.off
		if v := Parse(&p, f); v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
	}
}
