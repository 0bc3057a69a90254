package hostsocktest

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

var (
	web    = netip.MustParseAddrPort("198.51.100.7:80")
	client = netip.MustParseAddrPort("203.0.113.5:1234")
)

func TestServerAndPeer(t *testing.T) {
	k := New(t)
	srv := k.Serve(web)
	fd, e := k.Dial(hostsock.TCP, web, &hostsock.Options{TTL: 9})
	if e != 0 || srv.Waiting() != 1 || k.Open() != 1 || k.TTL(fd) != 9 || k.Remote(fd) != web {
		t.Fatal(e)
	}
	p := srv.Accept()
	s := &seen{}
	k.Watch(fd, eventloop.In|eventloop.Out|eventloop.Edge, s, 3)
	k.Run()
	if s.n != 1 || s.last != eventloop.Out {
		t.Fatalf("%+v", *s)
	}
	if p.FD() != fd || k.Peer(fd).Addr() != web {
		t.Error("peer is somebody else")
	}
	if p.Send([]byte("hello")) != 5 || p.Undelivered() != 5 {
		t.Error("Send")
	}
	k.Run()
	if s.n != 2 || s.last != eventloop.In|eventloop.Out {
		t.Fatalf("%+v", *s)
	}
	k.Discard(fd, 5)
	p.SetSendBuffer(6)
	if n, e := k.Writev(fd, [][]byte{[]byte("abc"), []byte("defg")}, false); n != 6 || e != 0 {
		t.Errorf("short write: %d %v", n, e)
	}
	if n, e := k.Writev(fd, [][]byte{{1}}, false); n != 0 || e != syscall.EAGAIN {
		t.Errorf("full: %d %v", n, e)
	}
	k.Run()
	n := s.n
	if string(p.Read(1)) != "a" {
		t.Error("Read")
	}
	k.Run()
	if s.n != n {
		t.Error("told about too little room")
	}
	if string(p.ReadAll()) != "bcdef" || p.Unread() != 0 {
		t.Error("ReadAll")
	}
	k.Run()
	if s.n != n+1 || s.last&eventloop.Out == 0 {
		t.Error("not told about room")
	}
	p.SetInfo(hostsock.Info{SndWnd: 77})
	if i, _ := k.Info(fd); i.SndWnd != 77 || i.SendBuffer != 6 {
		t.Errorf("%+v", i)
	}
	p.CloseWrite()
	k.Run()
	if s.last&eventloop.RDHup != 0 || s.last&eventloop.In == 0 {
		t.Error("FIN shows as In, and as RDHup only if asked for")
	}
	k.Shutdown(fd)
	if !p.SawFIN() || p.SawRST() {
		t.Error("SawFIN")
	}
	k.Close(fd, true)
	if !p.SawRST() || k.Open() != 0 || len(k.FDs()) != 0 {
		t.Error("SawRST")
	}
}

func TestConnectInFlight(t *testing.T) {
	for _, want := range []syscall.Errno{0, syscall.ETIMEDOUT} {
		k := New(t)
		fd, _ := k.Dial(hostsock.TCP, web, nil)
		s := &seen{}
		k.Watch(fd, eventloop.Out, s, 0)
		k.Run()
		if s.n != 0 {
			t.Fatal("told while in flight")
		}
		if _, e := k.Writev(fd, [][]byte{{1}}, false); e != syscall.EAGAIN {
			t.Error(e)
		}
		k.Peer(fd).Connect(want)
		k.Pump()
		if e := k.SocketError(fd); s.n != 1 || e != want {
			t.Errorf("%d calls, %v", s.n, e)
		}
	}
}

func TestConnectIn(t *testing.T) {
	k := New(t)
	l, _ := k.Listen(hostsock.TCP, netip.MustParseAddrPort("[::]:8080"), nil)
	s := &seen{}
	k.Watch(l, eventloop.In|eventloop.Edge, s, 0)
	k.Run()
	to := netip.MustParseAddrPort("192.0.2.1:8080")
	p := k.Connect(client, to)
	k.Run()
	if s.n != 1 {
		t.Error("listener not told")
	}
	fd, peer, local, e := k.Accept(l)
	if e != 0 || peer != client || local != to || p.FD() != fd {
		t.Error(fd, peer, local, e)
	}
	p2 := k.Connect(client, to)
	k.Close(l, false)
	if !p2.SawRST() {
		t.Error("closing a listener resets those who wait")
	}
}

