package hostsocktest

import (
	"bytes"
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

func testConnect(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.TCP, a)
	ls := w.watch(l, eventloop.In)
	w.Turn()
	w.want("events of a quiet listener", ls.n, 0)
	_, _, _, e := w.Accept(l)
	w.want("Accept with nobody waiting", e, syscall.EAGAIN)
	d, e := w.Dial(hostsock.TCP, at, nil)
	w.ok("Dial", e)
	s := w.watch(d, eventloop.In|eventloop.Out|eventloop.Edge)
	w.until("connected", func() bool { return s.all&eventloop.Out != 0 })
	w.want("SocketError", w.SocketError(d), syscall.Errno(0))
	w.until("listener readable", func() bool { return ls.all&eventloop.In != 0 })
	fd, peer, local, e := w.Accept(l)
	w.ok("Accept", e)
	from, e := w.LocalAddr(d)
	w.ok("LocalAddr", e)
	w.want("peer", peer, from)
	w.want("local", local, at)
	w.Close(fd, false)
	w.Close(d, false)
}

func testRefused(w *World, a netip.Addr) {
	d, e := w.Dial(hostsock.TCP, w.Refusing(a.Is6()), nil)
	w.ok("Dial", e)
	s := w.watch(d, eventloop.Out|eventloop.Edge)
	w.until("told", func() bool { return s.n > 0 })
	w.want("error and hang-up", s.all&(eventloop.Err|eventloop.HUP), eventloop.Err|eventloop.HUP)
	w.want("SocketError", w.SocketError(d), syscall.ECONNREFUSED)
	w.want("SocketError again", w.SocketError(d), syscall.Errno(0))
	_, e = w.Writev(d, [][]byte{{1}}, false)
	w.want("Writev", e, syscall.EPIPE)
	w.Close(d, true)
}

func testScatter(w *World, a netip.Addr) {
	d, s := w.pair(a)
	n, e := w.Writev(d, [][]byte{[]byte("ab"), nil, {}, []byte("cde"), []byte("f")}, true)
	w.ok("Writev", e)
	w.want("written", n, 6)
	w.write(d, "gh")
	b := [][]byte{make([]byte, 1), {}, make([]byte, 4), make([]byte, 10)}
	in := w.watch(s, eventloop.In)
	w.until("readable", func() bool { return in.n > 0 })
	got := 0
	w.until("all there", func() bool {
		got, e = w.Peekv(s, [][]byte{make([]byte, 20)})
		w.SetPeekOffset(s, 0)
		return got == 8
	})
	got, e = w.Readv(s, b)
	w.ok("Readv", e)
	w.want("read", got, 8)
	w.want("text", string(b[0])+string(b[2])+string(b[3][:3]), "abcdefgh")
	_, e = w.Readv(s, b)
	w.want("Readv of nothing", e, syscall.EAGAIN)
}

func testHalfClose(w *World, a netip.Addr) {
	d, s := w.pair(a)
	in := w.watch(s, eventloop.In|eventloop.RDHup)
	w.write(d, "last words")
	w.ok("Shutdown", w.Shutdown(d))
	_, e := w.Writev(d, [][]byte{{1}}, false)
	w.want("write after Shutdown", e, syscall.EPIPE)
	w.until("told", func() bool { return in.all&eventloop.RDHup != 0 })
	w.want("data first", w.readAll(s, 10), "last words")
	n, e := w.readEnd(s)
	w.ok("end of stream", e)
	w.want("end of stream", n, 0)
	w.write(s, "answer")
	w.want("other way", w.readAll(d, 6), "answer")
	w.ok("Shutdown", w.Shutdown(s))
	w.until("both ways closed", func() bool { return in.all&eventloop.HUP != 0 })
	n, e = w.readEnd(d)
	w.ok("end of stream", e)
	w.want("end of stream", n, 0)
}

