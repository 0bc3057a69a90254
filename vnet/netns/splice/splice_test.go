package splice

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vnet/netns"
	"guestwire/vring/eventloop"
)

// clock is real, and moved on by hand.
type clock struct {
	eventloop.Clock
	ahead atomic.Int64
}

func (c *clock) Now() eventloop.Time { return c.Clock.Now() + eventloop.Time(c.ahead.Load()) }

// rig is a Splice between two sides that are the same namespace: its ports, not its
// addresses, tell them apart.
type rig struct {
	t     *testing.T
	s     *Splice
	loop  *eventloop.Loop
	clock *clock
	ended chan error
}

func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	r := &rig{t: t, clock: &clock{Clock: eventloop.NewClock()}, ended: make(chan error, 1)}
	var err error
	if r.loop, err = eventloop.New(r.clock); err != nil {
		t.Fatal(err)
	}
	if c.Host == nil {
		c.Host = netns.Here{}
	}
	if c.Inside == nil {
		c.Inside = netns.Here{}
	}
	c.Log = t.Logf
	r.s = New(c, r.loop)
	go func() { r.ended <- r.loop.Run() }()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) stop() {
	if r.s == nil {
		return
	}
	r.do(r.s.Shut)
	r.loop.Stop()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	r.loop.Close()
	r.s = nil
}

// do runs f on the loop.
func (r *rig) do(f func()) {
	r.t.Helper()
	done := make(chan struct{})
	if err := r.loop.Do(func() { f(); close(done) }); err != nil {
		r.t.Fatal(err)
	}
	<-done
}

func (r *rig) stats() (s Stats, flows int) {
	r.do(func() { s, flows = r.s.stats, len(r.s.flows) })
	return s, flows
}

// open leads a free port to to and returns its address.
func (r *rig) open(typ int, to net.Addr) string {
	r.t.Helper()
	target := netip.MustParseAddrPort(to.String())
	at := netip.AddrPortFrom(target.Addr(), freePort(r.t, typ, target.Addr()))
	var err error
	r.do(func() { err = r.s.Open(Rule{Out: true, Type: typ, At: at, To: target}) })
	if err != nil {
		r.t.Fatal(err)
	}
	return at.String()
}

func freePort(t *testing.T, typ int, a netip.Addr) uint16 {
	t.Helper()
	fd, errno := netns.Here{}.Listen(typ, netip.AddrPortFrom(a, 0))
	if errno != 0 {
		t.Skip("no loopback of this family:", errno)
	}
	defer unix.Close(fd)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return addrPort(sa).Port()
}

// serve answers connections at a port of loopback.
func serve(t *testing.T, at string, f func(c *net.TCPConn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Skip("no loopback of this family:", err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c.(*net.TCPConn)) }()
		}
	}()
	return l.Addr()
}

func connect(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

var families = []string{"127.0.0.1:0", "[::1]:0"}

// digest answers the hash of what it has read, once all is read: it needs the
// half-close.
func digest(c *net.TCPConn) {
	h := sha256.New()
	io.Copy(h, c)
	c.Write(h.Sum(nil))
}

func TestStream(t *testing.T) {
	for _, at := range families {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, Config{})
			front := r.open(unix.SOCK_STREAM, serve(t, at, digest))
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					c := connect(t, "tcp", front)
					b := bytes.Repeat([]byte(fmt.Sprint("block ", i)), 50_000)
					c.Write(b)
					c.(*net.TCPConn).CloseWrite()
					got, err := io.ReadAll(c)
					if want := sha256.Sum256(b); err != nil || !bytes.Equal(got, want[:]) {
						t.Errorf("client %d: %d bytes, %v", i, len(got), err)
					}
				})
			}
			wg.Wait()
			if s, _ := r.stats(); s.Accepted != 50 || s.Failed != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// wantReset connects to an address whose connections end by a reset, which may come
