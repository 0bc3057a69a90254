package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// dhcp is a DHCPv4 message of the guest, a DISCOVER unless change makes it
// another.
func dhcp(t *testing.T, change func(*layers.DHCPv4)) []byte {
	t.Helper()
	m := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: 7, ClientHWAddr: guestMAC,
		Options: kind(layers.DHCPMsgTypeDiscover)}
	change(m)
	n := ip4(layers.IPProtocolUDP, net.IPv4zero.To4(), net.IPv4bcast.To4())
	u := &layers.UDP{SrcPort: 68, DstPort: 67}
	_ = u.SetNetworkLayerForChecksum(n)
	return frame(t, layers.EthernetTypeIPv4, n, u, m)
}

// kind is the options of a message: its type, and what else there is.
func kind(typ layers.DHCPMsgType, more ...layers.DHCPOption) layers.DHCPOptions {
	return append(layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(typ)})}, more...)
}

func dhcpReply(f []byte) *layers.DHCPv4 {
	m, _ := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
	return m
}

func messageType(m *layers.DHCPv4) layers.DHCPMsgType {
	if b := dhcpOption(m, layers.DHCPOptMessageType); len(b) == 1 {
		return layers.DHCPMsgType(b[0])
	}
	return 0
}

func dhcpOption(m *layers.DHCPv4, o layers.DHCPOpt) []byte {
	for i := range m.Options {
		if m.Options[i].Type == o {
			return m.Options[i].Data
		}
	}
	return nil
}

// awaitDHCP waits for a reply of a type.
func (g *guest) awaitDHCP(typ layers.DHCPMsgType) (frame []byte, m *layers.DHCPv4) {
	g.t.Helper()
	f := g.await(typ.String(), func(f []byte) bool { m := dhcpReply(f); return m != nil && messageType(m) == typ })
	return f, dhcpReply(f)
}

// offered checks that a client that does all right is offered its one address.
func (g *guest) offered() {
	g.t.Helper()
	g.send(dhcp(g.t, func(*layers.DHCPv4) {}))
	if _, m := g.awaitDHCP(layers.DHCPMsgTypeOffer); !m.YourClientIP.Equal(guestIP) {
		g.t.Errorf("offered %v, want %v", m.YourClientIP, guestIP)
	}
}

// raw is the payload of a UDP datagram to the DHCPv4 server.
func rawDHCP(t *testing.T, b []byte) []byte {
	t.Helper()
	n := ip4(layers.IPProtocolUDP, net.IPv4zero.To4(), net.IPv4bcast.To4())
	u := &layers.UDP{SrcPort: 68, DstPort: 67}
	_ = u.SetNetworkLayerForChecksum(n)
	return frame(t, layers.EthernetTypeIPv4, n, u, gopacket.Payload(b))
}

// badDHCP: every way to be too short, options that lie, and a wish for somebody
// else's address. There is one lease, whoever asks.
func badDHCP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	whole := dhcp(t, func(*layers.DHCPv4) {})[42:]
	for n := 0; n < 240; n += 7 { // cut inside, lengths and checksum right
		before := d.counters()["dhcp_drop_short"]
		g.send(rawDHCP(t, whole[:n]))
		d.counts("dhcp_drop_short", before+1)
	}
	discover := func(options ...byte) []byte { return append(append([]byte(nil), whole[:240]...), options...) }
	magic := discover(53, 1, 1, 255)
	magic[237]++
	hlen := discover(53, 1, 1, 255)
	hlen[2] = 16
	reply := discover(53, 1, 1, 255)
	reply[0] = 2
	overload := discover(52, 1, 1, 53, 1, 1, 255) // more options in the file field, which lie
	copy(overload[108:], []byte{61, 200})
	for _, tt := range []struct {
		counter string
		msg     []byte
	}{
		{"dhcp_drop_magic", magic},
		{"dhcp_drop_hardware", hlen},
		{"dhcp_drop_format", reply},
		{"dhcp_drop_option", discover(53)},
		{"dhcp_drop_option", discover(53, 1)},
		{"dhcp_drop_option", discover(53, 2, 1, 1, 255)},
		{"dhcp_drop_option", discover(53, 0, 255)},
		{"dhcp_drop_option", discover(53, 1, 1, 50, 3, 10, 0, 2, 255)},
		{"dhcp_drop_option", discover(53, 1, 1, 61, 255, 1, 2, 3)},
		{"dhcp_drop_option", discover(append(append([]byte{53, 1, 1, 61, 255}, make([]byte, 255)...), 61, 1, 1, 255)...)}, // 256 joined
		{"dhcp_drop_option", overload},
		{"dhcp_drop_kind", discover(53, 1, 2, 255)}, // an offer
		{"dhcp_drop_kind", discover(53, 1, 77, 255)},
		{"dhcp_drop_long", append(discover(53, 1, 1), make([]byte, 1300)...)},
	} {
		before := d.counters()[tt.counter]
		g.send(rawDHCP(t, tt.msg))
		d.counts(tt.counter, before+1)
	}
	g.silence("an answer to bad DHCP", func(f []byte) bool { return dhcpReply(f) != nil })
	for _, good := range [][]byte{
		discover(53, 1, 1), // no end
		discover(append(append([]byte{53, 1, 1, 61, 255}, make([]byte, 255)...), 255)...), // the longest client identifier
		discover(53, 1, 1, 53, 1, 1, 255),                                                 // repeated
		discover(52, 1, 3, 53, 1, 1, 255),                                                 // more options where there are none
		append(discover(53, 1, 1), make([]byte, 900)...),                                  // padded
	} {
		g.send(rawDHCP(t, good))
		if _, m := g.awaitDHCP(layers.DHCPMsgTypeOffer); !m.YourClientIP.Equal(guestIP) {
			t.Errorf("offered %v, want %v", m.YourClientIP, guestIP)
		}
	}
	g.send(dhcp(t, func(m *layers.DHCPv4) {
		m.Options = kind(layers.DHCPMsgTypeRequest, layers.NewDHCPOption(layers.DHCPOptRequestIP, []byte{10, 0, 2, 99}))
	}))
	if _, m := g.awaitDHCP(layers.DHCPMsgTypeNak); !m.YourClientIP.IsUnspecified() {
		t.Errorf("the NAK gives %v", m.YourClientIP)
	}
	for i := range byte(20) { // clients without number: the same lease each time
		g.send(dhcp(t, func(m *layers.DHCPv4) { m.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, 1, i} }))
		if _, m := g.awaitDHCP(layers.DHCPMsgTypeOffer); !m.YourClientIP.Equal(guestIP) {
			t.Errorf("client %d is offered %v", i, m.YourClientIP)
		}
	}
	g.offered()
	g.leave()
	d.healthy()
}

