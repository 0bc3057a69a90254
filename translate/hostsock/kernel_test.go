package hostsock_test

import (
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

var (
	lo4 = netip.MustParseAddr("127.0.0.1")
	lo6 = netip.IPv6Loopback()
)

func at(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }

func listen(t testing.TB, k *hostsock.Kernel, p hostsock.Proto, a netip.AddrPort, o *hostsock.Options) (hostsock.FD, netip.AddrPort) {
	t.Helper()
	fd, e := k.Listen(p, a, o)
	if e == syscall.EAFNOSUPPORT || e == syscall.EADDRNOTAVAIL && a.Addr().Is6() {
		t.Skip("no IPv6 here")
	}
	if e != 0 {
		t.Fatalf("Listen: %v", e)
	}
	local, e := k.LocalAddr(fd)
	if e != 0 {
		t.Fatal(e)
	}
	return fd, local
}

func dial(t testing.TB, k *hostsock.Kernel, p hostsock.Proto, to netip.AddrPort) hostsock.FD {
	t.Helper()
	fd, e := k.Dial(p, to, nil)
	if e != 0 {
		t.Fatalf("Dial: %v", e)
	}
	return fd
}

// retry calls f until it says something else than EAGAIN.
func retry(t testing.TB, f func() syscall.Errno) {
	t.Helper()
	for range 1000 {
		switch e := f(); e {
		case 0:
			return
		case syscall.EAGAIN:
			time.Sleep(100 * time.Microsecond)
		default:
			t.Fatal(e)
		}
	}
	t.Fatal("timeout")
}

func pair(t testing.TB, k *hostsock.Kernel) (a, b hostsock.FD) {
	t.Helper()
	l, to := listen(t, k, hostsock.TCP, at(lo4), nil)
	a = dial(t, k, hostsock.TCP, to)
	retry(t, func() (e syscall.Errno) { b, _, _, e = k.Accept(l); return e })
	k.Close(l, false)
	return a, b
}

func openFDs(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// A socket for both families shows IPv4 peers as IPv4.
func TestDualStack(t *testing.T) {
	k, _ := newKernel(t)
	l, to := listen(t, k, hostsock.TCP, at(netip.IPv6Unspecified()), nil)
	to = netip.AddrPortFrom(lo4, to.Port())
	c := dial(t, k, hostsock.TCP, to)
	from, _ := k.LocalAddr(c)
	retry(t, func() syscall.Errno {
		_, peer, local, e := k.Accept(l)
		if e == 0 && (peer != from || local != to) {
			t.Errorf("accepted %v at %v, want %v at %v", peer, local, from, to)
		}
		return e
	})

	u, to := listen(t, k, hostsock.UDP, at(netip.IPv6Unspecified()), nil)
	to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), to.Port())
	d := dial(t, k, hostsock.UDP, to)
	k.SetTTL(d, 21)
	from, _ = k.LocalAddr(d)
	k.Send(d, []hostsock.Message{{Bufs: [][]byte{{1}}, TOS: 0x10}})
	m := []hostsock.Message{{Bufs: [][]byte{make([]byte, 9)}}}
	retry(t, func() syscall.Errno { _, e := k.Recv(u, m); return e })
	if m[0].Addr != from || m[0].Local != at(to.Addr()) || m[0].TTL != 21 || m[0].TOS != 0x10 {
		t.Errorf("%+v", m[0])
	}
	// The answer goes by IPv4, from where the question went, to a connected peer.
	reply := []hostsock.Message{{Bufs: [][]byte{{2}}, Addr: m[0].Addr, Local: m[0].Local, TTL: 5, TOS: 8}}
	if n, e := k.Send(u, reply); n != 1 {
		t.Fatal(e)
	}
	retry(t, func() syscall.Errno { _, e := k.Recv(d, m); return e })
	if m[0].Addr != to || m[0].TTL != 5 || m[0].TOS != 8 {
		t.Errorf("%+v", m[0])
	}
}

