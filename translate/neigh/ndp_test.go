package neigh

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/ndp"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

const (
	gw6    = "fd67:7765:7374::2"
	lease6 = "fd67:7765:7374::15"
	slaac6 = "fd67:7765:7374::abcd"
	ll6    = "fe80::15"
)

func netipOf(s string) netip.Addr { return netip.MustParseAddr(s) }

// ndFrame is an ICMPv6 message in a frame of the guest's, encoded by mdlayher/ndp.
func ndFrame(t testing.TB, src, dst string, hop uint8, m ndp.Message) []byte {
	t.Helper()
	b, err := ndp.MarshalMessage(m)
	if err != nil {
		t.Fatal(err)
	}
	return icmpFrame(t, src, dst, hop, b)
}

func icmpFrame(t testing.TB, src, dst string, hop uint8, msg []byte) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: hop,
		SrcIP: netipOf(src).AsSlice(), DstIP: netipOf(dst).AsSlice()}
	ic := &layers.ICMPv6{TypeCode: layers.ICMPv6TypeCode(uint16(msg[0])<<8 | uint16(msg[1]))}
	if err := ic.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return serialize(t,
		&layers.Ethernet{SrcMAC: hw(guestMAC), DstMAC: hw(ourMAC), EthernetType: layers.EthernetTypeIPv6},
		ip, ic, gopacket.Payload(msg[4:]))
}

func slla(m wire.MAC) ndp.Option { return &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: hw(m)} }
func tlla(m wire.MAC) ndp.Option { return &ndp.LinkLayerAddress{Direction: ndp.Target, Addr: hw(m)} }

func ns(target string, o ...ndp.Option) ndp.Message {
	return &ndp.NeighborSolicitation{TargetAddress: netipOf(target), Options: o}
}

// decode reads a frame of ours with gopacket (which verifies lengths) and the
// message with mdlayher/ndp, and checks the checksum by gopacket's own sum.
func decode(t *testing.T, f linktest.Frame) (*layers.Ethernet, *layers.IPv6, ndp.Message) {
	t.Helper()
	pkt := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
	ip, ok := pkt.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	if !ok {
		t.Fatalf("no IPv6 in % x", f.Data)
	}
	m, err := ndp.ParseMessage(ip.Payload)
	if err != nil {
		t.Fatalf("%v\n% x", err, ip.Payload)
	}
	ic := pkt.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if err := ic.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	if err, sum := ic.VerifyChecksum(); err != nil || !sum.Valid {
		t.Errorf("checksum: %v, %+v", err, sum)
	}
	return pkt.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), ip, m
}

