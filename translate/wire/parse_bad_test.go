package wire

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"guestwire/vnet/link"
)

// fix4 makes the IPv4 header checksum right after an edit.
func fix4(b []byte) {
	b[24], b[25] = 0, 0
	var s uint32
	for i := 14; i < 14+int(b[14]&15)*4 && i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(s))
}

// mapped writes a v4-mapped address.
func mapped(b []byte, at int) []byte {
	copy(b[at:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 7})
	return b
}

func TestParseRefuses(t *testing.T) {
	tcp4 := func() []byte { return l4over(t, false, layers.IPProtocolTCP, tcpLayer(), payload(37)) }
	udp4 := func() []byte {
		return l4over(t, false, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(8))
	}
	udp6 := func() []byte {
		return l4over(t, true, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(8))
	}
	tcp6 := func() []byte { return l4over(t, true, layers.IPProtocolTCP, tcpLayer(), payload(37)) }
	for _, c := range []struct {
		name string
		data []byte
		edit func(b []byte) []byte
		want Verdict
	}{
		{"no Ethernet header", tcp4(), func(b []byte) []byte { return b[:13] }, Short},
		{"VLAN", tcp4(), func(b []byte) []byte { b[12], b[13] = 0x81, 0; return b }, VLAN},
		{"QinQ", tcp4(), func(b []byte) []byte { b[12], b[13] = 0x88, 0xa8; return b }, VLAN},
		{"802.3 length", tcp4(), func(b []byte) []byte { b[12], b[13] = 0, 40; return b }, EtherType},
		{"LLDP", tcp4(), func(b []byte) []byte { b[12], b[13] = 0x88, 0xcc; return b }, EtherType},
		{"half an IPv4 header", tcp4(), func(b []byte) []byte { return b[:33] }, Short},
		{"half an IPv6 header", tcp6(), func(b []byte) []byte { return b[:53] }, Short},
		{"IPv6 as IPv4", tcp4(), func(b []byte) []byte { b[14] = 0x65; return b }, IPHeader},
		{"IPv4 as IPv6", tcp6(), func(b []byte) []byte { b[14] = 0x45; return b }, IPHeader},
		{"IHL 4", tcp4(), func(b []byte) []byte { b[14] = 0x44; fix4(b); return b }, IPHeader},
		{"IHL beyond the frame", udp4(), func(b []byte) []byte { b[14] = 0x4f; return b }, Short},
		{"IPv4 header checksum", tcp4(), func(b []byte) []byte { b[24] ^= 1; return b }, IPChecksum},
		{"total length beyond the frame", tcp4(), func(b []byte) []byte { return b[:len(b)-1] }, Length},
		{"total length below the header", tcp4(), func(b []byte) []byte { b[16], b[17] = 0, 19; fix4(b); return b }, Length},
		{"total length 0 without GSO", tcp4(), func(b []byte) []byte { b[16], b[17] = 0, 0; fix4(b); return b }, Length},
		{"payload length beyond the frame", tcp6(), func(b []byte) []byte { return b[:len(b)-1] }, Length},
		{"v4-mapped source", tcp6(), func(b []byte) []byte { return mapped(b, 22) }, IPHeader},
		{"v4-mapped destination", tcp6(), func(b []byte) []byte { return mapped(b, 38) }, IPHeader},
		{"no L4 header at all", tcp4(), func(b []byte) []byte { b[16], b[17] = 0, 20; fix4(b); return b }, L4Header},
		{"half a TCP header", tcp4(), func(b []byte) []byte { b[16], b[17] = 0, 39; fix4(b); return b }, L4Header},
		{"data offset 4", tcp4(), func(b []byte) []byte { b[46] = 0x40; return b }, L4Header},
		{"data offset beyond the segment", tcp4(), func(b []byte) []byte { b[16], b[17] = 0, 50; fix4(b); return b }, L4Header},
		{"TCP checksum", tcp4(), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, Checksums},
		{"TCP checksum v6", tcp6(), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, Checksums},
		{"UDP checksum", udp4(), func(b []byte) []byte { b[34] ^= 1; return b }, Checksums},
		{"UDP without checksum", udp4(), func(b []byte) []byte { b[40], b[41] = 0, 0; return b }, OK},
		{"UDP without checksum v6", udp6(), func(b []byte) []byte { b[60], b[61] = 0, 0; return b }, Checksums},
		{"UDP length 7", udp4(), func(b []byte) []byte { b[39] = 7; return b }, L4Header},
		{"UDP length beyond the packet", udp4(), func(b []byte) []byte { b[39] = 17; return b }, L4Header},
		{"ICMP of 7 bytes", udp4(), func(b []byte) []byte { b[23], b[17] = ProtoICMP, 27; fix4(b); return b }, L4Header},
	} {
		var p Packet
		if v := Parse(&p, frame(c.edit(c.data))); v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
	}
}