func testPeek(w *World, a netip.Addr) {
	if !w.CanPeek() {
		w.t.Skip("no SO_PEEK_OFF")
	}
	d, s := w.pair(a)
	w.write(d, "0123456789")
	buf := make([]byte, 4)
	peek := func(n int) (string, syscall.Errno) {
		m, e := w.Peekv(s, [][]byte{buf[:min(1, n)], buf[min(1, n):n]})
		return string(buf[:m]), e
	}
	var got string
	var e syscall.Errno
	w.until("data", func() bool { got, e = peek(4); return e != syscall.EAGAIN })
	w.want("first", got, "0123")
	got, _ = peek(4)
	w.want("offset moves on", got, "4567")
	got, _ = peek(4)
	w.want("rest", got, "89")
	_, e = peek(4)
	w.want("peek behind the end", e, syscall.EAGAIN)
	n, e := w.Discard(s, 3)
	w.ok("Discard", e)
	w.want("discarded", n, 3)
	_, e = peek(4)
	w.want("Discard lowers the offset too", e, syscall.EAGAIN)
	w.write(d, "ab")
	w.until("more", func() bool { got, e = peek(4); return e != syscall.EAGAIN })
	w.want("only what is new", got, "ab")
	w.ok("SetPeekOffset", w.SetPeekOffset(s, 0))
	got, _ = peek(4)
	w.want("from the start of what is left", got, "3456")
	w.ok("SetPeekOffset", w.SetPeekOffset(s, 5))
	got, _ = peek(4)
	w.want("from offset 5", got, "89ab")
	w.want("reading does not see the offset", w.readAll(s, 4), "3456")
	_, e = peek(4)
	w.want("reading lowers the offset", e, syscall.EAGAIN)
	n, e = w.Discard(s, 100)
	w.ok("Discard", e)
	w.want("no more than there is", n, 5)
	_, e = w.Discard(s, 1)
	w.want("Discard of nothing", e, syscall.EAGAIN)
}

func testPeekEOF(w *World, a netip.Addr) {
	if !w.CanPeek() {
		w.t.Skip("no SO_PEEK_OFF")
	}
	d, s := w.pair(a)
	w.write(d, "xyz")
	w.ok("Shutdown", w.Shutdown(d))
	buf := make([]byte, 8)
	got := 0
	w.until("all data peeked", func() bool {
		n, e := w.Peekv(s, [][]byte{buf})
		if e != syscall.EAGAIN {
			w.ok("Peekv", e)
		}
		got += n
		return got == 3
	})
	var n int
	var e syscall.Errno
	w.until("FIN", func() bool { n, e = w.Peekv(s, [][]byte{buf}); return e != syscall.EAGAIN })
	w.ok("Peekv", e)
	w.want("end of stream at the offset", n, 0)
	w.want("data is still there", w.readAll(s, 3), "xyz")
}

// pattern fills n bytes that differ from their neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func testSendBuffer(w *World, a netip.Addr) {
	d, s := w.pair(a)
	chunk := pattern(100_000)
	var sent, got []byte
	for {
		n, e := w.Writev(d, [][]byte{chunk}, false)
		if e == syscall.EAGAIN {
			w.settle()
			if n, e = w.Writev(d, [][]byte{chunk}, false); e == syscall.EAGAIN {
				break
			}
		}
		w.ok("Writev", e)
		sent = append(sent, chunk[:n]...)
		if len(sent) > 64<<20 {
			w.t.Fatal("no limit")
		}
	}
	buf := make([]byte, 65536)
	w.until("all read", func() bool {
		for {
			n, e := w.Readv(s, [][]byte{buf})
			if e == syscall.EAGAIN {
				break
			}
			w.ok("Readv", e)
			got = append(got, buf[:n]...)
		}
		return len(got) >= len(sent)
	})
	if !bytes.Equal(got, sent) {
		w.t.Fatal("what was read is not what was written")
	}
}

