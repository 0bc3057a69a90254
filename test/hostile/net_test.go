package hostile

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var frameRows = []row{
	{"N1", shortFrames},
	{"N2", scatteredHeader},
	{"N3", badGSO},
	{"N4", badChecksumOffload},
	{"N6", oddFrames},
	{"N7", manyMACs},
	{"N9", wrongChecksum},
}

var world = net.IP{198, 51, 100, 1}

// dropped sends a frame and checks that it is counted under name and makes no
// flow.
func (g *guest) dropped(name string, hdr, frame []byte) {
	g.t.Helper()
	before := g.d.counters()
	g.sendHdr(hdr, frame)
	g.d.counts(name, before[name]+1)
	if now := g.d.counters()["flows"]; now != before["flows"] {
		g.t.Errorf("%s: %d flows before, %d after", name, before["flows"], now)
	}
}

func shortFrames(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for _, n := range []int{1, 11, 12, 13, 25} {
		before := d.counters()["net_drop_short"]
		if n > netHdr {
			g.tx.Send(make([]byte, netHdr), make([]byte, n-netHdr))
		} else {
			g.tx.Send(make([]byte, n))
		}
		d.counts("net_drop_short", before+1)
	}
	g.ping()
	g.leave()
}

// scatteredHeader spreads the virtio header over single bytes.
func scatteredHeader(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	var parts [][]byte
	for range netHdr {
		parts = append(parts, []byte{0})
	}
	f := udp(t, guestIP, world, 53, []byte("spread"))
	for i := range f[:20] {
		parts = append(parts, f[i:i+1])
	}
	g.tx.Send(append(parts, f[20:])...)
	d.counts("udp_flows", 1)
	g.leave()
}

func badGSO(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	f := tcp(t, world, 4000, 80, make([]byte, 3000), func(s *layers.TCP) { s.ACK = true })
	for _, h := range [][]byte{
		hdr(1, 7, 54, 1460, 34, 16),    // no such type
		hdr(1, 3, 54, 1460, 34, 16),    // UFO: not negotiated
		hdr(1, 5, 54, 1460, 34, 16),    // USO: not negotiated
		hdr(1, 1, 54, 0, 34, 16),       // segments of no bytes
		hdr(1, 0x80, 54, 1460, 34, 16), // ECN alone
		hdr(0, 1, 54, 1460, 0, 0),      // GSO without a checksum to complete
	} {
		g.dropped("net_drop_gso", h, f)
	}
	g.ping()
	g.leave()
}

// badChecksumOffload: the header's word on where things are is never taken.
func badChecksumOffload(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	f := udp(t, guestIP, world, 53, []byte("checksum"))
	for _, tt := range []struct {
		counter    string
		start, off uint16
	}{
		{"net_drop_csum", 0xffff, 0xffff}, {"net_drop_csum", uint16(len(f)), 0}, {"net_drop_csum", uint16(len(f)) - 1, 0},
		{"drop_csum", 34, 16}, // TCP's place in a UDP packet
		{"drop_csum", 20, 6},  // inside the IP header
	} {
		g.dropped(tt.counter, hdr(1, 0, 0, 0, tt.start, tt.off), f)
	}
	before := d.counters()
	g.sendHdr(hdr(1, 0, 9999, 0, 34, 6), f) // hdr_len lies, which harms nobody
	d.counts("udp_flows", before["udp_flows"]+1)
	g.leave()
	d.healthy()
}

func oddFrames(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	raw := func(typ layers.EthernetType, n int) []byte {
		return assemble(t, false, &layers.Ethernet{SrcMAC: guestMAC, DstMAC: ourMAC, EthernetType: typ}, gopacket.Payload(make([]byte, n)))
	}
	plain := make([]byte, netHdr)
	g.dropped("drop_vlan", plain, raw(layers.EthernetTypeDot1Q, 60))
	g.dropped("drop_ethertype", plain, raw(0x88cc, 60))
	g.dropped("drop_ethertype", plain, raw(46, 60)) // 802.3 length
	g.dropped("drop_iphdr", plain, raw(layers.EthernetTypeIPv4, 60))
	g.ping()
	g.leave()
}

func manyMACs(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	g.ping()
	f := udp(t, guestIP, world, 53, []byte("x"))
	for i := range byte(20) {
		f[6], f[11] = 2, i
		g.dropped("drop_mac", make([]byte, netHdr), f)
	}
	f[6] = 3 // multicast
	g.dropped("drop_mac", make([]byte, netHdr), f)
	copy(f[6:], ourMAC)
	g.dropped("drop_mac", make([]byte, netHdr), f)
	g.ping()
	g.leave()
}

func wrongChecksum(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	f := udp(t, guestIP, world, 53, []byte("flip"))
	f[42] ^= 1
	g.dropped("drop_csum-bad", make([]byte, netHdr), f)
	g.leave()
	d.healthy()
}

func checksum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}
