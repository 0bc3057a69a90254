package relay

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// rig is a relay on a loop that the test turns by hand.
type rig struct {
	t    testing.TB
	loop *eventloop.Loop
	r    *Relay
	res  []Result
}

func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, loop: loop, r: New(c, loop)}
	t.Cleanup(func() { g.r.Close(); loop.Close() })
	return g
}

func (g *rig) start(a, b End) *Pair {
	g.t.Helper()
	p, err := g.r.Start(a, b, func(r Result) { g.res = append(g.res, r) })
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// until turns the loop until ok, and for ten seconds at most.
func (g *rig) until(what string, ok func() bool) {
	g.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			g.t.Fatalf("%s: it does not come", what)
		}
		if err := g.loop.Turn(10 * time.Millisecond); err != nil {
			g.t.Fatal(err)
		}
	}
}

// calm turns until nothing happens any more, and fails if that is never.
func (g *rig) calm() {
	g.t.Helper()
	for range 10000 {
		before := g.loop.Stats()
		if err := g.loop.Turn(0); err != nil {
			g.t.Fatal(err)
		}
		if after := g.loop.Stats(); after.Events == before.Events && after.Agains == before.Agains {
			return
		}
	}
	g.t.Fatal("the loop spins")
}

// socks makes a pair of connected sockets: the test's and the relay's.
func socks(t testing.TB, typ int) (mine, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// tcp is socks for TCP.
func tcp(t testing.TB) (mine, theirs int) {
	t.Helper()
	l := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(l)
	check(t, unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(t, unix.Listen(l, 1))
	sa := must(unix.Getsockname(l))(t)
	mine = must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	check(t, unix.Connect(mine, sa))
	check(t, unix.SetNonblock(mine, true))
	theirs, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	check(t, err)
	t.Cleanup(func() { unix.Close(mine) })
	return mine, theirs
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take reads what is there, turning the loop, until n bytes have come.
func (g *rig) take(fd, n int) []byte {
	g.t.Helper()
	var got []byte
	buf := make([]byte, 1<<20)
	g.until("data", func() bool {
		for len(got) < n {
			m, err := unix.Read(fd, buf)
			if err != nil || m == 0 {
				break
			}
			got = append(got, buf[:m]...)
		}
		return len(got) >= n
	})
	return got
}

// message receives one message.
func (g *rig) message(fd int) []byte {
	g.t.Helper()
	buf := make([]byte, 1<<20)
	n := -1
	g.until("a message", func() bool {
		m, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err == nil {
			n = m
		}
		return n >= 0
	})
	return buf[:n]
}

// eof waits until fd is at its end, and wants nothing before.
func (g *rig) eof(fd int) {
	g.t.Helper()
	var buf [1]byte
	g.until("the end", func() bool {
		n, err := unix.Read(fd, buf[:])
		if err == unix.EAGAIN {
			return false
		}
		if n > 0 || err != nil {
			g.t.Fatalf("want the end, got %q, %v", buf[:n], err)
		}
		return true
	})
}

func (g *rig) over(want unix.Errno) Result {
	g.t.Helper()
	g.until("the end of the pair", func() bool { return len(g.res) > 0 })
	if len(g.res) != 1 || g.res[0].Err != want {
		g.t.Fatalf("ended %+v, want error %d", g.res, want)
	}
	if s := g.r.Stats(); s.Open != 0 {
		g.t.Errorf("%d pairs open", s.Open)
	}
	return g.res[0]
}

// pattern is n bytes that are nowhere alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: they differ", len(got), len(want))
	}
}

// descriptors counts this process's open descriptors.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(d)
}