func testEdgeOut(w *World, a netip.Addr) {
	d, s := w.pair(a)
	out := w.watch(d, eventloop.Out|eventloop.Edge)
	w.until("first edge", func() bool { return out.n == 1 })
	chunk := make([]byte, 1<<16)
	for e := syscall.Errno(0); e == 0; {
		if _, e = w.Writev(d, [][]byte{chunk}, false); e == syscall.EAGAIN {
			w.settle()
			_, e = w.Writev(d, [][]byte{chunk}, false)
		}
	}
	out.n = 0
	w.settle()
	w.want("edges while full", out.n, 0)
	buf := make([]byte, 1<<20)
	w.until("writable again", func() bool {
		w.Readv(s, [][]byte{buf})
		return out.n > 0
	})
	w.want("what for", out.last&eventloop.Out, eventloop.Out)
}

func testAbort(w *World, a netip.Addr) {
	d, s := w.pair(a)
	in := w.watch(s, eventloop.In|eventloop.Edge)
	w.Turn()
	w.Close(d, true)
	w.until("told", func() bool { return in.all&eventloop.Err != 0 })
	w.want("hang-up", in.all&eventloop.HUP, eventloop.HUP)
	_, e := w.readEnd(s)
	w.want("read", e, syscall.ECONNRESET)
	n, e := w.readEnd(s)
	w.ok("the error is told once", e)
	w.want("then end of stream", n, 0)
	_, e = w.Writev(s, [][]byte{{1}}, false)
	w.want("write", e, syscall.EPIPE)
}

// Data that was there before the RST stays readable.
func testAbortQueued(w *World, a netip.Addr) {
	d, s := w.pair(a)
	in := w.watch(s, eventloop.In|eventloop.Edge)
	w.write(d, "abc")
	w.until("data", func() bool { return in.n > 0 })
	w.Close(d, true)
	w.until("told", func() bool { return in.all&eventloop.Err != 0 })
	w.want("data", w.readAll(s, 3), "abc")
	_, e := w.readEnd(s)
	w.want("then the error", e, syscall.ECONNRESET)
}

func testCloseUnread(w *World, a netip.Addr) {
	d, s := w.pair(a)
	w.write(s, "nobody reads this")
	in := w.watch(d, eventloop.In)
	w.until("data", func() bool { return in.n > 0 })
	w.Close(d, false)
	_, e := w.readEnd(s)
	w.want("read", e, syscall.ECONNRESET)
}

func testWriteClosed(w *World, a netip.Addr) {
	d, s := w.pair(a)
	w.Close(d, false)
	n, e := w.readEnd(s)
	w.ok("end of stream", e)
	w.want("end of stream", n, 0)
	w.write(s, "x") // is taken; the answer is RST
	w.until("error", func() bool {
		_, e = w.Writev(s, [][]byte{{1}}, false)
		return e != 0
	})
	w.want("write after the RST", e, syscall.EPIPE)
}

func testLevelEdge(w *World, a netip.Addr) {
	for _, edge := range []eventloop.Events{0, eventloop.Edge} {
		d, s := w.pair(a)
		in := w.watch(s, eventloop.In|edge)
		w.settle()
		w.want("events without data", in.n, 0)
		w.write(d, "a")
		w.until("first", func() bool { return in.n > 0 })
		in.n = 0
		w.settle()
		if edge == 0 && in.n == 0 || edge != 0 && in.n != 0 {
			w.t.Fatalf("edge %v: %d events with data unread and nothing new", edge != 0, in.n)
		}
		in.n = 0
		w.write(d, "b")
		w.until("second", func() bool { return in.n > 0 })
		in.n = 0
		w.ok("Rewatch", w.Rewatch(s, eventloop.In|edge))
		w.until("re-arming tells what holds", func() bool { return in.n > 0 })
		w.want("read", w.readAll(s, 2), "ab")
		w.settle()
		in.n = 0
		w.settle()
		w.want("events when all is read", in.n, 0)
	}
}

func testSilence(w *World, a netip.Addr) {
	d, s := w.pair(a)
	in := w.watch(s, eventloop.In)
	w.ok("Rewatch", w.Rewatch(s, 0))
	w.write(d, "a")
	w.Close(d, true)
	w.settle()
	w.want("events while silenced", in.n, 0)
	w.ok("Rewatch", w.Rewatch(s, eventloop.In))
	w.until("heard again", func() bool { return in.n > 0 })
	w.want("second Watch", w.Watch(s, eventloop.In, in, 0), syscall.EEXIST)
}

