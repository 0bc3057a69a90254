package translate

import (
	"net"
	"net/netip"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

type noResolver struct{}

func (noResolver) Upstreams() []netip.AddrPort {
	return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}
}
func (noResolver) Search() []string { return nil }

type clock struct{ *eventloop.Wheel }

// rig is a translator between a fake guest link and a scripted kernel.
type rig struct {
	t    *testing.T
	tr   *Translator
	ep   *linktest.Endpoint
	host *hostsocktest.Kernel
}

var (
	guestMAC = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	ourMAC   = net.HardwareAddr{0x52, 0x55, 10, 0, 2, 2}
)

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	c := Config{
		MAC: wire.MAC(ourMAC), MTU: 1500, MaxFlows: 1024, Rand: func() uint32 { return 7 },
		V4: Net{Guest: netip.MustParsePrefix("10.0.2.15/24"), Gateway: netip.MustParseAddr("10.0.2.2"), DNS: netip.MustParseAddr("10.0.2.3")},
		V6: Net{Guest: netip.MustParsePrefix("fd67:7765:7374::15/64"), Gateway: netip.MustParseAddr("fd67:7765:7374::2"), DNS: netip.MustParseAddr("fd67:7765:7374::3")},
	}
	if change != nil {
		change(&c)
	}
	r := &rig{t: t, ep: linktest.NewEndpoint(t, linktest.AllCaps(1500)), host: hostsocktest.New(t)}
	wheel := eventloop.NewWheel(1)
	var err error
	r.tr, err = New(c, Deps{Host: r.host, Timers: wheel, Clock: clock{wheel}, Resolver: noResolver{}})
	if err != nil {
		t.Fatal(err)
	}
	r.tr.LinkUp(r.ep, true)
	r.ep.Take()
	return r
}

// send gives the translator one frame.
func (r *rig) send(ls ...gopacket.SerializableLayer) {
	r.t.Helper()
	r.tr.Frames([]link.Frame{r.frame(ls...)})
}

// frame puts the layers together, with lengths and checksums, in two segments.
func (r *rig) frame(ls ...gopacket.SerializableLayer) link.Frame {
	r.t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		r.t.Fatal(err)
	}
	b := buf.Bytes()
	return link.Frame{Len: len(b), Segs: [][]byte{b[:20], b[20:]}}
}

func (r *rig) counter(name string) (value uint64) {
	r.tr.Each(func(n string, v uint64) {
		if n == name {
			value = v
		}
	})
	return value
}

func eth(src net.HardwareAddr, t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: src, DstMAC: ourMAC, EthernetType: t}
}

func udp4(src, dst string, dport uint16) []gopacket.SerializableLayer {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP(src).To4(), DstIP: net.ParseIP(dst).To4()}
	u := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(dport)}
	_ = u.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{eth(guestMAC, layers.EthernetTypeIPv4), ip, u, gopacket.Payload("hello")}
}

func udp6(src, dst string, dport uint16) []gopacket.SerializableLayer {
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP(src), DstIP: net.ParseIP(dst)}
	u := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(dport)}
	_ = u.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{eth(guestMAC, layers.EthernetTypeIPv6), ip, u, gopacket.Payload("hello")}
}

