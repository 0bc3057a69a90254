package dns

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// Every type of record goes through unread, in both IP versions; ids are replaced
// on the way out and put back on the way in.
func TestRelay(t *testing.T) {
	tests := []struct {
		name   string
		qtype  uint16
		record string
		v6     bool
	}{
		{"host.example.com.", mdns.TypeA, "host.example.com. 60 IN A 192.0.2.1", false},
		{"host.example.com.", mdns.TypeAAAA, "host.example.com. 60 IN AAAA 2001:db8::1", true},
		{"HoSt.ExAmPlE.cOm.", mdns.TypeA, "HoSt.ExAmPlE.cOm. 60 IN A 192.0.2.1", false},
		{"example.com.", mdns.TypeMX, "example.com. 60 IN MX 10 mail.example.com.", false},
		{"_sip._tcp.example.com.", mdns.TypeSRV, "_sip._tcp.example.com. 60 IN SRV 1 2 5060 sip.example.com.", false},
		{"1.2.0.192.in-addr.arpa.", mdns.TypePTR, "1.2.0.192.in-addr.arpa. 60 IN PTR host.example.com.", false},
		{"example.com.", mdns.TypeHTTPS, "example.com. 60 IN HTTPS 1 . alpn=h2", true},
		{"example.com.", mdns.TypeTXT, `example.com. 60 IN TXT "text"`, false},
		{"example.com.", 65280, `example.com. 60 IN TYPE65280 \# 3 010203`, false},
		{".", mdns.TypeNS, ". 60 IN NS a.root-servers.net.", false},
		{strings.Repeat("a.", 126) + "b.", mdns.TypeA, strings.Repeat("a.", 126) + "b. 60 IN A 192.0.2.1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, up1)
			q := query1(t, 0xbeef, tt.name, tt.qtype)
			b.ask(tt.v6, 40000, q)
			out := b.one()
			if out.to != up1 || !bytes.Equal(out.b[2:], q[2:]) {
				t.Errorf("% x to %s, want % x", out.b, out.to, q)
			}
			answer := answerTo(t, out.b, tt.record)
			b.upstream(out.fd, datagram(answer))
			got := b.replies()
			if len(got) != 1 {
				t.Fatalf("%d answers", len(got))
			}
			from, to := "10.0.2.3", "10.0.2.15"
			if tt.v6 {
				from, to = "fd67:7765:7374::3", "fd67:7765:7374::15"
			}
			if g := got[0]; g.src != from || g.dst != to || g.srcPort != 53 || g.dstPort != 40000 {
				t.Errorf("%s:%d -> %s:%d", g.src, g.srcPort, g.dst, g.dstPort)
			}
			if g := got[0].msg; g[0] != 0xbe || g[1] != 0xef || !bytes.Equal(g[2:], answer[2:]) {
				t.Errorf("% x, want % x with id beef", g, answer)
			}
			b.upstream(out.fd, datagram(answer))
			if len(b.replies()) != 0 || b.r.Stats().Drops[DropUnknown] != 1 {
				t.Error("a second answer went through")
			}
		})
	}
}

func TestReturnCodesAndFlagsPass(t *testing.T) {
	for _, rcode := range []int{mdns.RcodeNameError, mdns.RcodeServerFailure, mdns.RcodeRefused, mdns.RcodeSuccess} {
		b := newBench(t, up1)
		m := new(mdns.Msg)
		m.SetQuestion("nx.example.", mdns.TypeA)
		m.SetEdns0(4096, true)
		b.ask(false, 40000, pack(t, m))
		out := b.one()
		q := unpack(t, out.b)
		if o := q.IsEdns0(); o == nil || o.UDPSize() != 4096 || !o.Do() {
			t.Errorf("EDNS did not pass: %v", q)
		}
		r := new(mdns.Msg)
		r.SetRcode(q, rcode)
		r.Truncated, r.AuthenticatedData = true, true
		b.upstream(out.fd, datagram(pack(t, r)))
		got := b.replies()
		if len(got) != 1 {
			t.Fatalf("%d answers", len(got))
		}
		if g := unpack(t, got[0].msg); g.Rcode != rcode || !g.Truncated || !g.AuthenticatedData || g.Id != m.Id {
			t.Errorf("%v", g)
		}
	}
}

