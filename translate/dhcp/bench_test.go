package dhcp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

func addr(s string) wire.Addr { return wire.FromNetip(netip.MustParseAddr(s)) }

var (
	guestMAC = wire.MAC{0x02, 0, 0, 0, 0, 0x15}
	ourMAC   = wire.MAC{0x52, 0x55, 0x0a, 0, 0x02, 0x02}
)

const guestLL = "fe80::15"

type bench struct {
	t    testing.TB
	s    *Server
	ep   *linktest.Endpoint
	port *guest.Port
	logs int
}

func newBench(t testing.TB, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, ep: linktest.NewEndpoint(t, link.Caps{MTU: 1500})}
	c := Config{
		Addr4: addr("10.0.2.15"), Bits4: 24, Router4: addr("10.0.2.2"), DNS4: []wire.Addr{addr("10.0.2.3")},
		Addr6: addr("fd67:7765:7374::15"), Bits6: 64, DNS6: []wire.Addr{addr("fd67:7765:7374::3")},
		MTU: 1500, Hostname: "guest", FQDN: "guest.example.com",
		Search: func() []string { return []string{"example.com", "corp.example"} },
		Log:    func(string, ...any) { b.logs++ },
	}
	if change != nil {
		change(&c)
	}
	b.port = &guest.Port{
		EP: b.ep, Caps: b.ep.Caps(), Up: true, OurMAC: ourMAC,
		Gateway4: addr("10.0.2.2"), Gateway6: addr("fd67:7765:7374::2"), OurLL6: addr("fe80::2"),
	}
	b.s = New(c, b.port)
	return b
}

// datagram is what reached the guest, taken apart by gopacket.
type datagram struct {
	eth              *layers.Ethernet
	src, dst         string
	srcPort, dstPort uint16
	payload          []byte
}

// give wraps msg in UDP, IP and Ethernet by gopacket, parses it as the translator
// does, and returns the one answer, if any.
func (b *bench) give(v6 bool, dst string, msg []byte) *datagram {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: guestMAC[:], DstMAC: net.HardwareAddr{255, 255, 255, 255, 255, 255}}
	var frame []byte
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 1,
			SrcIP: net.ParseIP(guestLL), DstIP: net.ParseIP(dst)}
		frame = b.serialize(ip, &layers.UDP{SrcPort: 546, DstPort: 547}, eth, ip, msg)
	} else {
		eth.EthernetType = layers.EthernetTypeIPv4
		ip := &layers.IPv4{Version: 4, Protocol: layers.IPProtocolUDP, TTL: 64,
			SrcIP: net.IPv4zero, DstIP: net.ParseIP(dst)}
		frame = b.serialize(ip, &layers.UDP{SrcPort: 68, DstPort: 67}, eth, ip, msg)
	}
	var p wire.Packet
	f := link.Frame{Len: len(frame), Segs: [][]byte{frame[:50], frame[50:]}}
	if v := wire.Parse(&p, &f); v != wire.OK {
		b.t.Fatalf("wire.Parse: %v", v)
	}
	b.s.Input(&p, &f)
	return b.answer()
}

func (b *bench) serialize(nl gopacket.NetworkLayer, udp *layers.UDP, eth *layers.Ethernet, ip gopacket.SerializableLayer, msg []byte) []byte {
	if err := udp.SetNetworkLayerForChecksum(nl); err != nil {
		b.t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, udp, gopacket.Payload(msg)); err != nil {
		b.t.Fatal(err)
	}
	return buf.Bytes()
}

func (b *bench) answer() *datagram {
	b.t.Helper()
	sent := b.ep.Take()
	if len(sent) == 0 {
		return nil
	}
	if len(sent) > 1 {
		b.t.Fatalf("%d frames for one message", len(sent))
	}
	pkt := gopacket.NewPacket(sent[0].Data, layers.LayerTypeEthernet, gopacket.Default)
	d := &datagram{eth: pkt.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)}
	switch ip := pkt.NetworkLayer().(type) {
	case *layers.IPv4:
		d.src, d.dst = ip.SrcIP.String(), ip.DstIP.String()
	case *layers.IPv6:
		d.src, d.dst = ip.SrcIP.String(), ip.DstIP.String()
	}
	udp, ok := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		b.t.Fatalf("no UDP in % x", sent[0].Data)
	}
	if err := udp.SetNetworkLayerForChecksum(pkt.NetworkLayer()); err != nil {
		b.t.Fatal(err)
	}
	if err, sum := udp.VerifyChecksum(); err != nil || !sum.Valid {
		b.t.Errorf("UDP checksum: %v %+v", err, sum)
	}
	d.srcPort, d.dstPort, d.payload = uint16(udp.SrcPort), uint16(udp.DstPort), udp.Payload
	return d
}

func (b *bench) drops(want ...Drop) {
	b.t.Helper()
	var w [NumDrops]uint64
	for _, d := range want {
		w[d]++
	}
	if got := b.s.Stats().Drops; got != w {
		b.t.Errorf("drops %v, want %v", got, w)
	}
}