func TestNeighbourSolicitation(t *testing.T) {
	tests := []struct {
		name   string
		src    string
		dst    string
		target string
		opts   []ndp.Option
		router bool
		answer bool
		drop   Drop
	}{
		{"gateway", slaac6, gw6, gw6, []ndp.Option{slla(guestMAC)}, true, true, 0},
		{"gateway's link-local address", ll6, "ff02::1:ff00:2", "fe80::2", []ndp.Option{slla(guestMAC)}, true, true, 0},
		{"forwarder", slaac6, "ff02::1:ff00:3", "fd67:7765:7374::3", nil, true, true, 0},
		{"anything on the link", slaac6, "ff02::1:ff00:77", "fd67:7765:7374::77", nil, false, true, 0},
		{"link-local stranger", ll6, "ff02::1:ff00:77", "fe80::77", nil, false, true, 0},
		{"with another option", slaac6, gw6, gw6, []ndp.Option{ndp.NewMTU(1500), slla(guestMAC)}, true, true, 0},
		{"lease", slaac6, "ff02::1:ff00:15", lease6, nil, false, false, DropOther},
		{"itself", slaac6, "ff02::1:ff00:abcd", slaac6, nil, false, false, DropOther},
		{"off the link", slaac6, "ff02::1:ff00:1", "2001:db8::1", nil, false, false, DropOther},
		{"DAD for the lease", "::", "ff02::1:ff00:15", lease6, nil, false, false, DropOther},
		{"DAD for a SLAAC address", "::", "ff02::1:ff00:abcd", slaac6, nil, false, false, DropOther},
		{"DAD for a link-local address", "::", "ff02::1:ff00:15", ll6, nil, false, false, DropOther},
		{"DAD for the gateway", "::", "ff02::1:ff00:2", gw6, nil, true, true, 0},
		{"DAD not to the solicited-node group", "::", "ff02::1", gw6, nil, false, false, DropFormat},
		{"DAD with a link-layer address", "::", "ff02::1:ff00:2", gw6, []ndp.Option{slla(guestMAC)}, false, false, DropFormat},
		{"multicast target", slaac6, gw6, "ff02::1", nil, false, false, DropFormat},
		{"foreign link-layer address", slaac6, gw6, gw6, []ndp.Option{slla(otherMAC)}, false, false, DropFormat},
		{"from the gateway", gw6, "ff02::1:ff00:15", lease6, nil, false, false, DropClaim},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			sent := b.give(ndFrame(t, tt.src, tt.dst, 255, ns(tt.target, tt.opts...)))
			var want [NumDrops]uint64
			if !tt.answer {
				want[tt.drop] = 1
			}
			if got := b.n.Stats().Drops; got != want {
				t.Errorf("drops %v, want %v", got, want)
			}
			if !tt.answer {
				if len(sent) != 0 {
					t.Errorf("answered with %d frames", len(sent))
				}
				return
			}
			if len(sent) != 1 {
				t.Fatalf("%d frames", len(sent))
			}
			eth, ip, m := decode(t, sent[0])
			na, ok := m.(*ndp.NeighborAdvertisement)
			if !ok {
				t.Fatalf("%T", m)
			}
			dad := tt.src == "::"
			to, mac := tt.src, guestMAC.String()
			if dad {
				to, mac = "ff02::1", "33:33:00:00:00:01"
			}
			if ip.SrcIP.String() != tt.target || ip.DstIP.String() != to || ip.HopLimit != 255 || eth.DstMAC.String() != mac {
				t.Errorf("%s -> %s hop %d to %s", ip.SrcIP, ip.DstIP, ip.HopLimit, eth.DstMAC)
			}
			if na.TargetAddress != netipOf(tt.target) || na.Solicited == dad || na.Router != tt.router || na.Override != tt.router {
				t.Errorf("%+v", na)
			}
			if len(na.Options) != 1 {
				t.Fatalf("options %v", na.Options)
			}
			if o := na.Options[0].(*ndp.LinkLayerAddress); o.Direction != ndp.Target || o.Addr.String() != ourMAC.String() {
				t.Errorf("option %+v", o)
			}
		})
	}
}

func TestNDPHostile(t *testing.T) {
	body, err := ndp.MarshalMessage(ns(gw6, slla(guestMAC)))
	if err != nil {
		t.Fatal(err)
	}
	raMsg, _ := ndp.MarshalMessage(&ndp.RouterAdvertisement{RouterLifetime: time.Hour})
	mapped := append([]byte{}, body...)
	copy(mapped[8:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 2, 2})
	redirect := make([]byte, 40)
	redirect[0] = 137
	tests := []struct {
		name string
		hop  uint8
		msg  []byte
		drop Drop
	}{
		{"hop limit 254", 254, body, DropHopLimit},
		{"hop limit 1", 1, body, DropHopLimit},
		{"IPv4 target", 255, mapped, DropFormat}, // it is an address of ours, but not here
		{"code", 255, patch(body, 1, 1), DropFormat},
		{"option length 0", 255, patch(body, 25, 0), DropOption},
		{"option past the end", 255, patch(body, 25, 2), DropOption},
		{"half an option", 255, append(append([]byte{}, body...), 1), DropOption},
		{"no target", 255, body[:20], DropShort},
		{"short solicitation of a router", 255, []byte{133, 0, 0, 0}, DropShort},
		{"router advertisement", 255, raMsg, DropRouter},
		{"redirect", 255, redirect, DropRouter},
		{"too long", 255, append(append([]byte{}, body...), make([]byte, 1600)...), DropFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			frame := icmpFrame(t, slaac6, gw6, tt.hop, tt.msg)
			var p wire.Packet
			f := link.Frame{Len: len(frame), Segs: [][]byte{frame}}
			if v := wire.Parse(&p, &f); v != wire.OK {
				t.Skipf("refused before it gets here: %v", v)
			}
			b.n.Input(&p, &f)
			var want [NumDrops]uint64
			want[tt.drop] = 1
			if got := b.n.Stats().Drops; got != want || len(b.ep.Take()) != 0 {
				t.Errorf("drops %v, want %v", got, want)
			}
		})
	}
}