// Every source that a guest may not have is dropped under its reason, before it
// can make a flow.
func TestAdmission(t *testing.T) {
	for _, tt := range []struct {
		name, counter string
		frame         []gopacket.SerializableLayer
	}{
		{"good", "", udp4("10.0.2.15", "198.51.100.7", 9)},
		{"another address of the link", "", udp4("10.0.2.77", "198.51.100.7", 9)},
		{"good IPv6", "", udp6("fd67:7765:7374::15", "2001:db8::7", 9)},
		{"SLAAC", "", udp6("fd67:7765:7374:0:5054:ff:fe12:3456", "2001:db8::7", 9)},
		{"unspecified", "drop_addr-source", udp4("0.0.0.0", "198.51.100.7", 9)},
		{"loopback", "drop_addr-source", udp4("127.0.0.1", "198.51.100.7", 9)},
		{"multicast source", "drop_addr-source", udp4("224.0.0.1", "198.51.100.7", 9)},
		{"foreign", "drop_addr-source", udp4("192.0.2.1", "198.51.100.7", 9)},
		{"ours", "drop_addr-source", udp4("10.0.2.2", "198.51.100.7", 9)},
		{"the resolver's", "drop_addr-source", udp4("10.0.2.3", "198.51.100.7", 9)},
		{"foreign IPv6", "drop_addr-source", udp6("2001:db8::1", "2001:db8::7", 9)},
		{"multicast", "drop_multicast", udp4("10.0.2.15", "239.1.2.3", 9)},
		{"broadcast", "drop_multicast", udp4("10.0.2.15", "255.255.255.255", 9)},
		{"multicast IPv6", "drop_multicast", udp6("fd67:7765:7374::15", "ff02::fb", 9)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.send(tt.frame...)
			if tt.counter == "" {
				if r.counter("flows") != 1 {
					t.Errorf("%d flows, want 1", r.counter("flows"))
				}
				return
			}
			if got := r.counter(tt.counter); got != 1 || r.counter("flows") != 0 {
				t.Errorf("%s is %d, %d flows; want 1 and 0", tt.counter, got, r.counter("flows"))
			}
		})
	}
}

// One guest is one MAC address: the first counts, until the guest says by ARP or
// DHCP that it has another one.
func TestOneMAC(t *testing.T) {
	r := newRig(t, nil)
	r.send(udp4("10.0.2.15", "198.51.100.7", 9)...)
	other := udp4("10.0.2.15", "198.51.100.7", 10)
	other[0].(*layers.Ethernet).SrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	r.send(other...)
	if r.counter("drop_mac") != 1 || r.counter("flows") != 1 {
		t.Errorf("drop_mac %d, flows %d; want 1 and 1", r.counter("drop_mac"), r.counter("flows"))
	}
	r.send(eth(net.HardwareAddr{2, 0, 0, 0, 0, 9}, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: []byte{2, 0, 0, 0, 0, 9}, SourceProtAddress: []byte{10, 0, 2, 15}, DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 0, 2, 2},
	})
	r.send(other...)
	if r.counter("drop_mac") != 1 || r.counter("flows") != 2 {
		t.Errorf("after ARP: drop_mac %d, flows %d; want 1 and 2", r.counter("drop_mac"), r.counter("flows"))
	}
	multicast := udp4("10.0.2.15", "198.51.100.7", 9)
	multicast[0].(*layers.Ethernet).SrcMAC = net.HardwareAddr{3, 0, 0, 0, 0, 9}
	r.send(multicast...)
	if r.counter("drop_mac") != 2 {
		t.Error("a multicast MAC is taken")
	}
}

func TestSwitchedOff(t *testing.T) {
	for _, tt := range []struct {
		name, counter string
		change        func(*Config)
		frame         []gopacket.SerializableLayer
	}{
		{"UDP", "drop_protocol", func(c *Config) { c.Off.UDP = true }, udp4("10.0.2.15", "198.51.100.7", 9)},
		{"IPv6", "drop_family", func(c *Config) { c.V6 = Net{} }, udp6("fd67:7765:7374::15", "2001:db8::7", 9)},
		{"IPv4", "drop_family", func(c *Config) { c.V4 = Net{} }, udp4("10.0.2.15", "198.51.100.7", 9)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.change)
			r.send(tt.frame...)
			if r.counter(tt.counter) != 1 || r.counter("flows") != 0 {
				t.Errorf("%s is %d, %d flows", tt.counter, r.counter(tt.counter), r.counter("flows"))
			}
		})
	}
}

