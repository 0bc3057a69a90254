package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/translate/hostsock"
)

var udpRows = []row{
	{"U5", both(udpFlood)},
	{"U6", both(longDatagrams)},
	{"U7", both(hostErrors)},
}

// service is a UDP socket on the host's loopback, which the guest reaches at the
// gateway's address.
type service struct {
	t    *testing.T
	c    *net.UDPConn
	port uint16
	from netip.AddrPort // of the last datagram
}

func serveUDP(t *testing.T, f *family) *service {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.loopback, 0)))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &service{t: t, c: c, port: uint16(c.LocalAddr().(*net.UDPAddr).Port)}
}

func (s *service) at() netip.AddrPort { return netip.MustParseAddrPort(s.c.LocalAddr().String()) }

// want takes the next datagram, which must be text.
func (s *service) want(text string) {
	s.t.Helper()
	must(s.t, s.c.SetReadDeadline(time.Now().Add(4*time.Second)))
	b := make([]byte, 65536)
	n, from, err := s.c.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != text {
		s.t.Fatalf("the host got %.60q, %v; want %.60q", b[:n], err, text)
	}
	s.from = from
}

// answer sends to where the last datagram came from.
func (s *service) answer(data []byte) {
	s.t.Helper()
	_, err := s.c.WriteToUDPAddrPort(data, s.from)
	must(s.t, err)
}

// packet puts the L4 packet of protocol proto to the guest together from the frames
// that carry it. It returns nil while a part is missing.
func (f *family) packet(frames [][]byte, proto byte, fits func(head []byte) bool) []byte {
	l4, total := make([]byte, 0, 65536), -1
	for _, fr := range frames {
		if len(fr) < 14+f.ipHeader || fr[12] != byte(f.typ>>8) || fr[13] != byte(f.typ) {
			continue
		}
		off, more, next, data := 0, false, fr[23], fr[14+f.ipHeader:]
		if !f.v6 {
			v := binary.BigEndian.Uint16(fr[20:])
			off, more = int(v&0x1fff)*8, v&0x2000 != 0
			data = fr[34 : 14+binary.BigEndian.Uint16(fr[16:])] // short frames are padded
		} else if next = fr[20]; next == 44 {
			v := binary.BigEndian.Uint16(fr[56:])
			off, more, next, data = int(v&^7), v&1 != 0, fr[54], fr[62:]
		}
		if next != proto || off == 0 && !fits(data) {
			continue
		}
		l4 = l4[:max(len(l4), off+len(data))]
		copy(l4[off:], data)
		if !more {
			total = off + len(data)
		}
	}
	if total != len(l4) || !fits(l4) {
		return nil
	}
	return l4
}

// datagram returns the payload of the UDP datagram to guest port that frames
// carry, nil while it is not complete.
func (f *family) datagram(frames [][]byte, port uint16) []byte {
	l4 := f.packet(frames, 17, func(b []byte) bool { return len(b) >= 8 && binary.BigEndian.Uint16(b[2:]) == port })
	if l4 == nil || int(binary.BigEndian.Uint16(l4[4:])) != len(l4) {
		return nil
	}
	return l4[8:]
}

// awaitDatagram waits for a whole datagram to guest port.
func (g *guest) awaitDatagram(f *family, what string, port uint16) (data []byte, frames [][]byte) {
	g.t.Helper()
	g.d.eventually(what, func() bool {
		frames = append(frames, g.receive()...)
		data = f.datagram(frames, port)
		return data != nil
	})
	return data, frames
}