func checkAdvert(t *testing.T, f linktest.Frame, to, mac string) *ndp.RouterAdvertisement {
	t.Helper()
	eth, ip, m := decode(t, f)
	ra, ok := m.(*ndp.RouterAdvertisement)
	if !ok {
		t.Fatalf("%T", m)
	}
	if ip.SrcIP.String() != "fe80::2" || ip.DstIP.String() != to || eth.DstMAC.String() != mac || ip.HopLimit != 255 {
		t.Errorf("%s -> %s hop %d to %s", ip.SrcIP, ip.DstIP, ip.HopLimit, eth.DstMAC)
	}
	return ra
}

func TestRouterSolicitation(t *testing.T) {
	b := newBench(t, nil)
	sent := b.give(ndFrame(t, ll6, "ff02::2", 255, &ndp.RouterSolicitation{Options: []ndp.Option{slla(guestMAC)}}))
	if len(sent) != 1 {
		t.Fatalf("%d frames", len(sent))
	}
	ra := checkAdvert(t, sent[0], ll6, guestMAC.String())
	if ra.CurrentHopLimit != 64 || !ra.ManagedConfiguration || !ra.OtherConfiguration || ra.RouterLifetime != 9000*time.Second ||
		ra.ReachableTime != 0 || ra.RetransmitTimer != 0 {
		t.Errorf("%+v", ra)
	}
	var seen int
	for _, o := range ra.Options {
		seen++
		switch o := o.(type) {
		case *ndp.LinkLayerAddress:
			if o.Direction != ndp.Source || !bytes.Equal(o.Addr, ourMAC[:]) {
				t.Errorf("%+v", o)
			}
		case *ndp.MTU:
			if o.MTU != 1500 {
				t.Errorf("%+v", o)
			}
		case *ndp.PrefixInformation:
			if o.PrefixLength != 64 || !o.OnLink || !o.AutonomousAddressConfiguration || o.Prefix != netipOf("fd67:7765:7374::") ||
				o.ValidLifetime != 30*24*time.Hour || o.PreferredLifetime != 7*24*time.Hour {
				t.Errorf("%+v", o)
			}
		case *ndp.RecursiveDNSServer:
			if len(o.Servers) != 1 || o.Servers[0] != netipOf("fd67:7765:7374::3") || o.Lifetime != 9000*time.Second {
				t.Errorf("%+v", o)
			}
		case *ndp.DNSSearchList:
			if len(o.DomainNames) != 2 || o.DomainNames[0] != "example.com" || o.DomainNames[1] != "corp.example" || o.Lifetime != 9000*time.Second {
				t.Errorf("%+v", o)
			}
		default:
			t.Errorf("%T", o)
		}
	}
	if seen != 5 {
		t.Errorf("%d options, want 5", seen)
	}
	if b.port.LL6 != addr(ll6) || b.port.MAC != guestMAC {
		t.Errorf("learned %v %v", b.port.LL6, b.port.MAC)
	}

	sent = b.give(ndFrame(t, "::", "ff02::2", 255, &ndp.RouterSolicitation{}))
	if len(sent) != 1 {
		t.Fatalf("%d frames", len(sent))
	}
	checkAdvert(t, sent[0], "ff02::1", "33:33:00:00:00:01")
}

