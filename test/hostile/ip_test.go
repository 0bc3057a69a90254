package hostile

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// IP, and what it carries.
var ipRows = []row{
	{"U1", both(badUDP)},
	{"U2", both(badIP)},
	{"U3", both(hostileFragments)},
	{"U4", extensionHeaders},
	{"U10", both(lastHop)},
	{"U11", both(multicast)},
	{"U12", both(spoofed)},
}

var plain = make([]byte, netHdr)

// vouched is the virtio header of a packet whose L4 checksum, at off of the L4
// header, the device is to complete: it need not be right.
func (f *family) vouched(off uint16) []byte { return hdr(1, 0, 0, 0, uint16(14+f.ipHeader), off) }

// badUDP: a length field that lies, and a checksum left out where IPv6 does not
// allow it (RFC 8200, 8.1).
func badUDP(t *testing.T, f *family) {
	d := start(t, nil)
	srv := serveUDP(t, f)
	g := d.guest()
	l4 := 14 + f.ipHeader
	for _, n := range []uint16{0, 7, 15, 200, 65535} { // 14 is right
		fr := udp(t, f.guest, f.gateway, srv.port, []byte("length"))
		binary.BigEndian.PutUint16(fr[l4+4:], n)
		g.dropped("drop_l4hdr", f.vouched(6), fr)
	}
	fr := udp(t, f.guest, f.gateway, srv.port, []byte("no sum"))
	fr[l4+6], fr[l4+7] = 0, 0
	if f.v6 {
		g.dropped("drop_csum-bad", plain, fr)
	} else {
		g.sendHdr(plain, fr)
		srv.want("no sum")
	}
	g.leave()
	d.healthy()
}

// badIP: headers that lie are dropped, padding is cut off, options are skipped.
func badIP(t *testing.T, f *family) {
	d := start(t, nil)
	srv := serveUDP(t, f)
	g := d.guest()
	type edit struct {
		counter string
		do      func(fr []byte)
	}
	edits := []edit{
		{"drop_iphdr", func(fr []byte) { fr[14] = 0x44 }},  // header of 16 bytes
		{"drop_iphdr", func(fr []byte) { fr[14] = 0x40 }},  // of none
		{"drop_iphdr", func(fr []byte) { fr[14] = 0x65 }},  // version 6 in an IPv4 frame
		{"drop_ipsum", func(fr []byte) { fr[24] ^= 0x55 }}, // checksum
		{"drop_length", func(fr []byte) { fr[17]++; sumIPv4(fr) }},
		{"drop_length", func(fr []byte) { fr[16], fr[17] = 0, 19; sumIPv4(fr) }},
		{"drop_length", func(fr []byte) { fr[16], fr[17] = 255, 255; sumIPv4(fr) }},
	}
	if f.v6 {
		edits = []edit{
			{"drop_iphdr", func(fr []byte) { fr[14] = 0x45 }},
			{"drop_iphdr", func(fr []byte) { fr[14] = 0xf0 }},
			{"drop_length", func(fr []byte) { fr[19]++ }},
			{"drop_length", func(fr []byte) { fr[18], fr[19] = 255, 255 }},
			{"drop_l4hdr", func(fr []byte) { fr[18], fr[19] = 0, 7 }},
		}
	}
	for _, e := range edits {
		fr := udp(t, f.guest, f.gateway, srv.port, pattern(1, 40)) // not so short that Ethernet pads it
		e.do(fr)
		g.dropped(e.counter, f.vouched(6), fr)
	}
	g.send(append(udp(t, f.guest, f.gateway, srv.port, []byte("padded")), make([]byte, 30)...))
	srv.want("padded")
	if !f.v6 {
		for _, options := range [][]layers.IPv4Option{
			{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}},
			{{OptionType: 7, OptionLength: 11, OptionData: make([]byte, 9)}, {OptionType: 0}}, // record route
		} {
			n := ip4(layers.IPProtocolUDP, f.guest, f.gateway)
			n.Options = options
			u := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(srv.port)}
			_ = u.SetNetworkLayerForChecksum(n)
			fr := frame(t, f.typ, n, u, gopacket.Payload("options"))
			g.send(fr)
			srv.want("options")
			fr[35] = 0 // and one whose length would have the careless walk for ever
			sumIPv4(fr)
			g.send(fr)
			srv.want("options")
		}
	}
	g.leave()
	d.healthy()
}