// udpFlood sends to every port. The flows stay within their cap, those that nobody
// has answered end first, and the one that is in use goes on.
func udpFlood(t *testing.T, f *family) {
	const limit = 256
	sink := serveUDP(t, f) // which never reads
	d := startOn(t, func(o *configOptions) { o.MaxFlows = limit }, leads(sink.at()))
	srv := serveUDP(t, f)
	g := d.guest()
	fds := descriptors(t)
	g.send(udpFrom(t, f.guest, 5000, f.gateway, srv.port, []byte("hello")))
	srv.want("hello")
	srv.answer([]byte("welcome"))
	if got, _ := g.awaitDatagram(f, "an answer", 5000); string(got) != "welcome" {
		t.Fatalf("got %q", got)
	}
	fr, last := udp(t, f.guest, f.world, 1, []byte("x")), 65535
	if f.v6 {
		last = 8192 // the rest would show nothing new, and takes seconds
	}
	for port := 1; port <= last; port++ {
		binary.BigEndian.PutUint16(fr[14+f.ipHeader+2:], uint16(port))
		g.sendHdr(f.vouched(6), fr)
	}
	g.taken()
	n := d.counters()
	if n["flows"] != limit || n["udp_evicted"] != uint64(last)+1-limit || n["udp_drop_flows"] != 0 {
		t.Errorf("%d flows, %d evicted, %d refused", n["flows"], n["udp_evicted"], n["udp_drop_flows"])
	}
	if now := descriptors(t); now-fds > limit {
		t.Errorf("%d descriptors for %d flows", now-fds, limit)
	}
	srv.answer([]byte("still here?"))
	if got, _ := g.awaitDatagram(f, "the flow in use", 5000); string(got) != "still here?" {
		t.Errorf("got %q", got)
	}
	d.pass(3*time.Minute, time.Second)
	if n := d.counters(); n["flows"] != 0 || descriptors(t) != fds {
		t.Errorf("%d flows and %d descriptors more when all is idle", n["flows"], descriptors(t)-fds)
	}
	g.leave()
	d.healthy()
}

// longDatagrams: what is longer than the guest's MTU comes in fragments, and the
// host is told nothing of it.
func longDatagrams(t *testing.T, f *family) {
	d := start(t, nil)
	srv := serveUDP(t, f)
	g := d.guest()
	g.send(udpFrom(t, f.guest, 5000, f.gateway, srv.port, []byte("send much")))
	srv.want("send much")
	raw, err := srv.c.SyscallConn()
	must(t, err)
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if f.v6 {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	_ = raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), level, option, 1)) })
	whole := 1500 - f.ipHeader - 8
	for i, n := range []int{0, 1, whole, whole + 1, 3000, 9000, 65507 - (f.ipHeader - 20)} {
		data := pattern(i, n)
		srv.answer(data)
		got, frames := g.awaitDatagram(f, "a datagram", 5000)
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes: the guest got %d others", n, len(got))
		}
		if longest := slices.MaxFunc(frames, func(a, b []byte) int { return len(a) - len(b) }); len(longest) > 14+1500 {
			t.Errorf("%d bytes: a frame of %d", n, len(longest))
		}
	}
	_ = raw.Control(func(fd uintptr) {
		if _, _, _, _, err := unix.Recvmsg(int(fd), make([]byte, 64), make([]byte, 256), unix.MSG_ERRQUEUE); err != unix.EAGAIN {
			t.Errorf("the host's error queue: %v, want nothing in it", err)
		}
	})
	g.leave()
	d.healthy()
}

// forgery puts one entry that belongs to no flow in front of an error queue.
type forgery struct {
	hostsock.Host
	left atomic.Int32
	dest netip.AddrPort
}

// Errors implements hostsock.Host.
func (h *forgery) Errors(fd hostsock.FD, buf []byte) (hostsock.SockErr, syscall.Errno) {
	if h.left.Add(-1) >= 0 {
		return hostsock.SockErr{Errno: syscall.ECONNREFUSED, Dest: h.dest, N: copy(buf, "nobody's")}, 0
	}
	return h.Host.Errors(fd, buf)
}