func TestAdvertVariants(t *testing.T) {
	rs := ndFrame(t, ll6, "ff02::2", 255, &ndp.RouterSolicitation{})
	get := func(change func(*Config)) *ndp.RouterAdvertisement {
		sent := newBench(t, change).give(rs)
		if len(sent) != 1 {
			t.Fatalf("%d frames", len(sent))
		}
		if len(sent[0].Data) > 14+1280 {
			t.Errorf("advertisement of %d bytes", len(sent[0].Data))
		}
		return checkAdvert(t, sent[0], ll6, guestMAC.String())
	}
	if ra := get(func(c *Config) { c.DHCPv6 = false }); ra.ManagedConfiguration || ra.OtherConfiguration {
		t.Errorf("flags without DHCPv6: %+v", ra)
	}
	ra := get(func(c *Config) { c.Net6 = netip.MustParsePrefix("fd67:7765:7374::/96") })
	for _, o := range ra.Options {
		if o, ok := o.(*ndp.PrefixInformation); ok && (o.AutonomousAddressConfiguration || o.PrefixLength != 96) {
			t.Errorf("a prefix that is not a /64: %+v", o)
		}
	}
	many := func() (s []string) {
		for range 200 {
			s = append(s, "a-rather-long-domain-name.example.com", "bad..name", "")
		}
		return s
	}
	domains := 0
	ra = get(func(c *Config) {
		c.Search, c.MTU = many, 0
		for range 20 {
			c.RDNSS = append(c.RDNSS, addr(gw6), addr("10.0.2.3"))
		}
	})
	for _, o := range ra.Options {
		switch o := o.(type) {
		case *ndp.DNSSearchList:
			domains += len(o.DomainNames)
		case *ndp.RecursiveDNSServer:
			if len(o.Servers) < 4 || len(o.Servers) > maxNameServers {
				t.Errorf("%d servers", len(o.Servers))
			}
		case *ndp.MTU:
			t.Error("MTU announced although 0")
		}
	}
	if domains < 20 {
		t.Errorf("%d domains fit", domains)
	}
	off := newBench(t, func(c *Config) { c.RA = false })
	if sent := off.give(rs); len(sent) != 0 {
		t.Error("advertised with RA off")
	}
	off = newBench(t, func(c *Config) { c.NDP = false })
	if sent := off.give(rs); len(sent) != 0 {
		t.Error("advertised with NDP off")
	}
}

func TestLearningFromAdvertisement(t *testing.T) {
	b := newBench(t, nil)
	give := func(target string, o ...ndp.Option) {
		b.give(ndFrame(t, target, "fe80::2", 255, &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: netipOf(target), Options: o}))
	}
	give("2001:db8::1")
	if !b.port.Addr6.IsZero() {
		t.Errorf("learned %v from off the link", b.port.Addr6)
	}
	give(slaac6, tlla(guestMAC))
	if b.port.Addr6 != addr(slaac6) || b.port.MAC != guestMAC {
		t.Errorf("learned %v %v", b.port.Addr6, b.port.MAC)
	}
	give("fd67:7765:7374::beef")
	if b.port.Addr6 != addr(slaac6) {
		t.Errorf("moved to %v", b.port.Addr6)
	}
	give(lease6, tlla(guestMAC))
	if b.port.Addr6 != addr(lease6) {
		t.Errorf("the lease was not preferred: %v", b.port.Addr6)
	}
	// A claim of the gateway's address, from an address of the guest's own.
	b.give(ndFrame(t, slaac6, "ff02::1", 255, &ndp.NeighborAdvertisement{Override: true, TargetAddress: netipOf(gw6), Options: []ndp.Option{tlla(guestMAC)}}))
	if b.n.Stats().Drops[DropClaim] != 1 {
		t.Errorf("claim not counted: %v", b.n.Stats().Drops)
	}
}

