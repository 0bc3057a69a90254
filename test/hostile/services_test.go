package hostile

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var serviceRows = []row{
	{"L1", badARP},
	{"L2", badNDP},
	{"L3", arpFlood},
	{"L4", badDHCP},
	{"L7", badDNS},
}

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

// badARP: short, of another hardware, for the guest's own address, and a claim of
// the gateway's.
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
	g.send(arpFor(t, guestIP))           // do I have a double?
	g.send(arpFrom(t, gateway, gateway)) // I am the gateway
	g.silence("an answer to bad ARP", isARPReply)
	g.send(arpFor(t, gateway))
	f := g.await("an answer to good ARP", isARPReply)
	if mac := net.HardwareAddr(f[22:28]); mac.String() != ourMAC.String() {
		t.Errorf("the gateway is at %v, want %v", mac, ourMAC)
	}
	g.leave()
	d.healthy()
}

// badNDP: an option of length 0, which is an endless loop for the careless, one
// beyond the end, and a hop limit that says that it came from elsewhere.
func badNDP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	src, dst := net.ParseIP("fe80::5054:ff:fe12:3456"), net.ParseIP("fe80::2")
	solicit := func(hops uint8, options []byte) []byte {
		ip := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolICMPv6, SrcIP: src, DstIP: dst}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		body := append(append(make([]byte, 4), dst.To16()...), options...)
		return frame(t, layers.EthernetTypeIPv6, ip, icmp, gopacket.Payload(body))
	}
	isNA := func(f []byte) bool {
		l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		return ok && l.TypeCode.Type() == layers.ICMPv6TypeNeighborAdvertisement
	}
	before := d.counters()
	g.send(solicit(255, []byte{1, 0, 1, 2, 3, 4, 5, 6}), solicit(255, []byte{1, 9, 1, 2, 3, 4, 5, 6}))
	d.counts("neigh_drop_nd-opt", before["neigh_drop_nd-opt"]+2)
	g.send(solicit(64, nil))
	d.counts("neigh_drop_hop-limit", before["neigh_drop_hop-limit"]+1)
	g.silence("an answer to bad NDP", isNA)
	g.send(solicit(255, append([]byte{1, 1}, guestMAC...)))
	g.await("an answer to good NDP", isNA)
	g.leave()
	d.healthy()
}

// arpFlood asks for every address: answers within the limit, nothing kept.
func arpFlood(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	g.ping()
	for i := range 2000 {
		g.send(arpFor(t, net.IP{10, 0, 2, byte(i)}))
		if i%100 == 0 {
			g.receive()
		}
	}
	d.counts("neigh_drop_rate", 1)
	g.ping()
	g.leave()
	d.healthy()
}

// badDHCP: every way to be too short, and a wish for somebody else's address.
func badDHCP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	request := func(change func(*layers.DHCPv4)) []byte {
		m := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: 7, ClientHWAddr: guestMAC,
			Options: layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeDiscover)})}}
		change(m)
		ip := ip4(layers.IPProtocolUDP, net.IPv4zero.To4(), net.IPv4bcast.To4())
		u := &layers.UDP{SrcPort: 68, DstPort: 67}
		_ = u.SetNetworkLayerForChecksum(ip)
		return frame(t, layers.EthernetTypeIPv4, ip, u, m)
	}
	reply := func(f []byte) *layers.DHCPv4 {
		m, _ := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
		return m
	}
	good := request(func(*layers.DHCPv4) {})
	for n := 0; n < len(good)-42; n += 7 { // cut inside, lengths and checksum right
		ip := ip4(layers.IPProtocolUDP, net.IPv4zero.To4(), net.IPv4bcast.To4())
		u := &layers.UDP{SrcPort: 68, DstPort: 67}
		_ = u.SetNetworkLayerForChecksum(ip)
		g.send(frame(t, layers.EthernetTypeIPv4, ip, u, gopacket.Payload(good[42:42+n])))
	}
	g.receive()
	g.send(request(func(m *layers.DHCPv4) { m.HardwareLen = 200 }))
	g.send(request(func(m *layers.DHCPv4) {
		m.Options = layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeRequest)}),
			layers.NewDHCPOption(layers.DHCPOptRequestIP, []byte{10, 0, 2, 99}),
		}
	}))
	nak := g.await("a NAK", func(f []byte) bool { return reply(f) != nil && messageType(reply(f)) == layers.DHCPMsgTypeNak })
	if a := reply(nak).YourClientIP; !a.IsUnspecified() {
		t.Errorf("the NAK gives %v", a)
	}
	g.send(good)
	offer := g.await("an offer", func(f []byte) bool { return reply(f) != nil && messageType(reply(f)) == layers.DHCPMsgTypeOffer })
	if a := reply(offer).YourClientIP; !a.Equal(guestIP) {
		t.Errorf("offered %v, want %v", a, guestIP)
	}
	g.leave()
	d.healthy()
}

func messageType(m *layers.DHCPv4) layers.DHCPMsgType {
	for _, o := range m.Options {
		if o.Type == layers.DHCPOptMessageType && len(o.Data) == 1 {
			return layers.DHCPMsgType(o.Data[0])
		}
	}
	return 0
}

// badDNS: compression loops, long labels, 65,535 questions, answers as queries.
func badDNS(t *testing.T) {
	d := start(t, func(o *configOptions) { o.DNSHost = []string{"127.0.0.1:9"} })
	g := d.guest()
	ask := func(b []byte) { g.send(udp(t, guestIP, net.IP{10, 0, 2, 3}, 53, b)) }
	head := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	ask(nil)
	ask(head)
	ask(append(append([]byte(nil), head...), 0xc0, 12, 0, 1, 0, 1))                       // a name that is itself
	ask(append(append([]byte(nil), head...), append([]byte{64}, make([]byte, 70)...)...)) // a label of 64
	ask(append([]byte{0, 7, 1, 0, 255, 255, 0, 0, 0, 0, 0, 0}, 1, 'a', 0, 0, 1, 0, 1))
	ask(append([]byte{0, 7, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, 1, 'a', 0, 0, 1, 0, 1))
	d.counts("net_tx_frames", 6)
	g.ping()
	g.leave()
	d.healthy()
}