func TestPing(t *testing.T) {
	for _, a := range []netip.Addr{lo4, lo6} {
		k, _ := newKernel(t)
		fd, e := k.Dial(hostsock.Ping, at(a), nil)
		if e == syscall.EACCES || e == syscall.EADDRNOTAVAIL || e == syscall.EAFNOSUPPORT {
			t.Logf("%v: %v", a, e)
			continue
		}
		if e != 0 {
			t.Fatal(e)
		}
		id, _ := k.LocalAddr(fd)
		if id.Port() == 0 {
			t.Fatal("no identifier before the first echo")
		}
		typ, reply := byte(8), byte(0)
		if a.Is6() {
			typ, reply = 128, 129
		}
		echo := []byte{typ, 0, 0, 0, 0, 0, 0, 7, 'h', 'i'} // identifier and checksum are the kernel's
		if _, e := k.Send(fd, []hostsock.Message{{Bufs: [][]byte{echo}}}); e != 0 {
			t.Fatal(e)
		}
		m := []hostsock.Message{{Bufs: [][]byte{make([]byte, 64)}}}
		retry(t, func() syscall.Errno { _, e := k.Recv(fd, m); return e })
		got := m[0].Bufs[0][:m[0].N]
		if got[0] != reply || uint16(got[4])<<8|uint16(got[5]) != id.Port() || got[7] != 7 || string(got[8:]) != "hi" || m[0].TTL == 0 {
			t.Errorf("%v: %x, TTL %d", a, got, m[0].TTL)
		}
		// The identifier that the guest uses, where it is free.
		want := netip.AddrPortFrom(a, id.Port()+1)
		fd2, e := k.Dial(hostsock.Ping, at(a), &hostsock.Options{Bind: want, BindLoose: true})
		if e != 0 {
			t.Fatal(e)
		}
		if got, _ := k.LocalAddr(fd2); got.Port() != want.Port() {
			t.Errorf("identifier %d, want %d", got.Port(), want.Port())
		}
	}
}

func TestOptions(t *testing.T) {
	k, _ := newKernel(t)
	_, to := listen(t, k, hostsock.UDP, at(lo4), nil)
	elsewhere := netip.MustParseAddrPort("203.0.113.9:0")
	port := netip.MustParseAddrPort("127.0.0.1:0")
	if fd, e := k.Dial(hostsock.UDP, to, &hostsock.Options{Bind: port}); e != 0 {
		t.Fatal(e)
	} else {
		port, _ = k.LocalAddr(fd)
		k.Close(fd, false)
	}
	for _, c := range []struct {
		name string
		p    hostsock.Proto
		to   netip.AddrPort
		o    hostsock.Options
		want syscall.Errno
	}{
		{"device", hostsock.UDP, to, hostsock.Options{Device: "lo"}, 0},
		{"device, TCP", hostsock.TCP, to, hostsock.Options{Device: "lo"}, 0},
		{"no such device", hostsock.UDP, to, hostsock.Options{Device: "nosuch0"}, syscall.ENODEV},
		{"foreign source", hostsock.UDP, to, hostsock.Options{Bind: elsewhere}, syscall.EADDRNOTAVAIL},
		{"foreign source, TCP", hostsock.TCP, to, hostsock.Options{Bind: elsewhere}, syscall.EADDRNOTAVAIL},
		{"port", hostsock.UDP, to, hostsock.Options{Bind: port, ReusePort: true}, 0},
		{"same port, other peer", hostsock.UDP, netip.MustParseAddrPort("127.0.0.2:9"), hostsock.Options{Bind: port, ReusePort: true}, 0},
		{"same port, not shared", hostsock.UDP, to, hostsock.Options{Bind: port}, syscall.EADDRINUSE},
		{"same port, loosely", hostsock.UDP, to, hostsock.Options{Bind: port, BindLoose: true}, 0},
		{"TTL", hostsock.TCP, to, hostsock.Options{TTL: 3}, 0},
		{"nowhere", hostsock.TCP, netip.AddrPort{}, hostsock.Options{}, syscall.EINVAL},
		{"multicast", hostsock.TCP, netip.MustParseAddrPort("224.0.0.1:80"), hostsock.Options{}, syscall.ENETUNREACH},
	} {
		before := openFDs(t)
		fd, e := k.Dial(c.p, c.to, &c.o)
		if e != c.want && !(c.name == "multicast" && e != 0) {
			t.Errorf("%s: %v, want %v", c.name, e, c.want)
		}
		if e != 0 && (fd != hostsock.None || openFDs(t) != before) {
			t.Errorf("%s: a failed Dial leaves a descriptor", c.name)
		}
	}
	// A listener at an address that the host does not have (yet).
	if _, e := k.Listen(hostsock.TCP, elsewhere, nil); e != syscall.EADDRNOTAVAIL {
		t.Errorf("foreign listener: %v", e)
	}
	if _, e := k.Listen(hostsock.TCP, elsewhere, &hostsock.Options{Transparent: true}); e != 0 {
		t.Errorf("foreign listener with Transparent: %v", e)
	}
	if _, e := k.Listen(hostsock.TCP, netip.AddrPort{}, nil); e != syscall.EINVAL {
		t.Errorf("listener nowhere: %v", e)
	}
}

