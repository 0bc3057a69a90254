package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func arpFor(t *testing.T, target net.IP) []byte { return arpFrom(t, guestIP, target) }

func arpFrom(t *testing.T, sender, target net.IP) []byte {
	t.Helper()
	return frame(t, layers.EthernetTypeARP, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: guestMAC, SourceProtAddress: sender, DstHwAddress: make([]byte, 6), DstProtAddress: target,
	})
}

func isARPReply(f []byte) bool {
	a, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
	return ok && a.Operation == layers.ARPReply
}

// badARP: short, of another hardware, for the guest's own address or one that is
// not on the link, and claims of ours.
func badARP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	g.ping()
	good := arpFor(t, gateway)
	for n := 14; n < 42; n += 3 {
		g.send(good[:n])
	}
	for _, at := range []int{14, 16, 18, 19} {
		f := append([]byte(nil), good...)
		f[at]++
		g.send(f)
	}
	g.send(arpFor(t, guestIP)) // do I have a double?
	for i := range 64 {        // of 10.0.0.0/8
		g.send(arpFor(t, net.IP{10, byte(i * 4), byte(3 + i), byte(i)}))
	}
	before := d.counters()["neigh_drop_claim"]
	g.send(arpFrom(t, gateway, gateway), arpFrom(t, net.IP{10, 0, 2, 3}, net.IP{10, 0, 2, 3})) // I am the gateway, and the resolver
	d.counts("neigh_drop_claim", before+2)
	g.silence("an answer to bad ARP", isARPReply)
	for _, a := range []net.IP{gateway, {10, 0, 2, 77}} { // ours, and what is behind us
		g.send(arpFor(t, a))
		f := g.await("an answer to good ARP", isARPReply)
		if !bytes.Equal(f[22:28], ourMAC) || !bytes.Equal(f[28:32], a) {
			t.Errorf("%v is at % x, want %v", net.IP(f[28:32]), f[22:28], ourMAC)
		}
	}
	g.leave()
	d.healthy()
}

// solicit is a neighbour solicitation for target from src.
func solicit(t *testing.T, src, dst, target net.IP, hops uint8, options []byte) []byte {
	t.Helper()
	n := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolICMPv6, SrcIP: src, DstIP: dst}
	m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	_ = m.SetNetworkLayerForChecksum(n)
	return frame(t, layers.EthernetTypeIPv6, n, m, gopacket.Payload(append(append(make([]byte, 4), target.To16()...), options...)))
}

func isNA(f []byte) bool { return len(f) >= 78 && f[12] == 0x86 && f[20] == 58 && f[54] == 136 }

// badNDP: options of length 0, which are an endless loop for the careless, or
// beyond the end; a hop limit that says that it came from elsewhere; and
// duplicate address detection, which is answered for what is ours and for nothing
// else (RFC 4862, 5.4.3).
func badNDP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	before := d.counters()
	for _, options := range [][]byte{
		{1, 0, 1, 2, 3, 4, 5, 6}, // length 0
		{1, 9, 1, 2, 3, 4, 5, 6}, // beyond the end
		{1, 1, 1, 2, 3, 4, 5},    // by one
		{77, 0},
		{77},
		append([]byte{14, 1, 0, 0, 0, 0, 0, 0}, 1, 0, 1, 2, 3, 4, 5, 6), // behind a good one
	} {
		g.send(solicit(t, linkLocal, routerLL, routerLL, 255, options))
	}
	d.counts("neigh_drop_nd-opt", before["neigh_drop_nd-opt"]+6)
	for _, hops := range []uint8{0, 1, 64, 254} {
		g.send(solicit(t, linkLocal, routerLL, routerLL, hops, nil))
	}
	d.counts("neigh_drop_hop-limit", before["neigh_drop_hop-limit"]+4)

	unspecified := net.IPv6unspecified
	group := func(target net.IP) net.IP { // RFC 4291, 2.7.1
		a := net.ParseIP("ff02::1:ff00:0")
		copy(a[13:], target[13:])
		return a
	}
	mapped := append(net.ParseIP("::ffff:0:0")[:12:12], gateway...) // no neighbour of IPv6
	format := d.counters()["neigh_drop_format"]
	g.send(solicit(t, unspecified, routerLL, routerLL, 255, nil))                                      // DAD, but not to its group
	g.send(solicit(t, unspecified, group(guestIP6), guestIP6, 255, append([]byte{1, 1}, guestMAC...))) // with a link-layer address
	g.send(solicit(t, linkLocal, routerLL, net.ParseIP("ff02::1"), 255, nil))                          // for a group
	g.send(solicit(t, linkLocal, routerLL, mapped, 255, nil))                                          // for IPv4
	g.send(solicit(t, linkLocal, routerLL, routerLL, 255, []byte{1, 1, 2, 0, 0, 0, 0, 9}))             // of another station
	d.counts("neigh_drop_format", format+5)
	for _, own := range []net.IP{guestIP6, linkLocal, net.ParseIP("fd67:7765:7374::abcd")} { // is anybody using this?
		g.send(solicit(t, unspecified, group(own), own, 255, nil))
	}
	g.silence("an answer to bad NDP, or for an address that the guest may take", isNA)

	for _, ours := range []net.IP{gateway6, routerLL, net.ParseIP("fd67:7765:7374::3")} {
		g.send(solicit(t, unspecified, group(ours), ours, 255, nil))
		f := g.await("a defence of "+ours.String(), isNA)
		if !bytes.Equal(f[62:78], ours) || !bytes.Equal(f[38:54], net.ParseIP("ff02::1")) || binary.BigEndian.Uint32(f[58:])&(1<<30) != 0 {
			t.Errorf("%v is defended by % x", ours, f)
		}
	}
	g.send(solicit(t, linkLocal, routerLL, routerLL, 255, append([]byte{1, 1}, guestMAC...)))
	g.await("an answer to good NDP", isNA)
	g.leave()
	d.healthy()
}

// neighbourFlood asks for every address: answers within the limit, nothing kept.
func neighbourFlood(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	g.ping()
	d.clock.slow()
	before := d.counters()
	for i := range 3000 {
		if f.v6 {
			g.send(solicit(t, linkLocal, routerLL, net.IP{0xfd, 0x67, 0x77, 0x65, 0x73, 0x74, 0, 0, 0, 0, 0, 0, 1, 0, byte(i >> 8), byte(i)}, 255, nil))
		} else {
			g.send(arpFor(t, net.IP{10, 0, 2, byte(i)}))
		}
		if i%20 == 0 {
			g.taken()
			g.receive()
		}
	}
	g.taken()
	n := d.counters()
	answers := n["neigh_arp_replies"] + n["neigh_advertisements"] - before["neigh_arp_replies"] - before["neigh_advertisements"]
	if answers < 200 || answers > 320 || n["neigh_drop_rate"] < 2600 || n["flows"] != 0 {
		t.Errorf("%d answers, want about 256; %d above the limit, %d flows", answers, n["neigh_drop_rate"], n["flows"])
	}
	g.ping()
	g.leave()
	d.healthy()
}