// After link up: one probe per family and one advertisement at once, more probes
// with back-off until the guest is heard, more advertisements at the times of
// RFC 4861.
func TestLinkUp(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Rand = func() uint32 { return 100_000 } })
	var adverts, arps, solicits []eventloop.Time
	count := func() {
		for _, f := range b.ep.Take() {
			pkt := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
			if a, ok := pkt.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
				if a.Operation != layers.ARPRequest || net.IP(a.DstProtAddress).String() != "10.0.2.15" || net.IP(a.SourceProtAddress).String() != "10.0.2.2" {
					t.Errorf("probe %+v", a)
				}
				arps = append(arps, b.timers.Now())
				continue
			}
			eth, ip, m := decode(t, f)
			switch m := m.(type) {
			case *ndp.RouterAdvertisement:
				adverts = append(adverts, b.timers.Now())
			case *ndp.NeighborSolicitation:
				if m.TargetAddress != netipOf(lease6) || ip.DstIP.String() != "ff02::1:ff00:15" || eth.DstMAC.String() != "33:33:ff:00:00:15" {
					t.Errorf("probe %+v to %s %s", m, ip.DstIP, eth.DstMAC)
				}
				solicits = append(solicits, b.timers.Now())
			}
		}
	}
	b.n.LinkUp()
	count()
	for range 1000 {
		b.timers.Advance(b.timers.Now() + 1e9)
		count()
	}
	seconds := func(ts []eventloop.Time) (s []int) {
		for _, t := range ts {
			s = append(s, int((t+5e8)/1e9))
		}
		return s
	}
	// 100,000 ms above the least interval of 200 s.
	want(t, "advertisements", seconds(adverts), []int{0, 16, 32, 332, 632, 932})
	if k := len(arps); k != len(solicits) || k < 20 || k > 25 {
		t.Errorf("%d and %d probes in 1000 s", k, len(solicits))
	}
	want(t, "first probes", seconds(arps[:7]), []int{0, 1, 3, 7, 15, 31, 63})

	b.port.MAC = guestMAC
	n := len(arps)
	for range 300 {
		b.timers.Advance(b.timers.Now() + 1e9)
		count()
	}
	if len(arps) != n {
		t.Error("probes go on after the guest was heard")
	}
	b.n.LinkDown()
	b.port.Up = false
	b.ep.Take()
	b.timers.Advance(b.timers.Now() + 3600e9)
	if len(b.ep.Take()) != 0 {
		t.Error("frames after link down")
	}
}

func want(t *testing.T, what string, got, want []int) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s at %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] < want[i] || got[i] > want[i]+1 {
			t.Errorf("%s at %v, want %v", what, got, want)
			return
		}
	}
}

func FuzzNDP(f *testing.F) {
	for _, m := range []ndp.Message{ns(gw6, slla(guestMAC)), &ndp.RouterSolicitation{}, &ndp.NeighborAdvertisement{TargetAddress: netipOf(slaac6)}} {
		b, _ := ndp.MarshalMessage(m)
		f.Add(b, false)
	}
	f.Add([]byte{0, 1, 8, 0, 6, 4, 0, 1}, true)
	f.Fuzz(func(t *testing.T, msg []byte, arp bool) {
		b := newBench(t, nil)
		var p wire.Packet
		if arp {
			frame := append(arpFrame(t, 1, guestMAC, guestMAC, "10.0.2.15", "10.0.2.2")[:14], msg...)
			p.EtherType, p.EthSrc = wire.EtherARP, guestMAC
			p.HeadLen = copy(p.Head[:], frame)
			b.n.Input(&p, &link.Frame{Len: len(frame), Segs: [][]byte{frame}})
		} else {
			if len(msg) < 4 {
				return
			}
			// As if every checksum were right, so that the fuzzer gets further.
			frame := append(make([]byte, 54), msg...)
			p = wire.Packet{EtherType: wire.EtherIPv6, V6: true, Proto: wire.ProtoICMPv6, TTL: 255, EthSrc: guestMAC,
				Src: addr(slaac6), Dst: addr(gw6), ICMPType: msg[0], ICMPCode: msg[1],
				L4Off: 54, PayloadOff: 58, PayloadLen: len(msg) - 4}
			b.n.Input(&p, &link.Frame{Len: len(frame), Segs: [][]byte{frame}})
		}
		if sent := b.ep.Take(); len(sent) > 1 {
			t.Errorf("%d frames for one", len(sent))
		}
	})
}