// Answers beyond the MTU reach the guest in fragments.
func TestLargeAnswer(t *testing.T) {
	b := newBench(t, up1)
	b.ask(false, 40000, query1(t, 7, "big.example.", mdns.TypeTXT))
	out := b.one()
	var rr []string
	for range 20 {
		rr = append(rr, `big.example. 60 IN TXT "`+strings.Repeat("x", 200)+`"`)
	}
	b.upstream(out.fd, datagram(answerTo(t, out.b, rr...)))
	frames, total := b.ep.Take(), 0
	for _, f := range frames {
		if len(f.Data) > 1514 {
			t.Errorf("frame of %d bytes", len(f.Data))
		}
		total += len(f.Data) - 34
	}
	if len(frames) < 3 || total < 4000 {
		t.Errorf("%d frames with %d bytes", len(frames), total)
	}
}

// L8: an answer counts only on the socket, under the id and with the question of
// a query in flight.
func TestSpoofedAnswers(t *testing.T) {
	b := newBench(t, up1, up2)
	b.ask(false, 40000, query1(t, 1, "a.example.", mdns.TypeA))
	b.ask(false, 40001, query1(t, 2, "b.example.", mdns.TypeA))
	s := b.took()
	a, other := s[0], s[1]
	if a.fd == other.fd {
		t.Fatal("the first two queries share a socket")
	}
	good := answerTo(t, a.b, "a.example. 60 IN A 192.0.2.1")
	change := func(f func(m *mdns.Msg)) []byte {
		m := unpack(t, good)
		f(m)
		return pack(t, m)
	}
	tests := []struct {
		name string
		fd   hostsock.FD
		msg  []byte
		drop Drop
	}{
		{"wrong id", a.fd, change(func(m *mdns.Msg) { m.Id ^= 0x5555 }), DropUnknown},
		{"another socket", other.fd, good, DropUnknown},
		{"another name", a.fd, change(func(m *mdns.Msg) { m.Question[0].Name = "x.example." }), DropMismatch},
		{"another type", a.fd, change(func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAAAA }), DropMismatch},
		{"another class", a.fd, change(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }), DropMismatch},
		{"no question", a.fd, change(func(m *mdns.Msg) { m.Question = nil }), DropMismatch},
		{"two questions", a.fd, change(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), DropMismatch},
		{"a query", a.fd, change(func(m *mdns.Msg) { m.Response = false }), DropUnknown},
		{"cut in the question", a.fd, good[:20], DropMismatch},
		{"cut in the header", a.fd, good[:11], DropShort},
		{"empty", a.fd, nil, DropShort},
	}
	for _, tt := range tests {
		before := b.r.Stats().Drops[tt.drop]
		b.upstream(tt.fd, datagram(tt.msg))
		if len(b.replies()) != 0 || b.r.Stats().Drops[tt.drop] != before+1 {
			t.Errorf("%s: drops %v", tt.name, b.r.Stats().Drops)
		}
	}
	// Types are numbers, even if they look like letters: 65 is 'A', 97 is 'a'.
	b.ask(false, 40002, query1(t, 3, "c.example.", mdns.TypeHTTPS))
	h := b.one()
	m := unpack(t, answerTo(t, h.b))
	m.Question[0].Qtype = 97
	b.upstream(h.fd, datagram(pack(t, m)))
	if len(b.replies()) != 0 {
		t.Error("an answer to type 97 passed for one to type 65")
	}
	b.upstream(a.fd, hostsock.Message{Bufs: [][]byte{good}, Trunc: true})
	if len(b.replies()) != 0 || b.r.Stats().Drops[DropLong] != 1 {
		t.Error("a truncated datagram went through")
	}
	// Case that a server changed is no other question.
	b.upstream(a.fd, datagram(change(func(m *mdns.Msg) { m.Question[0].Name = "A.EXAMPLE." })))
	if len(b.replies()) != 1 {
		t.Error("the real answer did not go through")
	}
}