func TestInjection(t *testing.T) {
	k := New(t)
	k.Serve(web)
	k.FailNext("Dial", syscall.ENOBUFS)
	if fd, e := k.Dial(hostsock.TCP, web, nil); fd != hostsock.None || e != syscall.ENOBUFS || k.Open() != 0 {
		t.Error(fd, e)
	}
	fd, _ := k.Dial(hostsock.TCP, web, nil)
	k.FailAt("Writev", 2, syscall.ENOMEM)
	k.FailAt("Writev", 3, syscall.ENOBUFS)
	var got []syscall.Errno
	for range 4 {
		_, e := k.Writev(fd, [][]byte{{1}}, false)
		got = append(got, e)
	}
	if fmt.Sprint(got) != fmt.Sprint([]syscall.Errno{0, syscall.ENOMEM, syscall.ENOBUFS, 0}) {
		t.Error(got)
	}
	if k.Calls("Writev") != 4 || k.Calls("Dial") != 2 || string(k.Peer(fd).ReadAll()) != "\x01\x01" {
		t.Error("a failed call did something")
	}
	// Every method can fail without having done anything.
	u, _ := k.Dial(hostsock.UDP, client, nil)
	for _, m := range methods {
		k.FailNext(m, syscall.ENOMEM)
	}
	buf := [][]byte{make([]byte, 4)}
	msg := []hostsock.Message{{Bufs: buf}}
	one := func(_ any, e syscall.Errno) syscall.Errno { return e }
	_, _, _, eAccept := k.Accept(fd)
	for name, e := range map[string]syscall.Errno{
		"Dial": one(k.Dial(hostsock.TCP, web, nil)), "Listen": one(k.Listen(hostsock.TCP, web, nil)), "Accept": eAccept,
		"Refuse": k.Refuse(fd), "Shutdown": k.Shutdown(fd), "Watch": k.Watch(fd, 0, nil, 0), "Rewatch": k.Rewatch(fd, 0),
		"Writev": one(k.Writev(fd, buf, false)), "Readv": one(k.Readv(fd, buf)), "Peekv": one(k.Peekv(fd, buf)),
		"SetPeekOffset": k.SetPeekOffset(fd, 0), "Discard": one(k.Discard(fd, 1)), "Send": one(k.Send(u, msg)),
		"Recv": one(k.Recv(u, msg)), "Errors": one(k.Errors(u, nil)), "SocketError": k.SocketError(fd),
		"Info": one(k.Info(fd)), "LocalAddr": one(k.LocalAddr(fd)), "SetMSS": k.SetMSS(fd, 1), "SetTTL": k.SetTTL(fd, 1),
		"SetKeepalive": k.SetKeepalive(fd),
	} {
		if e != syscall.ENOMEM {
			t.Errorf("%s: %v", name, e)
		}
	}
	if k.MSS(fd) != 0 || k.TTL(fd) != 0 || k.Keepalive(fd) {
		t.Error("a failed call did something")
	}
}

func TestDatagramScript(t *testing.T) {
	k := New(t)
	fd, _ := k.Dial(hostsock.UDP, client, nil)
	s := &seen{}
	k.Watch(fd, eventloop.In|eventloop.Edge, s, 0)
	k.Run()
	m := []hostsock.Message{{Bufs: [][]byte{[]byte("abcde")}, SegSize: 2, TTL: 7}, {Bufs: [][]byte{[]byte("x")}}}
	if n, e := k.Send(fd, m); n != 2 || e != 0 {
		t.Fatal(n, e)
	}
	sent := k.Sent(fd)
	if len(sent) != 4 || string(sent[2].Data) != "e" || sent[0].To != client || sent[0].TTL != 7 || sent[0].SegSize != 2 || sent[3].SegSize != 0 {
		t.Errorf("%+v", sent)
	}
	if len(k.Sent(fd)) != 0 {
		t.Error("Sent does not take")
	}
	k.SetRoom(fd, 1)
	if n, e := k.Send(fd, m[1:]); n != 1 || e != 0 {
		t.Error(n, e)
	}
	if n, e := k.Send(fd, m[1:]); n != 0 || e != syscall.EAGAIN {
		t.Error(n, e)
	}
	if k.Deliver(fd, Datagram{From: web, Data: []byte("stranger")}) {
		t.Error("a stranger's datagram was delivered to a connected socket")
	}
	if !k.Deliver(fd, Datagram{Data: []byte("aabbc"), SegSize: 2, TOS: 3}) {
		t.Error("not delivered")
	}
	k.Run()
	r := messages(2, 100)
	if n, e := k.Recv(fd, r); n != 1 || e != 0 || r[0].SegSize != 2 || r[0].N != 5 || r[0].TTL != 64 || r[0].TOS != 3 || s.n != 1 {
		t.Errorf("%d %v %+v", n, e, r[0])
	}
	k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: 11}, []byte("quoted"))
	k.Run()
	if s.last != eventloop.Err {
		t.Errorf("%#x", s.last)
	}
	k.Close(fd, false)
	if k.Deliver(fd, Datagram{Data: []byte("late")}) {
		t.Error("delivered to a closed socket")
	}
	// The last word on a ping socket is the kernel's: identifier and checksum.
	p, _ := k.Dial(hostsock.Ping, netip.AddrPortFrom(client.Addr(), 0), nil)
	id, _ := k.LocalAddr(p)
	k.Send(p, []hostsock.Message{{Bufs: [][]byte{{8, 0, 9, 9, 9, 9, 0, 1}, {5}}}})
	d := k.Sent(p)[0].Data
	sum := 0
	for i, b := range append(d, 0) {
		sum += int(b) << (8 * (1 - i%2))
	}
	if int(d[4])<<8|int(d[5]) != int(id.Port()) || (sum>>16+sum&0xffff) != 0xffff {
		t.Errorf("%x", d)
	}
}

