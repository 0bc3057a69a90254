package hostsocktest

import (
	"bytes"
	"net/netip"
	"slices"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// messages makes n receive messages of size bytes each.
func messages(n, size int) []hostsock.Message {
	m := make([]hostsock.Message, n)
	for i := range m {
		m[i].Bufs = [][]byte{make([]byte, size)}
	}
	return m
}

// receive collects datagrams until there are n, runs cut apart.
func (w *World) receive(fd hostsock.FD, n int) (data [][]byte, last hostsock.Message) {
	w.t.Helper()
	m := messages(4, 65535)
	w.until("datagrams", func() bool {
		got, e := w.Recv(fd, m)
		if e != syscall.EAGAIN {
			w.ok("Recv", e)
		}
		for i := range got {
			b := m[i].Bufs[0][:m[i].N]
			for seg := m[i].SegSize; seg > 0 && len(b) > seg; b = b[seg:] {
				data = append(data, bytes.Clone(b[:seg]))
			}
			data = append(data, bytes.Clone(b))
			last = m[i]
		}
		return len(data) >= n
	})
	w.want("datagrams", len(data), n)
	return data, last
}

func send(texts ...string) (m []hostsock.Message) {
	for _, t := range texts {
		m = append(m, hostsock.Message{Bufs: [][]byte{[]byte(t)}})
	}
	return m
}

func testDatagrams(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.UDP, a)
	d, e := w.Dial(hostsock.UDP, at, &hostsock.Options{TTL: 17})
	w.ok("Dial", e)
	from, _ := w.LocalAddr(d)
	in := w.watch(l, eventloop.In|eventloop.Edge)
	w.settle()
	w.want("events without data", in.n, 0)
	n, e := w.Send(d, send("one", "", "three"))
	w.ok("Send", e)
	w.want("sent", n, 3)
	w.until("told", func() bool { return in.all&eventloop.In != 0 })
	data, m := w.receive(l, 3)
	if !slices.EqualFunc(data, []string{"one", "", "three"}, func(b []byte, s string) bool { return string(b) == s }) {
		w.t.Fatalf("received %q", data)
	}
	w.want("from", m.Addr, from)
	w.want("to", m.Local, netip.AddrPortFrom(a, 0))
	w.want("TTL", m.TTL, uint8(17))
	w.want("truncated", m.Trunc, false)
	_, e = w.Recv(l, messages(1, 10))
	w.want("Recv of nothing", e, syscall.EAGAIN)
	out := send("back")
	out[0].Addr, out[0].TTL, out[0].TOS = from, 9, 0x28
	n, e = w.Send(l, out)
	w.ok("Send to", e)
	w.want("sent", n, 1)
	w.want("N", out[0].N, 4)
	data, m = w.receive(d, 1)
	w.want("answer", string(data[0]), "back")
	w.want("from", m.Addr, at)
	w.want("TTL", m.TTL, uint8(9))
	w.want("TOS", m.TOS, uint8(0x28))
	w.ok("SetTTL", w.SetTTL(d, 44))
	w.Send(d, send("x"))
	_, m = w.receive(l, 1)
	w.want("TTL", m.TTL, uint8(44))
	// More than one system call's worth, and from many buffers.
	many := make([]hostsock.Message, 150)
	for i := range many {
		many[i].Bufs = [][]byte{{byte(i)}, {}, {1, 2}, {3}}
	}
	n, e = w.Send(d, many)
	w.ok("Send many", e)
	w.want("sent", n, 150)
	data, _ = w.receive(l, 150)
	for i, b := range data {
		w.want("order", b[0], byte(i))
		w.want("length", len(b), 4)
	}
}

func testTruncated(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.UDP, a)
	d, e := w.Dial(hostsock.UDP, at, nil)
	w.ok("Dial", e)
	w.Send(d, send("0123456789"))
	m := []hostsock.Message{{Bufs: [][]byte{make([]byte, 3), make([]byte, 2)}}}
	w.until("data", func() bool { n, _ := w.Recv(l, m); return n == 1 })
	w.want("N", m[0].N, 5)
	w.want("truncated", m[0].Trunc, true)
	w.want("text", string(m[0].Bufs[0])+string(m[0].Bufs[1]), "01234")
	n, e := w.Send(d, []hostsock.Message{{Bufs: [][]byte{make([]byte, maxDatagram(at)+1)}}})
	w.want("too long", e, syscall.EMSGSIZE)
	w.want("sent", n, 0)
}

func testRuns(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.UDP, a)
	d, e := w.Dial(hostsock.UDP, at, nil)
	w.ok("Dial", e)
	for _, c := range []struct{ len, seg int }{{10, 4}, {8, 4}, {3, 4}, {4, 4}, {14000, 1400}, {20, 1}, {100, 1}, {0, 5}} {
		p := pattern(c.len)
		n, e := w.Send(d, []hostsock.Message{{Bufs: [][]byte{p[:c.len/3], p[c.len/3:]}, SegSize: c.seg}})
		w.ok("Send", e)
		w.want("sent", n, 1)
		data, _ := w.receive(l, max((c.len+c.seg-1)/c.seg, 1))
		for i, b := range data {
			if want := p[i*c.seg : min((i+1)*c.seg, len(p))]; !bytes.Equal(b, want) {
				w.t.Fatalf("run of %d by %d: datagram %d is %d bytes, want %d", c.len, c.seg, i, len(b), len(want))
			}
		}
	}
}