// before the client has looked.
func wantReset(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// A target that refuses resets the client; it does not look like an empty answer.
func TestRefused(t *testing.T) {
	r := newRig(t, Config{})
	closed := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t, unix.SOCK_STREAM, netip.MustParseAddr("127.0.0.1")))
	wantReset(t, r.open(unix.SOCK_STREAM, net.TCPAddrFromAddrPort(closed)))
	if s, _ := r.stats(); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

// A connection that somebody else has accepted.
func TestTake(t *testing.T) {
	r := newRig(t, Config{})
	to := netip.MustParseAddrPort(serve(t, "127.0.0.1:0", digest).String())
	front := serve(t, "127.0.0.1:0", func(c *net.TCPConn) {
		f, err := c.File() // a descriptor of its own
		if err != nil {
			t.Error(err)
			return
		}
		fd, _ := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		unix.SetNonblock(fd, true)
		f.Close()
		r.do(func() { r.s.Take(fd, to) })
	})
	c := connect(t, "tcp", front.String())
	c.Write([]byte("abc"))
	c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if want := sha256.Sum256([]byte("abc")); err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Beyond the limit connections wait, and are served when there is room.
func TestLimit(t *testing.T) {
	r := newRig(t, Config{MaxPairs: 2})
	front := r.open(unix.SOCK_STREAM, serve(t, "127.0.0.1:0", digest))
	var held []net.Conn
	for range 5 {
		held = append(held, connect(t, "tcp", front))
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, _ := r.stats(); s.Accepted == 2 && s.Pauses > 0 {
			break
		} else if s.Accepted > 2 || time.Now().After(end) {
			t.Fatalf("%+v", s)
		}
	}
	for i, c := range held {
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); err != nil || len(got) != sha256.Size {
			t.Errorf("connection %d: %d bytes, %v", i, len(got), err)
		}
		c.Close()
	}
}

// broken is a side that cannot make sockets.
type broken struct{ netns.Here }

func (broken) Sockets(int, int, int) ([]int, error) { return nil, errors.New("no more") }

func TestNoSockets(t *testing.T) {
	r := newRig(t, Config{Host: broken{}})
	wantReset(t, r.open(unix.SOCK_STREAM, serve(t, "127.0.0.1:0", digest)))
	u := connect(t, "udp", r.open(unix.SOCK_DGRAM, echo(t, "127.0.0.1:0").LocalAddr()))
	u.Write([]byte("lost"))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, flows := r.stats(); s.Dropped == 1 && flows == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v, %d flows", s, flows)
		}
	}
}

// A rule is open once, and its port is free again when it is closed; what it has
// begun goes on.
func TestOpenClose(t *testing.T) {
	r := newRig(t, Config{})
	to := serve(t, "127.0.0.1:0", digest)
	front := r.open(unix.SOCK_STREAM, to)
	c := connect(t, "tcp", front)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, _ := r.stats(); s.Accepted == 1 || time.Now().After(end) {
			break
		}
	}
	var rules []Rule
	var again error
	r.do(func() {
		rules = r.s.Rules()
		again = r.s.Open(rules[0])
	})
	if len(rules) != 1 || again != nil {
		t.Fatalf("%v, %v", rules, again)
	}
	r.do(func() { r.s.Close(rules[0]); r.s.Close(rules[0]) })
	if _, err := net.Dial("tcp", front); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || len(got) != sha256.Size {
		t.Errorf("the connection from before: %d bytes, %v", len(got), err)
	}
	r.do(func() { again = r.s.Open(rules[0]) })
	if again != nil {
		t.Error(again)
	}
	taken := Rule{Out: true, Type: unix.SOCK_STREAM, At: netip.MustParseAddrPort(to.String()), To: rules[0].To}
	r.do(func() { again = r.s.Open(taken) })
	if !errors.Is(again, syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", again)
	}
}