func TestNoPeek(t *testing.T) {
	k := New(t)
	k.NoPeek = true
	k.Serve(web)
	fd, _ := k.Dial(hostsock.TCP, web, nil)
	k.Peer(fd).Send([]byte("ab"))
	if k.CanPeek() || k.SetPeekOffset(fd, 0) != syscall.EOPNOTSUPP {
		t.Error("peek offset")
	}
	for range 2 { // without an offset every peek sees the start
		b := make([]byte, 4)
		if n, _ := k.Peekv(fd, [][]byte{b}); string(b[:n]) != "ab" {
			t.Errorf("%s", b[:n])
		}
	}
}

// failing records what a test that ought to fail says.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Helper()                        {}
func (f *failing) Errorf(format string, a ...any) { f.said = append(f.said, fmt.Sprintf(format, a...)) }
func (f *failing) Fatalf(format string, a ...any) {
	f.Errorf(format, a...)
	panic(f)
}

// Mistakes of the code under test, and of tests, must be seen.
func TestMistakesAreReported(t *testing.T) {
	for _, c := range []struct {
		name, want string
		f          func(*Kernel)
	}{
		{"level source that does nothing", "spinning", func(k *Kernel) {
			k.Serve(web)
			fd, _ := k.Dial(hostsock.TCP, web, nil)
			k.Watch(fd, eventloop.Out, &seen{}, 0)
			k.Run()
		}},
		{"Again for ever", "spinning", func(k *Kernel) {
			fd, _ := k.Dial(hostsock.UDP, web, nil)
			k.Watch(fd, eventloop.Edge|eventloop.In, &seen{do: func(eventloop.Events) { k.Again(fd) }}, 0)
			k.Again(fd)
			k.Run()
		}},
		{"use after Close", "closed", func(k *Kernel) {
			fd, _ := k.Dial(hostsock.UDP, web, nil)
			k.Close(fd, false)
			k.Recv(fd, nil)
		}},
		{"Close twice", "not open", func(k *Kernel) {
			fd, _ := k.Dial(hostsock.UDP, web, nil)
			k.Close(fd, false)
			k.Close(fd, false)
		}},
		{"no descriptor", "no descriptor", func(k *Kernel) { k.Readv(3, nil) }},
		{"unknown method", "no method", func(k *Kernel) { k.FailNext("Write", 1) }},
		{"accept too early", "nobody has connected", func(k *Kernel) { k.Serve(web).Accept() }},
		{"connect to nobody", "nobody listens", func(k *Kernel) { k.Connect(client, web) }},
		{"question about nothing", "no descriptor", func(k *Kernel) { k.TTL(7) }},
	} {
		f := &failing{TB: t}
		func() {
			defer func() {
				if v := recover(); v != nil && v != any(f) {
					panic(v)
				}
			}()
			c.f(New(f))
		}()
		if len(f.said) != 1 || !strings.Contains(f.said[0], c.want) {
			t.Errorf("%s: %q", c.name, f.said)
		}
	}
	k := New(t)
	k.Close(hostsock.None, false) // no socket: fine
}