// hostErrors: an ICMP error about a flow reaches the guest with a bounded quote,
// one about none is ignored, and a flood of them is cut off.
func hostErrors(t *testing.T, f *family) {
	const unreachablePort = 3<<8 | 3
	want := unreachablePort
	most := 14 + 576 // RFC 1812, 4.3.2.3
	if f.v6 {
		want, most = 1<<8|4, 14+1280 // RFC 4443, 2.4
	}
	gone := func(t *testing.T) uint16 { // a port that nobody has
		s := serveUDP(t, f)
		s.c.Close()
		return s.port
	}
	t.Run("flow", func(t *testing.T) {
		d := start(t, nil)
		g := d.guest()
		port := gone(t)
		for _, n := range []int{0, 1, 100, 1400} {
			g.send(udpFrom(t, f.guest, 5000, f.gateway, port, pattern(n, n)))
			fr := g.await("port unreachable", isUnreachable)
			typ, code, quote := icmpError(fr)
			if typ<<8|code != want || len(fr) > most || len(quote) < 8 {
				t.Fatalf("%d bytes: ICMP %d/%d of %d bytes, quoting %d", n, typ, code, len(fr), len(quote))
			}
			if binary.BigEndian.Uint16(quote) != 5000 || binary.BigEndian.Uint16(quote[2:]) != port {
				t.Errorf("%d bytes: quotes % x", n, quote[:8])
			}
			if !bytes.HasPrefix(pattern(n, n), quote[8:]) || n < 500 && len(quote) != 8+n {
				t.Errorf("%d bytes: quotes %d that are not the payload's first", n, len(quote)-8)
			}
		}
		g.leave()
		d.healthy()
	})
	t.Run("none", func(t *testing.T) {
		h := &forgery{dest: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), 9)}
		if f.v6 {
			h.dest = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::9"), 9)
		}
		d := startOn(t, func(o *configOptions) { o.UDPPorts = []string{f.loopback.String() + "/0:7000"} },
			func(k hostsock.Host) hostsock.Host { h.Host = k; return h })
		g := d.guest()
		g.send(udp(t, f.guest, f.gateway, gone(t), nil)) // here I am
		g.await("port unreachable", isUnreachable)
		client := serveUDP(t, f)
		_, err := client.c.WriteToUDPAddrPort([]byte("knock"), netip.AddrPortFrom(f.loopback, d.forwards()[0]))
		must(t, err)
		if got, _ := g.awaitDatagram(f, "a datagram by the forward", 7000); string(got) != "knock" {
			t.Fatalf("got %q", got)
		}
		client.c.Close()
		h.left.Store(1)
		g.send(udpFrom(t, f.guest, 7000, f.gateway, client.port, []byte("too late")))
		fr := g.await("port unreachable", isUnreachable)
		if _, _, quote := icmpError(fr); binary.BigEndian.Uint16(quote) != 7000 || binary.BigEndian.Uint16(quote[2:]) != client.port {
			t.Errorf("quotes % x", quote)
		}
		g.silence("an error about nobody's datagram", isUnreachable)
		if n := d.counters(); n["udp_errors_in"] != 3 || n["udp_errors_out"] != 2 {
			t.Errorf("%d errors came, %d went on; want 3 and 2", n["udp_errors_in"], n["udp_errors_out"])
		}
		g.leave()
		d.healthy()
	})
	t.Run("flood", func(t *testing.T) {
		d := start(t, nil)
		g := d.guest()
		d.clock.slow()
		port, told := gone(t), 0
		take := func() {
			for _, fr := range g.receive() {
				if isUnreachable(fr) {
					told++
				}
			}
		}
		for i := range 3000 { // of many flows: datagrams of one leave together, and meet one error
			g.send(udpFrom(t, f.guest, uint16(5000+i%50), f.gateway, port, []byte("anybody?")))
			if i%20 == 0 {
				g.taken()
				take()
			}
		}
		g.taken()
		take()
		if n := d.counters(); told < 100 || told > 400 || n["udp_errors_in"] < 1000 {
			t.Errorf("told %d times of %d errors, want about 200", told, n["udp_errors_in"])
		}
		g.leave()
		d.healthy()
	})
}