// Inbound forwards follow the guest to the address that it really uses.
func TestFollowsTheGuest(t *testing.T) {
	r := newRig(t, nil)
	at := func() string { return r.tr.port.Addr6.ToNetip().String() }
	for _, tt := range []struct{ from, at string }{
		{"fd67:7765:7374::aaaa", "fd67:7765:7374::aaaa"},
		{"fd67:7765:7374::bbbb", "fd67:7765:7374::bbbb"},
		{"fd67:7765:7374::15", "fd67:7765:7374::15"},   // the lease
		{"fd67:7765:7374::bbbb", "fd67:7765:7374::15"}, // stays
	} {
		r.send(udp6(tt.from, "2001:db8::7", 9)...)
		if at() != tt.at {
			t.Errorf("after a packet from %s the guest is at %s, want %s", tt.from, at(), tt.at)
		}
	}
}

// A reboot ends the flows and what was learned; forwards keep listening.
func TestReboot(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Forwards = []forward.Rule{}
		rules, err := forward.ParseSpec(hostsock.TCP, "8080:80")
		if err != nil {
			t.Fatal(err)
		}
		c.Forwards = rules
	})
	r.send(udp4("10.0.2.15", "198.51.100.7", 9)...)
	r.tr.LinkDown()
	r.tr.LinkUp(r.ep, false)
	if r.counter("flows") != 1 {
		t.Error("a pause has ended the flow")
	}
	r.tr.LinkDown()
	r.tr.GuestGone()
	if r.counter("flows") != 0 {
		t.Error("the flow waits for the next guest")
	}
	r.tr.LinkUp(r.ep, true)
	if r.counter("flows") != 0 || !r.tr.port.Addr4.IsZero() || (r.tr.port.MAC != wire.MAC{}) {
		t.Errorf("%d flows, address %v, MAC %v after a reboot", r.counter("flows"), r.tr.port.Addr4, r.tr.port.MAC)
	}
	if len(r.tr.Bound()) == 0 {
		t.Error("the forward is gone")
	}
}

// A fault of guest memory that cuts a batch short ends the flows: nothing that was
// gathered is sent later, from memory that is another's by then.
func TestBatchCutShort(t *testing.T) {
	r := newRig(t, nil)
	gone, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(gone) }()
	good := r.frame(udp4("10.0.2.15", "198.51.100.7", 9)...)
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { _ = recover() }() // as the loop does
		r.tr.Frames([]link.Frame{good, {Len: len(gone), Segs: [][]byte{gone}}})
		t.Fatal("no fault")
	}()
	r.tr.LinkDown()
	r.tr.LinkUp(r.ep, false)
	r.send(udp4("10.0.2.15", "198.51.100.8", 9)...)
	if r.counter("flows") != 1 || r.counter("udp_to_host") != 1 {
		t.Errorf("%d flows, %d datagrams sent; want one, of the second batch", r.counter("flows"), r.counter("udp_to_host"))
	}
}

// FuzzFrames: nothing that a guest sends upsets the translator.
func FuzzFrames(f *testing.F) {
	for _, ls := range [][]gopacket.SerializableLayer{udp4("10.0.2.15", "198.51.100.7", 53), udp6("fd67:7765:7374::15", "2001:db8::7", 547), udp4("0.0.0.0", "255.255.255.255", 67)} {
		buf := gopacket.NewSerializeBuffer()
		_ = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...)
		f.Add(buf.Bytes(), uint8(0), uint16(0), uint16(0), uint16(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, gso uint8, size, start, off uint16) {
		if len(b) < 14 {
			return
		}
		r := newRig(t, nil)
		// Checksums stand in the way of a fuzzer: the second frame says that they are good.
		for _, o := range []link.Offload{
			{GSO: link.GSO(gso % 4), SegSize: size, NeedsCsum: gso&4 != 0, CsumStart: start, CsumOff: off},
			{DataValid: true},
		} {
			r.tr.Frames([]link.Frame{{Len: len(b), Segs: [][]byte{b[:14], b[14:]}, Off: o}})
		}
		if n := r.counter("flows"); n > 2 {
			t.Errorf("%d flows of two frames", n)
		}
		r.tr.Close()
		if n := r.counter("flows"); n != 0 {
			t.Errorf("%d flows after Close", n)
		}
	})
}