// Ids and ports do not follow from those of earlier queries, and the guest does
// not choose them.
func TestUnpredictable(t *testing.T) {
	b := newBench(t, up1)
	ids, fds := map[uint16]bool{}, map[hostsock.FD]int{}
	for i := range 1000 {
		b.ask(false, 40000, query1(t, 77, fmt.Sprintf("n%d.example.", i), mdns.TypeA))
		out := b.one()
		ids[uint16(out.b[0])<<8|uint16(out.b[1])] = true
		fds[out.fd]++
		b.upstream(out.fd, datagram(answerTo(t, out.b)))
		b.advance(100 * time.Microsecond)
	}
	if len(ids) < 950 {
		t.Errorf("%d different ids in 1000 queries", len(ids))
	}
	if len(fds) < 7 || len(b.h.open) > maxSocks {
		t.Errorf("%d sockets used, %d open", len(fds), len(b.h.open))
	}
	if n := len(b.replies()); n != 1000 {
		t.Errorf("%d answers", n)
	}
	b.advance(11 * time.Second)
	if len(b.h.open) != 0 {
		t.Errorf("%d idle sockets stay open", len(b.h.open))
	}
	if _, any := b.timers.Next(); any {
		t.Error("a timer runs although nothing is to be done")
	}
}

func upstreams(s []sent) (to []netip.AddrPort) {
	for _, x := range s {
		to = append(to, x.to)
	}
	return to
}

// A silent upstream: the next one after 1.25 s, SERVFAIL after 5 s.
func TestTimeouts(t *testing.T) {
	tests := []struct {
		name string
		ups  []netip.AddrPort
		want []netip.AddrPort
	}{
		{"one", []netip.AddrPort{up1}, []netip.AddrPort{up1, up1, up1, up1}},
		{"two", []netip.AddrPort{up1, up2}, []netip.AddrPort{up1, up2, up1, up2}},
		{"three", []netip.AddrPort{up1, up2, up3}, []netip.AddrPort{up1, up2, up3, up1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.ups...)
			b.ask(false, 40000, query1(t, 3, "slow.example.", mdns.TypeA))
			at := []time.Duration{}
			var all []sent
			for range 600 {
				s := b.took()
				for range s {
					at = append(at, time.Duration(b.timers.Now()))
				}
				all = append(all, s...)
				if len(b.r.byID) == 0 {
					break
				}
				b.advance(10 * time.Millisecond)
			}
			if got := upstreams(all); fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("asked %v, want %v", got, tt.want)
			}
			for i, d := range at {
				if want := time.Duration(i) * 1250 * time.Millisecond; d < want || d > want+100*time.Millisecond {
					t.Errorf("attempt %d at %v, want %v", i, d, want)
				}
			}
			if now := time.Duration(b.timers.Now()); now < 5*time.Second || now > 5200*time.Millisecond {
				t.Errorf("gave up at %v", now)
			}
			got := b.replies()
			if len(got) != 1 {
				t.Fatalf("%d answers", len(got))
			}
			if m := unpack(t, got[0].msg); m.Rcode != mdns.RcodeServerFailure || m.Id != 3 || !m.Response || !m.RecursionAvailable || len(m.Question) != 1 {
				t.Errorf("%v", m)
			}
			for _, s := range all {
				if !bytes.Equal(s.b, all[0].b) {
					t.Errorf("attempts differ: % x, % x", s.b, all[0].b)
				}
			}
		})
	}
}

// The answer of the first upstream is taken although the second was asked since.
func TestLateAnswer(t *testing.T) {
	b := newBench(t, up1, up2)
	b.ask(false, 40000, query1(t, 3, "slow.example.", mdns.TypeA))
	first := b.one()
	b.advance(1300 * time.Millisecond)
	if second := b.one(); second.to != up2 {
		t.Fatalf("asked %s", second.to)
	}
	b.upstream(first.fd, datagram(answerTo(t, first.b)))
	if n := len(b.replies()); n != 1 {
		t.Errorf("%d answers", n)
	}
}

