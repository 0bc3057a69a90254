package wire

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestBuildersAgree: what the builders write is byte for byte what gopacket
// writes for the same fields.
func TestBuildersAgree(t *testing.T) {
	const n = 21
	body := payload(n)
	for _, v6 := range []bool{false, true} {
		b := make([]byte, 200)
		src, dst := guest4, remote4
		l3 := func(proto uint8, size int) int {
			if v6 {
				k := PutEthernet(b, ourMAC, guestMAC, EtherIPv6)
				return k + PutIPv6(b[k:], &IPv6Fields{Src: guest6, Dst: remote6, NextHeader: proto, HopLimit: 61, TrafficClass: 0x28, PayloadLen: size})
			}
			k := PutEthernet(b, ourMAC, guestMAC, EtherIPv4)
			return k + PutIPv4(b[k:], &IPv4Fields{Src: guest4, Dst: remote4, Proto: proto, TTL: 61, TOS: 0x28, ID: 0x1234, DontFrag: true, PayloadLen: size})
		}
		if v6 {
			src, dst = guest6, remote6
		}

		k := l3(ProtoUDP, UDPLen+n)
		sum := PseudoHeader(src, dst, ProtoUDP, UDPLen+n)
		PutUDP(b[k:], 5000, 53, n, 0)
		copy(b[k+UDPLen:], body)
		PutChecksum(b[k:], UDPCsumOff, FinishUDP(Checksum(sum, b[k:k+UDPLen+n])))
		same(t, "UDP", b[:k+UDPLen+n], l4over(t, v6, layers.IPProtocolUDP, &layers.UDP{SrcPort: 5000, DstPort: 53}, body))

		tcp := &TCPFields{
			SrcPort: 40001, DstPort: 443, Seq: 0xfffffff0, Ack: 77, Flags: SYN | ACK, Window: 4321,
			MSS: 1460, HasWScale: true, WScale: 9, SACKPermitted: true,
			NSACK: 2, SACK: [4][2]Seq{{10, 20}, {0xffffffff, 9}},
		}
		k = l3(ProtoTCP, tcp.Len()+n)
		h := PutTCP(b[k:], tcp)
		copy(b[k+h:], body)
		sum = PseudoHeader(src, dst, ProtoTCP, h+n)
		PutChecksum(b[k:], TCPCsumOff, Finish(Checksum(sum, b[k:k+h+n])))
		nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
		same(t, "TCP", b[:k+h+n], l4over(t, v6, layers.IPProtocolTCP, &layers.TCP{
			SrcPort: 40001, DstPort: 443, Seq: 0xfffffff0, Ack: 77, SYN: true, ACK: true, Window: 4321,
			Options: []layers.TCPOption{
				{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}},
				nop, {OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{9}},
				nop, nop, {OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
				nop, nop, {OptionType: layers.TCPOptionKindSACK, OptionLength: 18, OptionData: []byte{0, 0, 0, 10, 0, 0, 0, 20, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9}},
			},
		}, body))
	}
	b := make([]byte, 200)
	k := PutEthernet(b, ourMAC, guestMAC, EtherIPv4)
	k += PutIPv4(b[k:], &IPv4Fields{Src: guest4, Dst: remote4, Proto: ProtoICMP, TTL: 61, TOS: 0x28, ID: 0x1234, DontFrag: true, PayloadLen: ICMPLen + n})
	PutICMP(b[k:], ICMPEchoRequest, 0, 77<<16|5)
	copy(b[k+ICMPLen:], body)
	PutChecksum(b[k:], ICMPCsumOff, Finish(Checksum(0, b[k:k+ICMPLen+n])))
	same(t, "ICMP", b[:k+ICMPLen+n], l4over(t, false, layers.IPProtocolICMPv4, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 77, Seq: 5}, body))
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

func TestBuildFragments(t *testing.T) {
	b := make([]byte, 100)
	PutIPv4(b, &IPv4Fields{Src: guest4, Dst: remote4, Proto: ProtoUDP, TTL: 1, ID: 7, FragOff: 1480, MoreFrags: true, PayloadLen: 8})
	p := gopacket.NewPacket(b[:28], layers.LayerTypeIPv4, gopacket.Default)
	ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if ip.FragOffset != 185 || ip.Flags != layers.IPv4MoreFragments || ip.Id != 7 || ip.Length != 28 {
		t.Errorf("%+v", ip)
	}
	PutIPv6(b, &IPv6Fields{Src: guest6, Dst: remote6, NextHeader: ProtoIPv6Fragment, HopLimit: 1, FlowLabel: 0xabcde, PayloadLen: 16})
	PutIPv6Fragment(b[40:], ProtoUDP, 1480, true, 0xdeadbeef)
	p = gopacket.NewPacket(b[:56], layers.LayerTypeIPv6, gopacket.Default)
	fr := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
	if fr.FragmentOffset != 185 || !fr.MoreFragments || fr.Identification != 0xdeadbeef || fr.NextHeader != layers.IPProtocolUDP {
		t.Errorf("%+v", fr)
	}
	if l := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6).FlowLabel; l != 0xabcde {
		t.Errorf("flow label %x", l)
	}
}
