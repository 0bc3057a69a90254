package wire

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/vnet/link"
)

var (
	guestMAC = MAC{2, 0, 0, 0, 0, 1}
	ourMAC   = MAC{2, 0, 0, 0, 0, 2}
	guest4   = Addr4([4]byte{10, 0, 2, 15})
	remote4  = Addr4([4]byte{192, 0, 2, 7})
	guest6   = Addr{0xfd, 0x67, 15: 0x15}
	remote6  = Addr{0x20, 0x01, 0x0d, 0xb8, 15: 7}
)

// frame splits data into segments that end at the given offsets.
func frame(data []byte, cuts ...int) *link.Frame {
	f := &link.Frame{Len: len(data)}
	at := 0
	for _, c := range append(cuts, len(data)) {
		f.Segs = append(f.Segs, data[at:c:c])
		at = c
	}
	return f
}

// each cut into segments that a packet must survive.
func cuttings(data []byte) []*link.Frame {
	fs := []*link.Frame{frame(data)}
	for i := 1; i < len(data); i++ {
		fs = append(fs, frame(data, i))
	}
	var bytes []int
	for i := 1; i < len(data); i++ {
		bytes = append(bytes, i)
	}
	return append(fs, frame(data, bytes...))
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), b.Bytes()...)
}

func eth(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: net.HardwareAddr(guestMAC[:]), DstMAC: net.HardwareAddr(ourMAC[:]), EthernetType: t}
}

func ip4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{
		Version: 4, TTL: 61, TOS: 0x28, Id: 0x1234, Protocol: p, Flags: layers.IPv4DontFragment,
		SrcIP: guest4.ToNetip().AsSlice(), DstIP: remote4.ToNetip().AsSlice(),
	}
}

func ip6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{
		Version: 6, HopLimit: 61, TrafficClass: 0x28, NextHeader: p,
		SrcIP: guest6.ToNetip().AsSlice(), DstIP: remote6.ToNetip().AsSlice(),
	}
}

// l4over serializes an L4 packet over IPv4 or IPv6, checksums by gopacket.
func l4over(t testing.TB, v6 bool, p layers.IPProtocol, l4 gopacket.SerializableLayer, rest ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var l3 gopacket.NetworkLayer
	ls := make([]gopacket.SerializableLayer, 0, 4)
	if v6 {
		h := ip6(p)
		l3, ls = h, append(ls, eth(layers.EthernetTypeIPv6), h)
	} else {
		h := ip4(p)
		l3, ls = h, append(ls, eth(layers.EthernetTypeIPv4), h)
	}
	if c, ok := l4.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := c.SetNetworkLayerForChecksum(l3); err != nil {
			t.Fatal(err)
		}
	}
	return serialize(t, append(append(ls, l4), rest...)...)
}

func tcpLayer() *layers.TCP {
	return &layers.TCP{
		SrcPort: 40001, DstPort: 443, Seq: 0xfffffff0, Ack: 77, SYN: true, ACK: true, ECE: true, Window: 4321,
		Options: []layers.TCPOption{
			{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}},
			{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{9}},
			{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
			{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{0, 0, 1, 0, 0, 0, 0, 5}},
		},
	}
}

func sackLayer() *layers.TCP {
	return &layers.TCP{
		SrcPort: 40001, DstPort: 443, Seq: 5, Ack: 77, ACK: true, Window: 1,
		Options: []layers.TCPOption{
			{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindSACK, OptionLength: 18, OptionData: []byte{0, 0, 0, 10, 0, 0, 0, 20, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9}},
		},
	}
}

func payload(n int) gopacket.Payload {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 3)
	}
	return b
}