// oddDHCP: what is legal but rare gets the least that the standard asks for.
func oddDHCP(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	isReply := func(f []byte) bool { return dhcpReply(f) != nil }

	g.send(dhcp(t, func(m *layers.DHCPv4) { m.RelayAgentIP = net.IP{192, 0, 2, 1} })) // from a relay: there is none
	d.counts("dhcp_drop_relay", 1)

	for _, tt := range []struct { // RFC 2131, 4.1
		flags uint16
		mac   net.HardwareAddr
		to    net.IP
	}{{0x8000, net.HardwareAddr{255, 255, 255, 255, 255, 255}, net.IPv4bcast.To4()}, {0, guestMAC, guestIP}} {
		g.send(dhcp(t, func(m *layers.DHCPv4) { m.Flags = tt.flags }))
		f, m := g.awaitDHCP(layers.DHCPMsgTypeOffer)
		if !bytes.Equal(f[:6], tt.mac) || !bytes.Equal(f[30:34], tt.to) || m.Flags != tt.flags {
			t.Errorf("flags %#x: offered to % x, %v with flags %#x", tt.flags, f[:6], net.IP(f[30:34]), m.Flags)
		}
	}

	g.send(dhcp(t, func(m *layers.DHCPv4) { m.ClientIP, m.Options = guestIP, kind(layers.DHCPMsgTypeInform) })) // RFC 2131, 4.3.5
	f, m := g.awaitDHCP(layers.DHCPMsgTypeAck)
	if !m.YourClientIP.IsUnspecified() || dhcpOption(m, layers.DHCPOptLeaseTime) != nil || !bytes.Equal(f[30:34], guestIP) || dhcpOption(m, layers.DHCPOptSubnetMask) == nil {
		t.Errorf("INFORM is answered with address %v, lease time %v, to %v", m.YourClientIP, dhcpOption(m, layers.DHCPOptLeaseTime), net.IP(f[30:34]))
	}
	g.send(dhcp(t, func(m *layers.DHCPv4) { m.Options = kind(layers.DHCPMsgTypeInform) })) // of nobody
	d.counts("dhcp_drop_format", 1)

	// Neither of these is answered (RFC 2131, 4.3.3 and 4.3.4), however often.
	ours := layers.NewDHCPOption(layers.DHCPOptServerID, gateway)
	for range 1000 {
		g.send(dhcp(t, func(m *layers.DHCPv4) { m.ClientIP, m.Options = guestIP, kind(layers.DHCPMsgTypeRelease, ours) }))
		g.send(dhcp(t, func(m *layers.DHCPv4) {
			m.Options = kind(layers.DHCPMsgTypeDecline, ours, layers.NewDHCPOption(layers.DHCPOptRequestIP, guestIP))
		}))
	}
	d.counts("dhcp_releases", 1000)
	d.counts("dhcp_declines", 1000)
	g.silence("an answer to RELEASE or DECLINE", isReply)
	g.offered()
	g.leave()
	d.healthy()
}

// dhcp6 is a DHCPv6 message of the guest.
func dhcp6(t *testing.T, kind byte, options ...[]byte) []byte {
	t.Helper()
	dst := net.ParseIP("ff02::1:2")
	n := &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: layers.IPProtocolUDP, SrcIP: linkLocal, DstIP: dst}
	u := &layers.UDP{SrcPort: 546, DstPort: 547}
	_ = u.SetNetworkLayerForChecksum(n)
	return frame(t, layers.EthernetTypeIPv6, n, u, gopacket.Payload(append([]byte{kind, 1, 2, 3}, bytes.Join(options, nil)...)))
}