func TestUnreachable(t *testing.T) {
	ask := func(b *bench) { b.ask(false, 40000, query1(t, 3, "x.example.", mdns.TypeA)) }
	servfail := func(b *bench) {
		t.Helper()
		got := b.replies()
		if len(got) != 1 || unpack(t, got[0].msg).Rcode != mdns.RcodeServerFailure {
			t.Errorf("%d answers", len(got))
		}
		if len(b.r.byID) != 0 || len(b.logs) != 1 {
			t.Errorf("%d queries left, log %q", len(b.r.byID), b.logs)
		}
	}
	t.Run("refused later", func(t *testing.T) {
		b := newBench(t, up1, up2)
		ask(b)
		b.h.recvErr = syscall.ECONNREFUSED
		b.upstream(b.one().fd)
		next := b.one()
		if next.to != up2 {
			t.Fatalf("asked %s", next.to)
		}
		b.r.Ready(b.h.cookie[next.fd], eventloop.Err)
		servfail(b)
	})
	t.Run("refused at once", func(t *testing.T) {
		b := newBench(t, up1, up2, up3)
		b.h.sendErr[up1], b.h.sendErr[up2] = syscall.ENETUNREACH, syscall.EPERM
		ask(b)
		if got := b.one(); got.to != up3 {
			t.Errorf("asked %s", got.to)
		}
	})
	t.Run("all refused at once", func(t *testing.T) {
		b := newBench(t, up1, up2, up3)
		b.h.sendErr[up1], b.h.sendErr[up2], b.h.sendErr[up3] = syscall.ENETUNREACH, syscall.ENETUNREACH, syscall.ENETUNREACH
		ask(b)
		servfail(b)
	})
	t.Run("no sockets", func(t *testing.T) {
		b := newBench(t, up1, up2)
		b.h.dialErr = syscall.EMFILE
		ask(b)
		servfail(b)
	})
	t.Run("no watch", func(t *testing.T) {
		b := newBench(t, up1)
		b.h.watchErr = syscall.ENOSPC
		ask(b)
		servfail(b)
		if len(b.h.open) != 0 {
			t.Errorf("%d sockets leak", len(b.h.open))
		}
	})
	t.Run("no upstream", func(t *testing.T) {
		b := newBench(t)
		ask(b)
		servfail(b)
		if !strings.Contains(b.logs[0], "--dns-host") {
			t.Errorf("log %q", b.logs)
		}
		b.res.ups = []netip.AddrPort{up1} // the host came online
		ask(b)
		out := b.one()
		b.upstream(out.fd, datagram(answerTo(t, out.b)))
		if len(b.replies()) != 1 || len(b.logs) != 2 {
			t.Errorf("log %q", b.logs)
		}
	})
	t.Run("send queue full", func(t *testing.T) {
		b := newBench(t, up1)
		b.h.sendErr[up1] = syscall.EAGAIN
		ask(b)
		delete(b.h.sendErr, up1)
		b.advance(1300 * time.Millisecond)
		b.one()
	})
	t.Run("bare error", func(t *testing.T) {
		b := newBench(t, up1, up2)
		ask(b)
		out := b.one()
		bare := append([]byte(nil), out.b[:12]...)
		bare[2], bare[3], bare[5], bare[11] = 0x80, 1, 0, 0 // FORMERR, no question
		b.upstream(out.fd, datagram(bare))
		if next := b.one(); next.to != up2 {
			t.Errorf("asked %s", next.to)
		}
	})
}

