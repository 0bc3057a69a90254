package wire

import (
	"testing"

	"github.com/gopacket/gopacket/layers"

	"guestwire/vnet/link"
)

func TestParseNoAlloc(t *testing.T) {
	f := frame(l4over(t, false, layers.IPProtocolTCP, tcpLayer(), payload(1400)), 14, 200)
	var p Packet
	dst := make([][]byte, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		if Parse(&p, f) != OK {
			t.Fatal("refused")
		}
		dst = Payload(dst[:0], f, p.PayloadOff, p.PayloadLen)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkParse(b *testing.B) {
	tcp64 := l4over(b, false, layers.IPProtocolTCP, &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, payload(10))
	udp64 := l4over(b, false, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(22))
	udp6 := l4over(b, true, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2}, payload(1400))
	opts := l4over(b, false, layers.IPProtocolTCP, tcpLayer())
	for _, c := range []struct {
		name string
		data []byte
		off  link.Offload
	}{
		{"tcp64", tcp64, link.Offload{}},
		{"tcp64-offload", tcp64, link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}},
		{"tcp-options-offload", opts, link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}},
		{"udp64", udp64, link.Offload{}},
		{"udp6-1400", udp6, link.Offload{}},
		{"udp6-1400-offload", udp6, link.Offload{NeedsCsum: true, CsumStart: 54, CsumOff: 6}},
	} {
		f := frame(c.data)
		f.Off = c.off
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var p Packet
			for b.Loop() {
				if Parse(&p, f) != OK {
					b.Fatal("refused")
				}
			}
		})
	}
}