// S1, T3: the host itself runs out of descriptors. Everything is refused
// cleanly, what waits can be turned away, and afterwards all is well.
func TestHostOutOfDescriptors(t *testing.T) {
	k, _ := newKernel(t)
	l, to := listen(t, k, hostsock.TCP, at(lo4), nil)
	c1, c2 := dial(t, k, hostsock.TCP, to), dial(t, k, hostsock.TCP, to)
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	top := lim
	top.Cur = uint64(c2) + 1
	// Fill the gaps below, so that no number is left.
	var filler []int
	defer func() {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &lim)
		for _, fd := range filler {
			unix.Close(fd)
		}
	}()
	for {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		filler = append(filler, fd)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &top); err != nil {
			t.Fatal(err)
		}
	}
	if _, e := k.Dial(hostsock.TCP, to, nil); e != syscall.EMFILE {
		t.Errorf("Dial: %v", e)
	}
	if _, e := k.Listen(hostsock.UDP, at(lo4), nil); e != syscall.EMFILE {
		t.Errorf("Listen: %v", e)
	}
	if _, _, _, e := k.Accept(l); e != syscall.EMFILE {
		t.Errorf("Accept: %v", e)
	}
	if e := k.Refuse(l); e != 0 {
		t.Errorf("Refuse: %v", e)
	}
	retry(t, func() syscall.Errno {
		_, e := k.Readv(c1, [][]byte{make([]byte, 1)})
		if e == syscall.ECONNRESET {
			return 0
		}
		return e
	})
	if s := k.Stats(); s.HostLimit != 3 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &lim)
	if _, _, _, e := k.Accept(l); e != 0 {
		t.Errorf("Accept of the one that waited on: %v", e)
	}
	if e := k.Refuse(l); e != syscall.EAGAIN {
		t.Errorf("Refuse with nobody waiting: %v", e)
	}
}

func TestForeignDescriptors(t *testing.T) {
	k, _ := newKernel(t)
	for _, fd := range []hostsock.FD{hostsock.None, 0, 1 << 30} {
		k.Close(fd, true) // must not close what is not ours
		k.Again(fd)
		for name, e := range map[string]syscall.Errno{
			"Watch":   k.Watch(fd, eventloop.In, nil, 0),
			"Rewatch": k.Rewatch(fd, eventloop.In),
			"SetTTL":  k.SetTTL(fd, 1),
			"Refuse":  k.Refuse(fd),
		} {
			if e != syscall.EBADF {
				t.Errorf("%s(%d): %v", name, fd, e)
			}
		}
		if _, e := k.Send(fd, make([]hostsock.Message, 1)); e != syscall.EBADF {
			t.Errorf("Send: %v", e)
		}
		if _, _, _, e := k.Accept(fd); e != syscall.EBADF {
			t.Errorf("Accept: %v", e)
		}
	}
	if _, err := unix.FcntlInt(0, unix.F_GETFD, 0); err != nil {
		t.Error("descriptor 0 was closed")
	}
	a, b := pair(t, k)
	if e := k.Rewatch(a, eventloop.In); e != syscall.ENOENT {
		t.Errorf("Rewatch before Watch: %v", e)
	}
	k.Close(a, false)
	k.Close(a, false)
	k.Close(b, false)
	if s := k.Stats(); s.Open != 0 {
		t.Errorf("%d open", s.Open)
	}
}

// Guest memory may vanish at any time: that is an errno, not a fault.
func TestVanishedMemory(t *testing.T) {
	k, _ := newKernel(t)
	a, b := pair(t, k)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if _, e := k.Writev(a, [][]byte{mem}, false); e != syscall.EFAULT {
		t.Errorf("Writev: %v", e)
	}
	k.Writev(a, [][]byte{{1, 2, 3}}, false)
	retry(t, func() syscall.Errno { _, e := k.Peekv(b, [][]byte{make([]byte, 3)}); return e })
	k.SetPeekOffset(b, 0)
	if _, e := k.Peekv(b, [][]byte{mem}); e != syscall.EFAULT {
		t.Errorf("Peekv: %v", e)
	}
	if _, e := k.Readv(b, [][]byte{mem}); e != syscall.EFAULT {
		t.Errorf("Readv: %v", e)
	}
	buf := make([]byte, 3)
	if n, e := k.Readv(b, [][]byte{buf}); n != 3 || !slices.Equal(buf, []byte{1, 2, 3}) {
		t.Errorf("data is lost: %d %v %v", n, e, buf)
	}
	_, to := listen(t, k, hostsock.UDP, at(lo4), nil)
	u := dial(t, k, hostsock.UDP, to)
	if n, e := k.Send(u, []hostsock.Message{{Bufs: [][]byte{{1}}}, {Bufs: [][]byte{mem}}, {Bufs: [][]byte{{2}}}}); n != 1 || e != syscall.EFAULT {
		t.Errorf("Send: %d %v", n, e)
	}
}