func testAgain(w *World, a netip.Addr) {
	_, s := w.pair(a)
	in := w.watch(s, eventloop.In)
	left := 3
	in.do = func(ev eventloop.Events) {
		w.want("event", ev, eventloop.Again)
		if left--; left > 0 {
			w.Again(s)
			w.Again(s) // counts once
		}
	}
	w.Again(s)
	for i := range 3 {
		w.want("calls", in.n, i)
		w.Turn()
	}
	w.settle()
	w.want("calls in the end", in.n, 3)
	w.Again(s)
	w.Close(s, false)
	w.settle()
	w.want("calls after Close", in.n, 3)
}

func testClosedInBatch(w *World, a netip.Addr) {
	x, y := w.pair(a)
	var sx, sy *seen
	sx, sy = w.watch(x, eventloop.Out|eventloop.Edge), w.watch(y, eventloop.Out|eventloop.Edge)
	w.settle()
	sx.n, sy.n = 0, 0
	w.ok("Rewatch", w.Rewatch(x, eventloop.Out))
	w.ok("Rewatch", w.Rewatch(y, eventloop.Out))
	sx.do = func(eventloop.Events) { w.Close(y, false); sx.do = nil }
	sy.do = func(eventloop.Events) { w.Close(x, false); sy.do = nil }
	w.until("one called", func() bool { return sx.n+sy.n > 0 })
	w.want("calls in the batch", min(sx.n, sy.n), 0)
}

func testInUse(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.TCP, a)
	_, e := w.Listen(hostsock.TCP, at, nil)
	w.want("second listener", e, syscall.EADDRINUSE)
	_, e = w.Dial(hostsock.TCP, at, &hostsock.Options{Bind: at})
	w.want("dial from a port in use", e, syscall.EADDRINUSE)
	fd, e := w.Dial(hostsock.TCP, at, &hostsock.Options{Bind: at, BindLoose: true})
	w.ok("loosely", e)
	from, _ := w.LocalAddr(fd)
	if from.Addr() != a || from.Port() == 0 || from.Port() == at.Port() {
		w.t.Fatalf("loose bind: %v", from)
	}
	w.Close(l, false)
}

func testBudget(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.TCP, a)
	d, e := w.Dial(hostsock.TCP, at, nil)
	w.ok("Dial", e)
	w.SetBudget(2)
	_, e = w.Dial(hostsock.TCP, at, nil)
	w.want("Dial beyond the budget", e, syscall.EMFILE)
	_, e = w.Listen(hostsock.UDP, netip.AddrPortFrom(a, 0), nil)
	w.want("Listen beyond the budget", e, syscall.EMFILE)
	in := w.watch(l, eventloop.In)
	w.until("a connection waits", func() bool { return in.n > 0 })
	_, _, _, e = w.Accept(l)
	w.want("Accept beyond the budget", e, syscall.EMFILE)
	w.ok("Refuse", w.Refuse(l))
	w.want("Refuse with nobody waiting", w.Refuse(l), syscall.EAGAIN)
	_, e = w.readEnd(d)
	w.want("the refused one reads", e, syscall.ECONNRESET)
	w.Close(d, false)
	_, e = w.Dial(hostsock.TCP, at, nil)
	w.ok("Dial within the budget", e)
}

func testInfo(w *World, a netip.Addr) {
	d, s := w.pair(a)
	i, e := w.Info(d)
	w.ok("Info", e)
	w.want("unacknowledged", i.Unacked, 0)
	w.want("unsent", i.Unsent, 0)
	if i.SendBuffer < 4096 {
		w.t.Fatalf("send buffer %d", i.SendBuffer)
	}
	w.write(d, "x")
	w.readAll(s, 1)
	w.until("acknowledged", func() bool { i, e = w.Info(d); return i.Unacked == 0 })
	w.ok("SetMSS", w.SetMSS(d, 1000))
	w.ok("SetKeepalive", w.SetKeepalive(d))
	w.ok("SetTTL", w.SetTTL(d, 33))
}
