package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
)

var icmpRows = []row{
	{"U8", both(guestErrors)},
	{"U9", both(echoFlood)},
}

// message is an ICMP or ICMPv6 message of the guest: type, code, and all behind
// the checksum.
func message(t *testing.T, f *family, dst net.IP, typ, code uint8, body []byte) []byte {
	t.Helper()
	if !f.v6 {
		b := append([]byte{typ, code, 0, 0}, body...)
		sum := checksum(append(b, make([]byte, len(b)%2)...))
		binary.BigEndian.PutUint16(b[2:], sum)
		return frame(t, f.typ, ip(layers.IPProtocolICMPv4, f.guest, dst), gopacket.Payload(b))
	}
	n := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: f.guest, DstIP: dst}
	m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, code)}
	_ = m.SetNetworkLayerForChecksum(n)
	return frame(t, f.typ, n, m, gopacket.Payload(body))
}

// echo is an echo request.
func echo(t *testing.T, f *family, dst net.IP, id, seq uint16, data []byte) []byte {
	t.Helper()
	typ := uint8(8)
	if f.v6 {
		typ = 128
	}
	return message(t, f, dst, typ, 0, append([]byte{byte(id >> 8), byte(id), byte(seq >> 8), byte(seq)}, data...))
}

// guestErrors: of the guest's ICMP nothing but echo requests is acted on. Errors
// about its flows, redirects and router advertisements change nothing.
func guestErrors(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	srv := serveUDP(t, f)
	g.send(udp(t, f.guest, f.gateway, srv.port, []byte("hello")))
	srv.want("hello")
	ours := func(proto byte, sport, dport uint16) []byte { // a packet that we sent to the guest
		b := ip(layers.IPProtocol(proto), f.gateway, f.guest)
		l4 := make([]byte, 8)
		binary.BigEndian.PutUint16(l4, sport)
		binary.BigEndian.PutUint16(l4[2:], dport)
		return assemble(t, true, b, gopacket.Payload(l4))
	}
	quotes := [][]byte{
		ours(6, c.dport, c.sport), ours(17, srv.port, 4000), // of flows that there are
		ours(6, 1, 1), nil, {0x45}, bytes.Repeat([]byte{0xff}, 60), // of none, and nonsense
	}
	types := []uint8{3, 4, 5, 11, 12, 0, 13, 17, 9, 10} // errors, redirect, echo reply, timestamp, mask, router discovery (RFC 792, RFC 950, RFC 1256)
	if f.v6 {
		types = []uint8{1, 2, 3, 4, 129, 138, 139} // errors, echo reply, renumbering, node information
	}
	sent := uint64(0)
	for _, typ := range types {
		for code := range uint8(5) {
			for _, q := range quotes {
				g.send(message(t, f, f.gateway, typ, code, append([]byte{0, 0, 2, 0}, q...))) // with an MTU of 512
				sent++
			}
		}
	}
	d.counts("icmp_drop_type", sent)
	if f.v6 {
		before := d.counters()["neigh_drop_router"]
		advert := append([]byte{64, 0xc0, 255, 255}, make([]byte, 8)...) // reachable time, retrans timer
		g.send(message(t, f, net.ParseIP("ff02::1"), 134, 0, advert))
		g.send(message(t, f, routerLL, 134, 0, advert))
		g.send(message(t, f, f.gateway, 137, 0, append(append(make([]byte, 4), f.guest...), f.world...)))
		d.counts("neigh_drop_router", before+3)
	}
	if n := d.counters(); n["icmp_requests"] != 0 || n["flows"] != 2 {
		t.Errorf("%d echo requests, %d flows", n["icmp_requests"], n["flows"])
	}
	c.alive(p)
	_, err := p.c.Write(pattern(1, 3000)) // in segments of full length
	must(t, err)
	c.read(3000)
	srv.answer([]byte("still here"))
	if got, _ := g.awaitDatagram(f, "the datagram", 4000); string(got) != "still here" {
		t.Errorf("got %q", got)
	}
	g.leave()
	d.healthy()
}

