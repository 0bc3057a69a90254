package hostsocktest

import (
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// World is a Host under Conformance, with what drives it.
type World struct {
	hostsock.Host
	Turn      func()                       // one turn of readiness, waiting a little if there is none
	Refusing  func(v6 bool) netip.AddrPort // an address on loopback where nobody listens
	SetBudget func(n int)                  // how many descriptors there may be
	Net6      bool                         // there is IPv6
	t         testing.TB
}

// Conformance checks that a Host behaves as Linux does, in everything that the
// translators rely on. It passes on the fake and on the real one; each call of
// make is to give a fresh World.
func Conformance(t *testing.T, make func(t *testing.T) World) {
	for _, c := range []struct {
		name string
		f    func(*World, netip.Addr)
	}{
		{"connect", testConnect}, {"connect refused", testRefused},
		{"scatter gather", testScatter}, {"half close", testHalfClose},
		{"peek", testPeek}, {"peek at end of stream", testPeekEOF},
		{"send buffer", testSendBuffer},
		{"abort", testAbort}, {"abort with data queued", testAbortQueued},
		{"close with data unread", testCloseUnread}, {"write to a closed peer", testWriteClosed},
		{"level and edge", testLevelEdge}, {"edge out", testEdgeOut}, {"silence", testSilence},
		{"again", testAgain}, {"closed within a batch", testClosedInBatch},
		{"datagrams", testDatagrams}, {"datagram truncated", testTruncated},
		{"runs", testRuns}, {"runs from many buffers", testRunsManyBuffers},
		{"error queue", testErrorQueue}, {"source address", testSource},
		{"port in use", testInUse}, {"budget", testBudget}, {"no destination", testNoDestination},
		{"info", testInfo},
	} {
		for _, addr := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
			t.Run(c.name+"/"+addr.String(), func(t *testing.T) {
				w := make(t)
				w.t = t
				if addr.Is6() && !w.Net6 {
					t.Skip("no IPv6 here")
				}
				c.f(&w, addr)
			})
		}
	}
}

// seen collects what a watcher was told.
type seen struct {
	all  eventloop.Events
	n    int
	last eventloop.Events
	do   func(eventloop.Events)
}

func (s *seen) Ready(_ uint32, ev eventloop.Events) {
	s.all |= ev
	s.last = ev
	s.n++
	if s.do != nil {
		s.do(ev)
	}
}

func (w *World) ok(what string, e syscall.Errno) {
	w.t.Helper()
	if e != 0 {
		w.t.Fatalf("%s: %v", what, e)
	}
}

func (w *World) want(what string, got, want any) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// until turns until f holds.
func (w *World) until(what string, f func() bool) {
	w.t.Helper()
	for range 200 {
		if f() {
			return
		}
		w.Turn()
	}
	w.t.Fatalf("never: %s", what)
}

// settle gives what is on its way time to arrive.
func (w *World) settle() {
	for range 3 {
		w.Turn()
	}
}

func (w *World) watch(fd hostsock.FD, ev eventloop.Events) *seen {
	w.t.Helper()
	s := &seen{}
	w.ok("Watch", w.Watch(fd, ev, s, 1))
	return s
}

// listen opens a listening socket on a free port.
func (w *World) listen(p hostsock.Proto, a netip.Addr) (hostsock.FD, netip.AddrPort) {
	w.t.Helper()
	fd, e := w.Listen(p, netip.AddrPortFrom(a, 0), nil)
	w.ok("Listen", e)
	at, e := w.LocalAddr(fd)
	w.ok("LocalAddr", e)
	return fd, at
}

// pair makes two connected TCP sockets.
func (w *World) pair(a netip.Addr) (dialled, accepted hostsock.FD) {
	w.t.Helper()
	l, at := w.listen(hostsock.TCP, a)
	d, e := w.Dial(hostsock.TCP, at, nil)
	w.ok("Dial", e)
	w.until("accepted", func() bool {
		accepted, _, _, e = w.Accept(l)
		return e != syscall.EAGAIN
	})
	w.ok("Accept", e)
	w.Close(l, false)
	return d, accepted
}

func (w *World) write(fd hostsock.FD, s string) {
	w.t.Helper()
	n, e := w.Writev(fd, [][]byte{[]byte(s)}, false)
	w.ok("Writev", e)
	w.want("written", n, len(s))
}

// readAll reads exactly n bytes.
func (w *World) readAll(fd hostsock.FD, n int) string {
	w.t.Helper()
	buf := make([]byte, n)
	got := 0
	w.until("all bytes", func() bool {
		m, e := w.Readv(fd, [][]byte{buf[got:]})
		if e != syscall.EAGAIN {
			w.ok("Readv", e)
		}
		got += m
		return got == n
	})
	return string(buf)
}

// readEnd waits for the read to say something other than EAGAIN.
func (w *World) readEnd(fd hostsock.FD) (n int, e syscall.Errno) {
	w.t.Helper()
	buf := make([]byte, 64)
	w.until("end of stream", func() bool {
		n, e = w.Readv(fd, [][]byte{buf})
		return e != syscall.EAGAIN
	})
	return n, e
}