// sumIPv4 makes the header checksum right.
func sumIPv4(fr []byte) {
	fr[24], fr[25] = 0, 0
	binary.BigEndian.PutUint16(fr[24:], checksum(fr[14:14+int(fr[14]&15)*4]))
}

// piece is a fragment of an L4 packet of the guest to dst.
func (f *family) piece(t *testing.T, proto layers.IPProtocol, dst net.IP, id uint16, offset int, more bool, data []byte) []byte {
	t.Helper()
	if !f.v6 {
		n := ip4(proto, f.guest, dst)
		n.Id, n.FragOffset = id, uint16(offset/8)
		if more {
			n.Flags = layers.IPv4MoreFragments
		}
		return frame(t, f.typ, n, gopacket.Payload(data))
	}
	h := []byte{byte(proto), 0, byte(offset >> 8), byte(offset) &^ 7, 0, 0, byte(id >> 8), byte(id)}
	if more {
		h[3] |= 1
	}
	return frame(t, f.typ, ip(layers.IPProtocolIPv6Fragment, f.guest, dst), gopacket.Payload(append(h, data...)))
}

// hostileFragments: whatever lies kills its datagram (RFC 5722, RFC 7112), what is
// never completed goes after 30 seconds, a flood has 64 places, and a good
// datagram in the middle of it arrives.
func hostileFragments(t *testing.T, f *family) {
	d := start(t, nil)
	srv := serveUDP(t, f)
	g := d.guest()
	whole := udp(t, f.guest, f.gateway, srv.port, pattern(5, 2992))[14+f.ipHeader:] // 3,000 bytes
	id := uint16(0)
	type part struct {
		off, end int
		more     bool
	}
	for _, tt := range []struct {
		name  string
		proto layers.IPProtocol
		parts []part
	}{
		{"overlap by 8", layers.IPProtocolUDP, []part{{0, 1600, true}, {1592, 3000, false}}},
		{"the same again", layers.IPProtocolUDP, []part{{0, 1600, true}, {0, 1600, true}}},
		{"inside another", layers.IPProtocolUDP, []part{{0, 1600, true}, {8, 16, true}}},
		{"two ends", layers.IPProtocolUDP, []part{{1600, 3000, false}, {800, 1000, false}}},
		{"behind the end", layers.IPProtocolUDP, []part{{1600, 2400, false}, {2400, 3000, false}}},
		{"tiny first", layers.IPProtocolTCP, []part{{0, 16, true}}},
	} {
		id++
		before := d.counters()["reasm_killed"]
		for _, p := range tt.parts {
			g.send(f.piece(t, tt.proto, f.gateway, id, p.off, p.more, whole[p.off:p.end]))
		}
		g.taken()
		if n := d.counters()["reasm_killed"]; n != before+1 {
			t.Errorf("%s: %d datagrams killed, want 1", tt.name, n-before)
		}
		for off := 0; off < 3000; off += 1000 { // too late
			g.send(f.piece(t, tt.proto, f.gateway, id, off, off < 2000, whole[off:off+1000]))
		}
	}
	g.dropped("drop_frag", plain, f.piece(t, layers.IPProtocolUDP, f.gateway, 100, 65528, false, make([]byte, 64))) // ping of death
	g.dropped("drop_frag", plain, f.piece(t, layers.IPProtocolUDP, f.gateway, 101, 0, true, whole[:1001]))          // no multiple of 8
	g.dropped("drop_frag", plain, f.piece(t, layers.IPProtocolUDP, f.gateway, 102, 8, true, nil))
	if n := d.counters(); n["reasm_completed"] != 0 || n["udp_flows"] != 0 {
		t.Errorf("%d datagrams of lies, %d flows", n["reasm_completed"], n["udp_flows"])
	}
	for n := range uint16(500) {
		g.send(f.piece(t, layers.IPProtocolUDP, f.gateway, 1000+n, 0, true, whole[:64]))
		if n == 250 {
			g.send(f.piece(t, layers.IPProtocolUDP, f.gateway, 9, 1600, false, whole[1600:])) // backwards
			g.send(f.piece(t, layers.IPProtocolUDP, f.gateway, 9, 0, true, whole[:1600]))
		}
	}
	srv.want(string(pattern(5, 2992)))
	g.taken()
	n := d.counters()
	if n["reasm_evicted"] < 500-64 || n["reasm_completed"] != 1 {
		t.Errorf("%d evicted, %d completed", n["reasm_evicted"], n["reasm_completed"])
	}
	d.pass(31*time.Second, time.Second)
	if n := d.counters()["reasm_expired"]; n != 64 {
		t.Errorf("%d expired after 31 s, want all 64", n)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// extensionHeaders: a walk of at most eight, which never reads beyond the packet
// and serves nobody as a waypoint.
func extensionHeaders(t *testing.T) {
	f := bothFamily[1]
	d := start(t, nil)
	srv := serveUDP(t, f)
	g := d.guest()
	const hopByHop, routing, fragment, none, options = 0, 43, 44, 59, 60
	good := udp(t, f.guest, f.gateway, srv.port, []byte("reached"))
	// behind puts headers between IPv6 and UDP; each is its number, then its bytes
	// from the length on.
	behind := func(last byte, headers ...[]byte) []byte {
		fr := append([]byte(nil), good[:54]...)
		at := 20 // of the next-header field to fill in
		for _, h := range headers {
			fr[at] = h[0]
			at = len(fr)
			fr = append(append(fr, 0), h[1:]...)
		}
		fr[at] = last
		fr = append(fr, good[54:]...)
		binary.BigEndian.PutUint16(fr[18:], uint16(len(fr)-54))
		return fr
	}
	pad := func(kind byte) []byte { return []byte{kind, 0, 1, 4, 0, 0, 0, 0} } // PadN
	many := func(n int, h []byte) (list [][]byte) {
		for range n {
			list = append(list, h)
		}
		return list
	}
	const udpNumber = 17
	jumbo := behind(udpNumber, []byte{hopByHop, 0, 0xc2, 4, 0, 1, 0, 0})
	jumbo[18], jumbo[19] = 0, 0
	for _, tt := range []struct {
		name    string
		counter string // empty: it arrives
		fr      []byte
	}{
		{"eight", "", behind(udpNumber, many(8, pad(options))...)},
		{"nine", "drop_ext", behind(udpNumber, many(9, pad(options))...)},
		{"100", "drop_ext", behind(udpNumber, many(100, pad(options))...)},
		{"hop-by-hop first", "", behind(udpNumber, pad(hopByHop), pad(options))},
		{"hop-by-hop second", "drop_ext", behind(udpNumber, pad(options), pad(hopByHop))},
		{"routing that is over", "", behind(udpNumber, []byte{routing, 0, 0, 0, 0, 0, 0, 0})},
		{"routing through us", "drop_ext", behind(udpNumber, []byte{routing, 0, 0, 1, 0, 0, 0, 0})},
		{"fragment of one", "", behind(udpNumber, []byte{fragment, 0, 0, 0, 0, 0, 0, 1})}, // RFC 6946
		{"fragments of one", "drop_ext", behind(udpNumber, many(9, []byte{fragment, 0, 0, 0, 0, 0, 0, 1})...)},
		{"beyond the packet", "drop_length", behind(udpNumber, []byte{options, 255, 1, 4, 0, 0, 0, 0})},
		{"beyond what is copied", "drop_hdr-long", behind(udpNumber, append([]byte{options, 15}, make([]byte, 126)...))},
		{"jumbogram", "drop_length", jumbo},
		{"no next header", "drop_protocol", behind(none)},
		{"unknown", "drop_protocol", behind(253, pad(options))},
		{"ESP", "drop_protocol", behind(50, pad(options))},
	} {
		if tt.counter != "" {
			before := d.counters()
			g.send(tt.fr)
			g.taken()
			if n := d.counters(); n[tt.counter] != before[tt.counter]+1 {
				t.Errorf("%s: not counted as %s;%s", tt.name, tt.counter, d.nonzero())
			}
			continue
		}
		g.send(tt.fr)
		srv.want("reached")
	}
	if n := d.counters()["udp_flows"]; n != 1 {
		t.Errorf("%d flows", n)
	}
	g.leave()
	d.healthy()
}

// lastHop: a packet whose hop count ends here makes no flow, and the guest learns
// where it ended.
func lastHop(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	exceeded := 11 << 8 // RFC 792, RFC 4443
	if f.v6 {
		exceeded = 3 << 8
	}
	for i, build := range []func(hops uint8) []byte{
		func(hops uint8) []byte { return withHops(udp(t, f.guest, f.world, 53, []byte("far")), hops) },
		func(hops uint8) []byte { return withHops(tcp(t, f.world, 4000, 80, nil, syn), hops) },
		func(hops uint8) []byte { return withHops(echo(t, f, f.world, 1, 1, nil), hops) },
	} {
		for _, hops := range []uint8{0, 1} {
			g.send(build(hops))
			fr := g.await("time exceeded", func(fr []byte) bool { typ, _, _ := icmpError(fr); return typ != -1 })
			if typ, code, _ := icmpError(fr); typ<<8|code != exceeded {
				t.Errorf("packet %d with %d hops: ICMP %d/%d", i, hops, typ, code)
			}
		}
	}
	if n := d.counters(); n["flows"] != 0 || n["host_opened"] != 0 {
		t.Errorf("%d flows, %d sockets", n["flows"], n["host_opened"])
	}
	g.leave()
	d.healthy()
}

// withHops sets TTL or hop limit of a frame.
func withHops(fr []byte, hops uint8) []byte {
	if fr[12] == 0x86 {
		fr[21] = hops
		return fr
	}
	fr[22] = hops
	sumIPv4(fr)
	return fr
}

// multicast and broadcast have no members here.
func multicast(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	groups := []net.IP{{224, 0, 0, 251}, {239, 255, 255, 250}, {255, 255, 255, 255}, {10, 0, 2, 255}}
	if f.v6 {
		groups = []net.IP{net.ParseIP("ff02::fb"), net.ParseIP("ff02::c"), net.ParseIP("ff05::2"), net.ParseIP("ff0e::1")}
	}
	for _, dst := range groups {
		before := d.counters()
		g.send(udp(t, f.guest, dst, 1900, []byte("hello all")))
		d.eventually("the datagram to be dropped", func() bool {
			c := d.counters()
			return c["drop_multicast"]+c["policy_multicast"] > before["drop_multicast"]+before["policy_multicast"]
		})
	}
	if n := d.counters(); n["flows"] != 0 || n["host_opened"] != 0 {
		t.Errorf("%d flows, %d sockets", n["flows"], n["host_opened"])
	}
	g.leave()
	d.healthy()
}

// spoofed: neither the guest's leased address nor one within its prefix.
func spoofed(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	sources := []net.IP{{192, 0, 2, 1}, {127, 0, 0, 1}, {0, 0, 0, 0}, {224, 0, 0, 1}, {255, 255, 255, 255}, f.gateway, f.resolver}
	if f.v6 {
		sources = []net.IP{net.ParseIP("2001:db8::9"), net.IPv6loopback, net.IPv6unspecified, net.ParseIP("ff02::1"), routerLL, f.gateway, f.resolver}
	}
	for _, src := range sources {
		g.dropped("drop_addr-source", plain, udp(t, src, f.world, 53, []byte("from whom?")))
	}
	g.leave()
	d.healthy()
}