// echoReply returns identifier, sequence number and payload of the echo reply that
// frames carry, whole or in fragments.
func (f *family) echoReply(frames [][]byte) (id, seq uint16, data []byte, ok bool) {
	proto, typ := byte(1), byte(0)
	if f.v6 {
		proto, typ = 58, 129
	}
	l4 := f.packet(frames, proto, func(b []byte) bool { return len(b) >= 8 && b[0] == typ })
	if l4 == nil {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint16(l4[4:]), binary.BigEndian.Uint16(l4[6:]), l4[8:], true
}

func (g *guest) awaitEcho(f *family, id, seq uint16, data []byte) {
	g.t.Helper()
	var frames [][]byte
	g.d.eventually("an echo reply", func() bool {
		frames = append(frames, g.receive()...)
		gotID, gotSeq, got, ok := f.echoReply(frames)
		if ok && (gotID != id || gotSeq != seq || !bytes.Equal(got, data)) {
			g.t.Fatalf("reply to %d/%d with %d bytes, want %d/%d with %d", gotID, gotSeq, len(got), id, seq, len(data))
		}
		return ok
	})
	for _, fr := range frames {
		if len(fr) > 14+1500 {
			g.t.Errorf("a frame of %d bytes", len(fr))
		}
	}
}

// pingable is a host that answers echo requests at a UDP port in the place of
// ICMP, so that the row does not depend on net.ipv4.ping_group_range.
func pingable(t *testing.T, f *family) func(hostsock.Host) hostsock.Host {
	t.Helper()
	s := serveUDP(t, f)
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := s.c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if b[0] = 0; f.v6 {
				b[0] = 129
			}
			_, _ = s.c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return func(h hostsock.Host) hostsock.Host {
		return &detour{h, func(p hostsock.Proto, to netip.AddrPort) (hostsock.Proto, netip.AddrPort, syscall.Errno) {
			if p == hostsock.Ping {
				return hostsock.UDP, s.at(), 0
			}
			return p, to, 0
		}}
	}
}

// echoFlood: every identifier is a flow of its own, within a cap; what is longer
// than the MTU is fragmented in both directions; requests to ourselves make no
// flow at all.
func echoFlood(t *testing.T, f *family) {
	d := startOn(t, nil, pingable(t, f))
	g := d.guest()
	fds := descriptors(t)
	for range 2000 {
		g.send(echo(t, f, f.gateway, 1, 1, []byte("knock knock")))
	}
	d.counts("icmp_requests", 2000)
	g.receive()
	if n := d.counters(); n["flows"] != 0 || n["icmp_answered"]+n["icmp_drop_guest_full"] != 2000 {
		t.Errorf("%d flows, %d answered, %d without room", n["flows"], n["icmp_answered"], n["icmp_drop_guest_full"])
	}

	other := f.somewhere(1)
	for _, tt := range []struct { // the same identifier at two places, two at one
		dst     net.IP
		id, seq uint16
	}{{f.world, 7, 1}, {other, 7, 2}, {f.world, 8, 3}, {f.world, 7, 4}, {other, 7, 65535}, {f.world, 0, 0}} {
		g.send(echo(t, f, tt.dst, tt.id, tt.seq, []byte{byte(tt.seq)}))
		g.awaitEcho(f, tt.id, tt.seq, []byte{byte(tt.seq)})
	}
	if n := d.counters()["icmp_sessions"]; n != 4 {
		t.Errorf("%d sessions, want 4", n)
	}

	for _, n := range []int{1500 - f.ipHeader - 8, 1500 - f.ipHeader - 7, 4000} {
		data := pattern(n, n)
		whole := echo(t, f, f.world, 7, 9, data)[14+f.ipHeader:]
		proto := layers.IPProtocolICMPv4
		if f.v6 {
			proto = layers.IPProtocolICMPv6
		}
		for off := 0; off < len(whole); off += 1400 {
			end := min(off+1400, len(whole))
			g.send(f.piece(t, proto, f.world, uint16(n), off, end < len(whole), whole[off:end]))
		}
		g.awaitEcho(f, 7, 9, data)
	}

	for id := range uint16(3000) {
		g.send(echo(t, f, f.world, 100+id, 1, nil))
		if id%20 == 0 {
			g.receive()
		}
	}
	g.taken()
	n := d.counters()
	if n["flows"] > 1024 || n["icmp_evicted"] < 3000-1024 || descriptors(t)-fds > 1024 {
		t.Errorf("%d flows, %d evicted, %d descriptors more", n["flows"], n["icmp_evicted"], descriptors(t)-fds)
	}
	d.pass(2*time.Minute, time.Second)
	d.eventually("the flows to go", func() bool { return d.counters()["flows"] == 0 })
	g.receive()
	g.ping()
	g.leave()
	d.healthy()
}