// option6 is a DHCPv6 option that says that it is n bytes long.
func option6(code uint16, n int, value ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, code)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	return append(b, bytes.Join(value, nil)...)
}

// badDHCPv6: lengths that lie, identifiers that are too long, options in options,
// another server's messages.
func badDHCPv6(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	const solicitKind, requestKind, relayKind = 1, 3, 12
	client := option6(1, 10, []byte{0, 3, 0, 1}, guestMAC)
	ours := option6(2, 10, []byte{0, 3, 0, 1}, ourMAC)
	another := option6(2, 10, []byte{0, 3, 0, 1}, guestMAC)
	ia := func(inner ...byte) []byte { return option6(3, 12+len(inner), make([]byte, 12), inner) }
	nested := []byte{}
	for range 80 { // as deep as it goes
		nested = option6(3, 12+len(nested), make([]byte, 12), nested)
	}
	address := option6(5, 24, guestIP6, make([]byte, 8))
	for _, tt := range []struct {
		name, counter string
		fr            []byte
	}{
		{"half an option", "dhcp_drop_option", dhcp6(t, solicitKind, client, []byte{0, 3})},
		{"beyond the end", "dhcp_drop_option", dhcp6(t, solicitKind, client, option6(3, 13, make([]byte, 12)))},
		{"65,535 long", "dhcp_drop_option", dhcp6(t, solicitKind, option6(1, 65535, make([]byte, 20)))},
		{"association too short", "dhcp_drop_option", dhcp6(t, solicitKind, client, option6(3, 11, make([]byte, 11)))},
		{"lie inside an association", "dhcp_drop_option", dhcp6(t, solicitKind, client, ia(0, 5, 0, 24, 1, 2))},
		{"address too short", "dhcp_drop_option", dhcp6(t, solicitKind, client, ia(0, 5, 0, 2, 1, 2))},
		{"identifier of 131 bytes", "dhcp_drop_option", dhcp6(t, solicitKind, option6(1, 131, make([]byte, 131)))},
		{"identifier of 1,200 bytes", "dhcp_drop_option", dhcp6(t, solicitKind, option6(1, 1200, make([]byte, 1200)))},
		{"empty identifier", "dhcp_drop_option", dhcp6(t, solicitKind, option6(1, 0))},
		{"no identifier", "dhcp_drop_format", dhcp6(t, solicitKind, ia())},
		{"server in a solicit", "dhcp_drop_format", dhcp6(t, solicitKind, client, ours, ia())},
		{"another server", "dhcp_drop_server", dhcp6(t, requestKind, client, another, ia(address...))},
		{"server identifier cut short", "dhcp_drop_server", dhcp6(t, requestKind, client, option6(2, 9, ours[4:13]), ia(address...))},
		{"no server", "dhcp_drop_format", dhcp6(t, requestKind, client, ia(address...))},
		{"relayed", "dhcp_drop_relay", dhcp6(t, relayKind, make([]byte, 30), option6(9, 4, []byte{1, 1, 2, 3}))},
		{"advertise", "dhcp_drop_kind", dhcp6(t, 2, client, ours, ia())},
		{"unknown kind", "dhcp_drop_kind", dhcp6(t, 200, client)},
	} {
		before := d.counters()[tt.counter]
		g.send(tt.fr)
		g.taken()
		if n := d.counters()[tt.counter]; n != before+1 {
			t.Errorf("%s: not counted as %s;%s", tt.name, tt.counter, d.nonzero())
		}
	}
	isReply := func(f []byte) bool {
		return len(f) > 62 && f[12] == 0x86 && f[20] == 17 && binary.BigEndian.Uint16(f[54:]) == 547
	}
	g.silence("an answer to bad DHCPv6", isReply)
	for _, tt := range []struct {
		name string
		kind byte
		fr   []byte
	}{
		{"options in options", 2, dhcp6(t, solicitKind, client, ia(), nested)},
		{"80 associations", 2, dhcp6(t, solicitKind, client, ia(), bytes.Repeat(option6(3, 12, make([]byte, 12)), 80))},
		{"identifier of 130 bytes", 2, dhcp6(t, solicitKind, option6(1, 130, make([]byte, 130)), ia())},
		{"request", 7, dhcp6(t, requestKind, client, ours, ia(address...))},
	} {
		g.send(tt.fr)
		f := g.await("an answer to "+tt.name, isReply)
		if f[62] != tt.kind || !bytes.Contains(f[66:], guestIP6) || len(f) > 14+1500 {
			t.Errorf("%s: kind %d of %d bytes, with the lease: %v", tt.name, f[62], len(f), bytes.Contains(f[66:], guestIP6))
		}
	}
	for range 500 { // a release and a decline are answered, each time
		g.send(dhcp6(t, 8, client, ours, ia(address...)), dhcp6(t, 9, client, ours, ia(address...)))
		g.receive()
	}
	d.counts("dhcp_declines", 500)
	g.leave()
	d.healthy()
}