// After three timeouts in a row an upstream is asked last; one answer makes it
// the first again.
func TestDeadUpstream(t *testing.T) {
	b := newBench(t, up1, up2)
	for i := range 3 {
		b.ask(false, 40000, query1(t, uint16(i), fmt.Sprintf("n%d.example.", i), mdns.TypeA))
		if s := b.one(); s.to != up1 {
			t.Fatalf("query %d asked %s", i, s.to)
		}
		b.advance(1300 * time.Millisecond)
		s := b.one()
		b.upstream(s.fd, datagram(answerTo(t, s.b)))
	}
	b.ask(false, 40000, query1(t, 9, "n9.example.", mdns.TypeA))
	if s := b.one(); s.to != up2 {
		t.Errorf("asked %s although it is dead", s.to)
	}
	b.advance(10 * time.Second)
	b.took()
	b.ask(false, 40000, query1(t, 10, "n10.example.", mdns.TypeA))
	s := b.one()
	if s.to != up1 {
		t.Fatalf("asked %s, want the first to be tried again", s.to)
	}
	b.upstream(s.fd, datagram(answerTo(t, s.b)))
	if b.r.healthOf(up1) != nil {
		t.Error("an answer did not clear its record")
	}
}

// The table is bounded. Young queries are not displaced, older ones are.
func TestFlood(t *testing.T) {
	b := newBench(t, up1)
	for i := range 3000 {
		b.ask(false, uint16(1024+i), query1(t, uint16(i), fmt.Sprintf("n%d.example.", i), mdns.TypeA))
	}
	s := b.r.Stats()
	if s.Queries != DefaultMaxPending || s.Drops[DropFull] != 3000-DefaultMaxPending {
		t.Errorf("%+v", s)
	}
	b.took()
	b.advance(1100 * time.Millisecond)
	b.ask(false, 5000, query1(t, 5, "late.example.", mdns.TypeA))
	if s := b.r.Stats(); s.Evicted != 1 || len(b.r.byID) != DefaultMaxPending || len(b.r.queries) != DefaultMaxPending {
		t.Errorf("%+v, %d pending", s, len(b.r.byID))
	}
	if len(b.h.open) > maxSocks {
		t.Errorf("%d sockets", len(b.h.open))
	}
	b.advance(6 * time.Second)
	if len(b.r.byID) != 0 {
		t.Errorf("%d queries never end", len(b.r.byID))
	}
	b.ask(false, 5000, query1(t, 5, "late.example.", mdns.TypeA))
	b.r.ResetAll()
	if len(b.r.byID) != 0 || len(b.h.open) != 0 {
		t.Errorf("after reset: %d queries, %d sockets", len(b.r.byID), len(b.h.open))
	}
	if _, any := b.timers.Next(); any {
		t.Error("after reset a timer runs")
	}
}

// Upstreams that come and go do not use up the sockets.
func TestManyUpstreams(t *testing.T) {
	b := newBench(t)
	for i := range 100 {
		b.res.ups = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 53)}
		b.advance(time.Millisecond)
		b.ask(false, 40000, query1(t, 1, "x.example.", mdns.TypeA))
		if s := b.one(); s.to != b.res.ups[0] {
			t.Fatalf("asked %s", s.to)
		}
		if len(b.h.open) > maxSocks {
			t.Fatalf("%d sockets", len(b.h.open))
		}
	}
}

// A run of equal datagrams that the host received in one piece (UDP_GRO).
func TestCoalesced(t *testing.T) {
	b := newBench(t, up1)
	var run []byte
	var fd hostsock.FD
	for i := range 9 { // until two share a socket
		b.ask(false, 40000, query1(t, uint16(i), fmt.Sprintf("n%d.example.", i), mdns.TypeA))
	}
	by := map[hostsock.FD][]sent{}
	for _, s := range b.took() {
		by[s.fd] = append(by[s.fd], s)
	}
	size := 0
	for f, s := range by {
		if len(s) > 1 {
			fd = f
			for _, q := range s {
				a := answerTo(t, q.b)
				run, size = append(run, a...), len(a)
			}
		}
	}
	b.upstream(fd, hostsock.Message{Bufs: [][]byte{run}, SegSize: size})
	if n := len(b.replies()); n != len(by[fd]) {
		t.Errorf("%d answers of %d", n, len(by[fd]))
	}
}