// Segments leave at once in both directions, and urgent bytes stay where they
// are, whoever opened the connection.
func TestNoDelay(t *testing.T) {
	k, _ := newKernel(t)
	a, b := pair(t, k)
	for _, fd := range []hostsock.FD{a, b} {
		if v, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE); v != 1 {
			t.Errorf("SO_OOBINLINE %d %v", v, err)
		}
		if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY); v != 1 {
			t.Errorf("TCP_NODELAY %d %v", v, err)
		}
	}
}

func TestManyBuffers(t *testing.T) {
	k, _ := newKernel(t)
	a, b := pair(t, k)
	bufs := make([][]byte, 3000)
	for i := range bufs {
		bufs[i] = []byte{byte(i)}
	}
	if n, e := k.Writev(a, bufs, false); n != 1024 || e != 0 {
		t.Errorf("Writev of 3000 buffers: %d %v, want 1024", n, e)
	}
	retry(t, func() syscall.Errno {
		n, e := k.Peekv(b, bufs)
		if e == 0 && n != 1024 {
			t.Errorf("Peekv: %d", n)
		}
		return e
	})
	l, to := listen(t, k, hostsock.UDP, at(lo4), nil)
	u := dial(t, k, hostsock.UDP, to)
	if n, e := k.Send(u, []hostsock.Message{{Bufs: bufs}}); n != 0 || e != syscall.EMSGSIZE {
		t.Errorf("Send: %d %v", n, e)
	}
	if n, e := k.Recv(l, []hostsock.Message{{Bufs: bufs}}); n != 0 || e != syscall.EMSGSIZE {
		t.Errorf("Recv: %d %v", n, e)
	}
	// 40 datagrams of 40 buffers need two calls of 1024.
	m := make([]hostsock.Message, 40)
	for i := range m {
		m[i].Bufs = bufs[i : i+40]
	}
	if n, e := k.Send(u, m); n != 40 || e != 0 {
		t.Errorf("Send: %d %v", n, e)
	}
	if n, e := k.Recv(l, m); n != 40 || e != 0 || m[39].N != 40 {
		t.Errorf("Recv: %d %v", n, e)
	}
}

// After EIO a socket sends runs singly, in order with everything else.
func TestWithoutGSO(t *testing.T) {
	k, _ := newKernel(t)
	l, to := listen(t, k, hostsock.UDP, at(lo4), nil)
	u := dial(t, k, hostsock.UDP, to)
	k.ForbidGSO(u)
	m := []hostsock.Message{{Bufs: [][]byte{{1}}}, {Bufs: [][]byte{{2, 2, 3}, {3, 4}}, SegSize: 2}, {Bufs: [][]byte{{5}}}, {Bufs: [][]byte{{6, 7}}, SegSize: 1}}
	if n, e := k.Send(u, m); n != 4 || e != 0 || m[1].N != 5 || m[3].N != 2 {
		t.Fatal(n, e, m)
	}
	in := make([]hostsock.Message, 10)
	for i := range in {
		in[i].Bufs = [][]byte{make([]byte, 10)}
	}
	n, _ := k.Recv(l, in)
	var got [][]byte
	for _, m := range in[:n] {
		got = append(got, m.Bufs[0][:m.N])
	}
	want := [][]byte{{1}, {2, 2}, {3, 3}, {4}, {5}, {6}, {7}}
	if !slices.EqualFunc(got, want, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("received %v, want %v", got, want)
	}
	if s := k.Stats(); s.GSOSplit != 2 || s.GSORuns != 0 {
		t.Errorf("%+v", s)
	}
}

func TestInfoCounts(t *testing.T) {
	k, _ := newKernel(t)
	a, b := pair(t, k)
	chunk := make([]byte, 1<<20)
	total := 0
	for {
		n, e := k.Writev(a, [][]byte{chunk}, false)
		if e != 0 {
			break
		}
		total += n
	}
	time.Sleep(10 * time.Millisecond)
	i, e := k.Info(a)
	if e != 0 || i.Unsent == 0 || i.Unacked < i.Unsent || i.Unacked > total || i.SendBuffer < 65536 || i.SndMSS < 500 {
		t.Errorf("%+v %v, %d written", i, e, total)
	}
	if _, e := k.Info(b); e != 0 {
		t.Error(e)
	}
	if i, _ := k.Info(b); i.SndWnd == 0 {
		t.Error("no peer window although Linux tells it since 5.4")
	}
}

func TestStatsNames(t *testing.T) {
	k, _ := newKernel(t)
	seen := map[string]bool{}
	k.Each(func(name string, _ uint64) {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
	})
	if len(seen) != 7 {
		t.Errorf("%d counters", len(seen))
	}
	if k.CanPeek() {
		k.WithholdPeek()
	}
	if k.CanPeek() {
		t.Error("peek withheld, but there")
	}
}
