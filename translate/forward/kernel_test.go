package forward

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// kernel is a loop with real sockets.
func kernel(t *testing.T) (*eventloop.Loop, *hostsock.Kernel) {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	k, err := hostsock.NewKernel(loop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.CloseAll(); loop.Close() })
	return loop, k
}

func turn(t *testing.T, l *eventloop.Loop, until func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !until(); {
		if time.Now().After(end) {
			t.Fatal("nothing happens")
		}
		if err := l.Turn(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// One socket takes clients of both IP versions, at a port that the kernel chose;
// the port is then in use for others, and the message says so.
func TestRealSockets(t *testing.T) {
	loop, k := kernel(t)
	b := newBench(t)
	b.c.Host, b.c.Timers, b.c.Port = k, loop.Timers(), &guest.Port{}
	l, err := b.listen("0:80", "127.0.0.1/0:81", "u:0:53")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	bound := l.Bound()
	if len(bound) != 3 || bound[0].Local.Port() == 0 || bound[1].Local.Addr() != netip.MustParseAddr("127.0.0.1") || len(b.udp.served) != 1 {
		t.Fatalf("%v", bound)
	}

	port := bound[0].Local.Port()
	dial := func(address string) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	dial(fmt.Sprintf("127.0.0.1:%d", port))
	turn(t, loop, func() bool { return len(b.tcp.got) == 1 })
	if b.tcp.got[0] != "10.0.2.2 -> 10.0.2.15:80" {
		t.Errorf("%q", b.tcp.got)
	}
	if bound[0].Local.Addr().Is6() {
		dial(fmt.Sprintf("[::1]:%d", port))
		turn(t, loop, func() bool { return len(b.tcp.got) == 2 })
		if b.tcp.got[1] != "fd67:7765:7374::2 -> fd67:7765:7374::15:80" {
			t.Errorf("%q", b.tcp.got)
		}
	}
	dial(bound[1].Local.String())
	n := len(b.tcp.got)
	turn(t, loop, func() bool { return len(b.tcp.got) == n+1 })
	if b.tcp.got[n] != "10.0.2.2 -> 10.0.2.15:81" {
		t.Errorf("%q", b.tcp.got)
	}

	for _, spec := range []string{fmt.Sprintf("%d:80", port), fmt.Sprintf("127.0.0.1/%d:80", port), fmt.Sprintf("u:%d:80", bound[2].Local.Port())} {
		again := newBench(t)
		again.c.Host, again.c.Timers = k, loop.Timers()
		if _, err := again.listen(spec); err == nil || !strings.Contains(err.Error(), "is in use") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	bad := newBench(t)
	bad.c.Host, bad.c.Timers = k, loop.Timers()
	if _, err := bad.listen("198.51.100.77/0:80"); err == nil || !strings.Contains(err.Error(), "no address of this host") {
		t.Errorf("%v", err)
	}
	if _, err := bad.listen("%nosuchif0/0:80"); err == nil || !strings.Contains(err.Error(), "nosuchif0") {
		t.Errorf("%v", err)
	}
}

// A listener without descriptors does not spin, and serves again when there are
// some.
func TestRealDescriptorLimit(t *testing.T) {
	loop, k := kernel(t)
	b := newBench(t)
	b.c.Host, b.c.Timers = k, loop.Timers()
	l, err := b.listen("127.0.0.1/0:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k.SetMaxFDs(1)
	c, err := net.Dial("tcp", l.Bound()[0].Local.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	turn(t, loop, func() bool { return len(l.paused) == 1 })
	before := loop.Stats().Turns
	for end := time.Now().Add(350 * time.Millisecond); time.Now().Before(end); {
		if err := loop.Turn(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	// Each of four retries is a timer and an event.
	if turns := loop.Stats().Turns - before; turns > 20 {
		t.Errorf("%d turns in 350 ms", turns)
	}
	k.SetMaxFDs(100)
	turn(t, loop, func() bool { return len(b.tcp.got) == 1 })

	// Kept out for a second: the client is told.
	k.SetMaxFDs(1)
	c2, err := net.Dial("tcp", l.Bound()[0].Local.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	turn(t, loop, func() bool { return l.stats.Reset == 1 })
	_ = c2.SetReadDeadline(time.Now().Add(5 * time.Second))
	var opErr *net.OpError
	if _, err := c2.Read(make([]byte, 1)); !errors.As(err, &opErr) || opErr.Timeout() {
		t.Errorf("the client sees %v", err)
	}
}