// echo returns datagrams with the address of who sent them in front.
func echo(t *testing.T, at string) *net.UDPConn {
	t.Helper()
	a, _ := net.ResolveUDPAddr("udp", at)
	u, err := net.ListenUDP("udp", a)
	if err != nil {
		t.Skip("no loopback of this family:", err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				u.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	return u
}

// Each source has a flow of its own, and gets its own answers, whatever their size.
func TestDatagrams(t *testing.T) {
	for _, at := range families {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, Config{})
			front := r.open(unix.SOCK_DGRAM, echo(t, at).LocalAddr())
			var clients []net.Conn
			for range 20 {
				clients = append(clients, connect(t, "udp", front))
			}
			b := make([]byte, 65536)
			for _, size := range []int{1, 1400, 0, 65507} {
				for i, c := range clients {
					c.Write(bytes.Repeat([]byte{byte(i + 1)}, size))
					n, err := c.Read(b)
					if err != nil || !bytes.Equal(b[:n], bytes.Repeat([]byte{byte(i + 1)}, size)) {
						t.Fatalf("client %d, %d bytes: got %d, %v", i, size, n, err)
					}
				}
			}
			if s, flows := r.stats(); s.Flows != 20 || flows != 20 {
				t.Errorf("%d flows begun, %d there", s.Flows, flows)
			}
		})
	}
}

// A flow ends when nothing has come for 30 s, or 120 s if it was answered.
func TestFlowsAge(t *testing.T) {
	r := newRig(t, Config{})
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	asked := connect(t, "udp", r.open(unix.SOCK_DGRAM, echo(t, "127.0.0.1:0").LocalAddr()))
	ignored := connect(t, "udp", r.open(unix.SOCK_DGRAM, silent.LocalAddr()))
	asked.Write([]byte("a"))
	ignored.Write([]byte("b"))
	if _, err := asked.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := silent.ReadFrom(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var left []int
	for range 16 { // 160 s, ten by ten
		r.clock.ahead.Add(int64(10 * time.Second))
		r.do(func() {}) // a turn, behind which timers run
		_, flows := r.stats()
		left = append(left, flows)
	}
	one, none := slices.Index(left, 1), slices.Index(left, 0)
	// The first look notices what has moved so far.
	if one < 2 || one > 5 || none < 11 || none > 14 {
		t.Errorf("flows left after every 10 s: %v", left)
	}
	asked.Write([]byte("c")) // and begins anew
	if _, err := asked.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// A target that is not there ends the flow, and the next datagram begins another.
func TestDatagramRefused(t *testing.T) {
	r := newRig(t, Config{})
	port := freePort(t, unix.SOCK_DGRAM, netip.MustParseAddr("127.0.0.1"))
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}
	c := connect(t, "udp", r.open(unix.SOCK_DGRAM, to))
	c.Write([]byte("nobody"))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, flows := r.stats(); s.Flows >= 1 && flows == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v, %d flows", s, flows)
		}
	}
	echo(t, to.String())
	for range 100 {
		c.Write([]byte("somebody"))
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 100)); err == nil && n == 8 {
			return
		}
	}
	t.Error("a target that has come is not reached")
}

// Everything is given back, with connections in every state.
func TestShut(t *testing.T) {
	before := 0
	for round := range 2 {
		r := newRig(t, Config{})
		to := serve(t, "127.0.0.1:0", digest)
		front, uf := r.open(unix.SOCK_STREAM, to), r.open(unix.SOCK_DGRAM, echo(t, "127.0.0.1:0").LocalAddr())
		c, u := connect(t, "tcp", front), connect(t, "udp", uf)
		u.Write([]byte("a"))
		u.Read(make([]byte, 1))
		c.Write([]byte("a"))
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if s, _ := r.stats(); s.Accepted == 1 {
				break
			}
		}
		r.stop()
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client: %v", err)
		}
		c.Close()
		u.Close()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			now := ours(t)
			if round == 0 {
				before = now
				break
			}
			// The servers of this round are there beside those of the first.
			if now <= before+2 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d descriptors after the first round, %d after the second", before, now)
			}
		}
	}
}

func ours(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
