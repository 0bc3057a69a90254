package wire

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/vnet/link"
)

// FuzzParse checks that Parse never panics nor points outside the frame, that
// the cutting into segments does not matter, and that it reads what gopacket
// reads wherever both accept.
func FuzzParse(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(l4over(f, v6, layers.IPProtocolTCP, tcpLayer(), payload(200)), uint8(0), uint16(0))
		f.Add(l4over(f, v6, layers.IPProtocolTCP, sackLayer(), payload(3)), uint8(1), uint16(30))
		f.Add(l4over(f, v6, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(9)), uint8(2), uint16(60))
	}
	f.Add(l4over(f, false, layers.IPProtocolICMPv4, &layers.ICMPv4{TypeCode: 0x800, Id: 1, Seq: 2}, payload(9)), uint8(0), uint16(40))
	f.Add(l4over(f, true, layers.IPProtocolICMPv6, &layers.ICMPv6{TypeCode: 0x8000}, payload(9)), uint8(0), uint16(40))
	f.Add(append(l4over(f, true, extDstOpts, payload(0)), ProtoUDP, 0, 1, 4, 0, 0, 0, 0), uint8(3), uint16(61))
	f.Fuzz(func(t *testing.T, data []byte, offload uint8, cut uint16) {
		if len(data) > link.MaxFrame {
			return
		}
		fr := frame(data, int(cut)%(len(data)+1))
		// Vouched for, so that the fuzzer gets past the checksum.
		fr.Off.DataValid = offload&1 == 0
		fr.Off.GSO = link.GSO(offload >> 1 & 3)
		if offload&8 != 0 {
			fr.Off.NeedsCsum, fr.Off.SegSize, fr.Off.CsumStart, fr.Off.CsumOff = true, 100, 34, 16
		}
		var p, q Packet
		v := Parse(&p, fr)
		whole := frame(data)
		whole.Off = fr.Off
		if w := Parse(&q, whole); w != v || p != q {
			t.Fatalf("cut at %d: %v, whole: %v\n%+v\n%+v", cut, v, w, p, q)
		}
		if v != OK {
			return
		}
		if p.L4Off < EthLen || p.PayloadOff < p.L4Off || p.PayloadLen < 0 || p.End() > len(data) || p.TCP.NSACK > 4 {
			t.Fatalf("offsets outside the frame: %+v", p)
		}
		if !bytes.Equal(p.Head[:p.HeadLen], data[:p.HeadLen]) {
			t.Fatal("Head differs")
		}
		agree(t, &p, data)
	})
}

// agree compares p with gopacket's reading of data.
func agree(t *testing.T, p *Packet, data []byte) {
	g := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	if g.ErrorLayer() != nil || p.Frag {
		return
	}
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoICMP, ProtoICMPv6:
	default:
		return // gopacket looks into tunnels
	}
	if ip, ok := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		if p.V6 || FromNetip(p.Src.ToNetip()) != p.Src || !bytes.Equal(p.Src[12:], ip.SrcIP.To4()) || !bytes.Equal(p.Dst[12:], ip.DstIP.To4()) ||
			p.TTL != ip.TTL || p.TOS != ip.TOS || p.ID != uint32(ip.Id) || p.Proto != uint8(ip.Protocol) || p.L3Len != int(ip.IHL)*4 {
			t.Fatalf("IPv4: %+v\n%+v", p, ip)
		}
	} else if ip, ok := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ok {
		if !p.V6 || !bytes.Equal(p.Src[:], ip.SrcIP) || !bytes.Equal(p.Dst[:], ip.DstIP) || p.TTL != ip.HopLimit || p.TOS != ip.TrafficClass {
			t.Fatalf("IPv6: %+v\n%+v", p, ip)
		}
	}
	if tcp, ok := g.Layer(layers.LayerTypeTCP).(*layers.TCP); ok && p.Proto == ProtoTCP {
		agreeTCP(t, p, tcp)
	}
	if udp, ok := g.Layer(layers.LayerTypeUDP).(*layers.UDP); ok && p.Proto == ProtoUDP {
		if p.SrcPort != uint16(udp.SrcPort) || p.DstPort != uint16(udp.DstPort) || udp.Length != 0 && p.PayloadLen != int(udp.Length)-8 {
			t.Fatalf("UDP: %+v\n%+v", p, udp)
		}
	}
	if ic, ok := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && p.Proto == ProtoICMP && !p.V6 {
		if p.ICMPType != ic.TypeCode.Type() || p.ICMPCode != ic.TypeCode.Code() || p.SrcPort != ic.Id || p.ICMPSeq != ic.Seq {
			t.Fatalf("ICMP: %+v\n%+v", p, ic)
		}
	}
	if ic, ok := g.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && p.Proto == ProtoICMPv6 && p.V6 {
		if p.ICMPType != ic.TypeCode.Type() || p.ICMPCode != ic.TypeCode.Code() {
			t.Fatalf("ICMPv6: %+v\n%+v", p, ic)
		}
	}
}

func agreeTCP(t *testing.T, p *Packet, tcp *layers.TCP) {
	var flags Flags
	for i, on := range []bool{tcp.FIN, tcp.SYN, tcp.RST, tcp.PSH, tcp.ACK, tcp.URG, tcp.ECE, tcp.CWR} {
		if on {
			flags |= 1 << i
		}
	}
	if p.SrcPort != uint16(tcp.SrcPort) || p.DstPort != uint16(tcp.DstPort) || p.TCP.Seq != Seq(tcp.Seq) || p.TCP.Ack != Seq(tcp.Ack) ||
		p.TCP.Flags != flags || p.TCP.Window != tcp.Window || p.PayloadOff-p.L4Off != int(tcp.DataOffset)*4 {
		t.Fatalf("TCP: %+v\n%+v", p, tcp)
	}
	var mss uint16
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindMSS && len(o.OptionData) == 2 {
			mss = uint16(o.OptionData[0])<<8 | uint16(o.OptionData[1])
		}
	}
	if p.TCP.MSS != mss {
		t.Fatalf("MSS %d, gopacket %d", p.TCP.MSS, mss)
	}
}