// A run that no single system call takes: too many segments, in tiny buffers.
func testRunsManyBuffers(w *World, a netip.Addr) {
	l, at := w.listen(hostsock.UDP, a)
	d, e := w.Dial(hostsock.UDP, at, nil)
	w.ok("Dial", e)
	p := pattern(600)
	var bufs [][]byte
	for i := range p {
		bufs = append(bufs, p[i:i+1])
	}
	m := []hostsock.Message{{Bufs: bufs, SegSize: 3}, {Bufs: [][]byte{[]byte("end")}}}
	n, e := w.Send(d, m)
	w.ok("Send", e)
	w.want("sent", n, 2)
	w.want("N", m[0].N, 600)
	data, _ := w.receive(l, 201)
	if !bytes.Equal(bytes.Join(data[:200], nil), p) || string(data[200]) != "end" {
		w.t.Fatal("wrong data")
	}
}

func testErrorQueue(w *World, a netip.Addr) {
	dst := w.Refusing(a.Is6())
	d, e := w.Dial(hostsock.UDP, dst, nil)
	w.ok("Dial", e)
	s := w.watch(d, eventloop.In|eventloop.Edge)
	_, e = w.Errors(d, nil)
	w.want("empty queue", e, syscall.EAGAIN)
	w.Send(d, send("anybody there?"))
	w.until("told", func() bool { return s.all&eventloop.Err != 0 })
	_, e = w.Recv(d, messages(1, 10))
	w.want("Recv tells", e, syscall.ECONNREFUSED)
	_, e = w.Recv(d, messages(1, 10))
	w.want("Recv tells once", e, syscall.EAGAIN)
	buf := make([]byte, 8)
	se, e := w.Errors(d, buf)
	w.ok("Errors", e)
	w.want("errno", se.Errno, syscall.ECONNREFUSED)
	typ, code := uint8(3), uint8(3) // RFC 792: port unreachable
	if a.Is6() {
		typ, code = 1, 4 // RFC 4443 3.1
	}
	w.want("type", se.Type, typ)
	w.want("code", se.Code, code)
	w.want("IPv6", se.V6, a.Is6())
	w.want("local", se.Local, false)
	w.want("offender", se.Offender, a)
	w.want("destination", se.Dest, dst)
	w.want("quote", string(buf[:se.N]), "anybody ")
	_, e = w.Errors(d, buf)
	w.want("queue is empty", e, syscall.EAGAIN)
	// An error that nobody has asked about fails the next Send, which then works.
	w.Send(d, send("again"))
	s.all = 0
	w.until("told", func() bool { return s.all&eventloop.Err != 0 })
	n, e := w.Send(d, send("x"))
	w.want("sent", n, 0)
	w.want("Send tells", e, syscall.ECONNREFUSED)
	_, e = w.Send(d, send("x"))
	w.ok("Send", e)
}

// A socket for every address answers from the one it was asked at.
func testSource(w *World, a netip.Addr) {
	any := netip.IPv4Unspecified()
	if a.Is6() {
		any = netip.IPv6Unspecified()
	}
	l, e := w.Listen(hostsock.UDP, netip.AddrPortFrom(any, 0), &hostsock.Options{V6Only: true})
	w.ok("Listen", e)
	at, _ := w.LocalAddr(l)
	target := a
	if a.Is4() {
		target = netip.AddrFrom4([4]byte{127, 0, 0, 5}) // not what routing would choose
	}
	c, e := w.Listen(hostsock.UDP, netip.AddrPortFrom(a, 0), nil)
	w.ok("Listen", e)
	ask := send("?")
	ask[0].Addr = netip.AddrPortFrom(target, at.Port())
	_, e = w.Send(c, ask)
	w.ok("Send", e)
	_, m := w.receive(l, 1)
	w.want("asked at", m.Local, netip.AddrPortFrom(target, 0))
	answer := send("!")
	answer[0].Addr, answer[0].Local = m.Addr, m.Local
	_, e = w.Send(l, answer)
	w.ok("Send", e)
	_, m = w.receive(c, 1)
	w.want("answered from", m.Addr, netip.AddrPortFrom(target, at.Port()))
}

func testNoDestination(w *World, a netip.Addr) {
	l, _ := w.listen(hostsock.UDP, a)
	n, e := w.Send(l, send("x"))
	w.want("Send to nowhere", e, syscall.EDESTADDRREQ)
	w.want("sent", n, 0)
	_, e = w.Dial(hostsock.UDP, netip.AddrPort{}, nil)
	w.want("Dial to nowhere", e, syscall.EINVAL)
}