// options in the 40 bytes behind a TCP header without checksum verification.
func TestParseTCPOptions(t *testing.T) {
	nops := make([]byte, 40)
	for i := range nops {
		nops[i] = optNop
	}
	for _, c := range []struct {
		name string
		opts []byte
		want Verdict
		tcp  TCPHeader
	}{
		{"40 NOPs", nops, OK, TCPHeader{WScale: -1}},
		{"length 0", []byte{2, 0, 0, 0}, L4Header, TCPHeader{}},
		{"length 1", []byte{8, 1, 1, 1}, L4Header, TCPHeader{}},
		{"overrun", []byte{1, 1, 2, 4}, L4Header, TCPHeader{}},
		{"kind without length", []byte{1, 1, 1, 3}, L4Header, TCPHeader{}},
		{"rubbish behind the end", []byte{0, 2, 0, 0}, OK, TCPHeader{WScale: -1}},
		{"unknown kind", []byte{253, 4, 1, 2}, OK, TCPHeader{WScale: -1}},
		{"MSS of wrong length", []byte{2, 3, 5, 1}, OK, TCPHeader{WScale: -1}},
		{"scale 255", []byte{3, 3, 255, 1}, OK, TCPHeader{WScale: 127}},
		{"MSS 0", []byte{2, 4, 0, 0}, OK, TCPHeader{WScale: -1}},
		{"SACK of 9 bytes", []byte{5, 9, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1}, OK, TCPHeader{WScale: -1}},
	} {
		data := l4over(t, false, layers.IPProtocolTCP, &layers.TCP{SrcPort: 1, DstPort: 2})
		data = append(data[:54], c.opts...) // without the padding to 60 bytes
		data[46] = byte(20+len(c.opts)) / 4 << 4
		data[17] = byte(40 + len(c.opts))
		fix4(data)
		f := frame(data)
		f.Off = link.Offload{DataValid: true}
		var p Packet
		p.TCP = TCPHeader{MSS: 1, WScale: 1, SACKPermitted: true, TS: true, NSACK: 4} // of the packet before
		v := Parse(&p, f)
		p.TCP.TSVal, p.TCP.TSEcr = 0, 0
		if v != c.want || v == OK && p.TCP != c.tcp {
			t.Errorf("%s: %v %+v, want %v %+v", c.name, v, p.TCP, c.want, c.tcp)
		}
	}
}

func TestParseOffload(t *testing.T) {
	tcp := l4over(t, false, layers.IPProtocolTCP, tcpLayer(), payload(3000))
	tcp[50] ^= 0xff // the checksum field holds something else
	udp := l4over(t, true, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(3000))
	udp[60], udp[61] = 0, 0
	needs := func(start, off uint16, gso link.GSO, size uint16) link.Offload {
		return link.Offload{NeedsCsum: true, CsumStart: start, CsumOff: off, GSO: gso, SegSize: size}
	}
	for _, c := range []struct {
		name string
		data []byte
		off  link.Offload
		want Verdict
	}{
		{"wrong sum", tcp, link.Offload{}, Checksums},
		{"vouched for", tcp, link.Offload{DataValid: true}, OK},
		{"to be computed", tcp, needs(34, 16, 0, 0), OK},
		{"start elsewhere", tcp, needs(33, 16, 0, 0), Offload},
		{"start in Ethernet header", tcp, needs(0, 16, 0, 0), Offload},
		{"field elsewhere", tcp, needs(34, 6, 0, 0), Offload},
		{"TSO", tcp, needs(34, 16, link.GSOTCPv4, 1460), OK},
		{"TSO without checksum", tcp, link.Offload{GSO: link.GSOTCPv4, SegSize: 1460, DataValid: true}, Offload},
		{"TSO of size 0", tcp, needs(34, 16, link.GSOTCPv4, 0), Offload},
		{"TSO of the other family", tcp, needs(34, 16, link.GSOTCPv6, 1460), Offload},
		{"USO on TCP", tcp, needs(34, 16, link.GSOUDP, 1460), Offload},
		{"USO", udp, needs(54, 6, link.GSOUDP, 1400), OK},
		{"TSO on UDP", udp, needs(54, 6, link.GSOTCPv6, 1400), Offload},
		{"UDP to be computed", udp, needs(54, 6, 0, 0), OK},
		{"UDP vouched for, no checksum", udp, link.Offload{DataValid: true}, Checksums},
	} {
		f := frame(c.data)
		f.Off = c.off
		var p Packet
		if v := Parse(&p, f); v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
	}
	// Super-frames whose length field is left to the segmenter.
	tcp[16], tcp[17] = 0, 0
	fix4(tcp)
	f := frame(tcp)
	f.Off = needs(34, 16, link.GSOTCPv4, 1460)
	var p Packet
	if v := Parse(&p, f); v != OK || p.PayloadLen != 3000 {
		t.Errorf("total length 0 with TSO: %v, payload %d", v, p.PayloadLen)
	}
}
