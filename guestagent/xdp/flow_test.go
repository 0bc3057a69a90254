package xdp

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/wire"
)

func flow(src, dst string) Flow {
	return Flow{SrcMAC: wire.MAC{2, 0, 0, 0, 0, 1}, DstMAC: wire.MAC{2, 0, 0, 0, 0, 2}, Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst)}
}

// TestFrames has an independent library read what the template makes, and make it
// again: lengths and checksums come out the same.
func TestFrames(t *testing.T) {
	for _, tc := range []struct {
		src, dst string
		size     int
		seq      uint64
	}{
		{"10.0.2.15:4000", "10.0.2.2:9", 8, 0},
		{"10.0.2.15:4000", "10.0.2.2:9", 64, 1},
		{"10.0.2.15:4000", "10.0.2.2:9", 1472, 1<<64 - 1},
		{"10.0.2.15:65535", "10.0.2.2:65535", 9, 0xffff_0000_ffff},
		{"[fd67::15]:4000", "[fd67::2]:9", 8, 12345678901234},
		{"[fd67::15]:4000", "[fd67::2]:9", 1452, 7},
	} {
		f := flow(tc.src, tc.dst)
		tm, err := newTemplate(&f, tc.size)
		if err != nil {
			t.Fatal(err)
		}
		b := append([]byte(nil), tm.frame...)
		tm.number(b, tc.seq)
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || p.ErrorLayer() != nil {
			t.Fatalf("%v: no UDP: %v", tc, p)
		}
		if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		again := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializePacket(again, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, p); err != nil {
			t.Fatal(err)
		}
		if want := again.Bytes()[:len(b)]; string(want) != string(b) { // it pads to 60 bytes
			t.Errorf("%v:\n got %x\nwant %x", tc, b, want)
		}
		if netip.AddrPortFrom(f.Dst.Addr(), uint16(udp.DstPort)) != f.Dst || int(udp.SrcPort) != int(f.Src.Port()) {
			t.Errorf("%v: ports %v %v", tc, udp.SrcPort, udp.DstPort)
		}
		payload, ok := datagram(b)
		if !ok || len(payload) != tc.size || !intact(payload) || binary.BigEndian.Uint64(payload) != tc.seq {
			t.Errorf("%v: datagram %x %t", tc, payload, ok)
		}
		padded, ok := datagram(append(b, make([]byte, 18)...))
		if !ok || len(padded) != tc.size {
			t.Errorf("%v: %d bytes of a padded frame", tc, len(padded))
		}
	}
}

func TestTemplateRefuses(t *testing.T) {
	for _, tc := range []struct {
		src, dst string
		size     int
	}{
		{"10.0.0.1:1", "10.0.0.2:2", 7}, {"10.0.0.1:1", "10.0.0.2:2", 1473}, {"[fd00::1]:1", "[fd00::2]:2", 1453}, {"10.0.0.1:1", "[fd00::2]:2", 100},
	} {
		f := flow(tc.src, tc.dst)
		if _, err := newTemplate(&f, tc.size); err == nil {
			t.Errorf("%v: taken", tc)
		}
	}
}

func TestDatagramRefuses(t *testing.T) {
	f := flow("10.0.2.15:4000", "10.0.2.2:9")
	tm, err := newTemplate(&f, 100)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":                func(b []byte) []byte { return b[:41] },
		"other EtherType":      func(b []byte) []byte { b[12] = 9; return b },
		"UDP longer than it":   func(b []byte) []byte { return b[:len(b)-1] },
		"UDP length below 8":   func(b []byte) []byte { b[38], b[39] = 0, 7; return b },
		"IP header beyond end": func(b []byte) []byte { b[14] = 0x4f; return b[:60] },
	} {
		if p, ok := datagram(spoil(append([]byte(nil), tm.frame...))); ok {
			t.Errorf("%s: taken, %d bytes", name, len(p))
		}
	}
	p, _ := datagram(tm.frame)
	p[50]++
	if intact(p) {
		t.Error("a changed byte goes unnoticed")
	}
}
