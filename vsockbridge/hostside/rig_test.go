package hostside

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/unixsock"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/packet"
)

// ask is a Connect that the guest was asked for.
type ask struct {
	port     uint32
	typ      packet.Type
	cookie   uint32
	hostPort uint32
}

// guest is a Connector that the test answers for.
type guest struct {
	errno     unix.Errno // of Connect
	next      uint32     // host port
	asks      []ask
	cancelled []uint32
}

func (g *guest) Connect(port uint32, t packet.Type, in vsockbridge.Initiator, cookie uint32) (uint32, unix.Errno) {
	if g.errno != 0 {
		return 0, g.errno
	}
	g.next++
	g.asks = append(g.asks, ask{port, t, cookie, g.next})
	return g.next, 0
}

func (g *guest) Cancel(hostPort uint32) { g.cancelled = append(g.cancelled, hostPort) }

// rig is a Host on a loop whose clock stands still.
type rig struct {
	*testing.T
	dir   string
	uds   string
	clock eventlooptest.FakeClock
	loop  *eventloop.Loop
	guest guest
	h     *Host
	log   []string
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir()}
	r.uds = filepath.Join(r.dir, "v")
	r.guest.next = 1 << 30
	r.clock.T = eventloop.Time(time.Hour)
	var err error
	if r.loop, err = eventloop.New(&r.clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.loop.Close)
	c := Config{CID: 3, UDSPath: r.uds, Log: func(f string, a ...any) { r.log = append(r.log, fmt.Sprintf(f, a...)) }}
	if change != nil {
		change(&c)
	}
	if r.h, err = New(c, r.loop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.h.Close)
	r.h.Attach(&r.guest)
	return r
}

// turn lets the loop do what there is to do now.
func (r *rig) turn() {
	r.Helper()
	for range 4 {
		if err := r.loop.Turn(0); err != nil {
			r.Fatal(err)
		}
	}
}

// pass lets time go by, in steps fine enough for every timer to have its turn.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	for ; d > 0; d -= 10 * time.Millisecond {
		r.clock.Advance(min(d, 10*time.Millisecond))
		r.turn()
	}
}

// idle fails unless the loop has nothing to do: a source that stays ready spins.
func (r *rig) idle() {
	r.Helper()
	r.turn()
	if n, err := readyEvents(r.loop); n != 0 || err != nil {
		r.Errorf("the loop is called again and again: %d events (%v)", n, err)
	}
}

func readyEvents(l *eventloop.Loop) (uint64, error) {
	before := l.Stats().Events + l.Stats().Stale
	for range 3 {
		if err := l.Turn(0); err != nil {
			return 0, err
		}
	}
	return l.Stats().Events + l.Stats().Stale - before, nil
}

func (r *rig) dial(path string, typ int) int {
	r.Helper()
	fd, errno := unixsock.Dial(path, typ)
	if errno != 0 {
		r.Fatalf("connect to %s: %v", path, errno)
	}
	r.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (r *rig) write(fd int, s string) {
	r.Helper()
	if n, err := unix.Write(fd, []byte(s)); n != len(s) || err != nil {
		r.Fatalf("write %q: %d, %v", s, n, err)
	}
}

// read returns what can be read now; eof when the other side has closed.
func (r *rig) read(fd int) (s string, eof bool) {
	r.Helper()
	b := make([]byte, 4096)
	for {
		switch n, err := unix.Read(fd, b); {
		case err == unix.EAGAIN:
			return s, false
		case err != nil || n == 0:
			return s, true
		default:
			s += string(b[:n])
		}
	}
}

// want fails unless what can be read now is s, and the end comes as said.
func (r *rig) want(fd int, s string, eof bool) {
	r.Helper()
	if got, end := r.read(fd); got != s || end != eof {
		r.Errorf("read %q, closed %v; want %q, %v", got, end, s, eof)
	}
}

// asked returns the last Connect, failing unless there were n.
func (r *rig) asked(n int) ask {
	r.Helper()
	if len(r.guest.asks) != n {
		r.Fatalf("the guest was asked %d times, not %d: %v\nlog: %q", len(r.guest.asks), n, r.guest.asks, r.log)
	}
	if n == 0 {
		return ask{}
	}
	return r.guest.asks[n-1]
}

// accept answers for the guest, and returns the socket that was handed over.
func (r *rig) accept(a ask) int {
	r.Helper()
	fd, ok := r.h.Accepted(a.cookie, a.hostPort)
	if !ok {
		r.Fatal("the client has gone")
	}
	r.Cleanup(func() { unix.Close(fd) })
	if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || fl&unix.O_NONBLOCK == 0 {
		r.Errorf("handed over a blocking socket (%v)", err)
	}
	return fd
}

// value is a counter.
func (r *rig) value(name string) (v uint64) {
	found := false
	r.h.Each(func(n string, x uint64) {
		if n == name {
			v, found = x, true
		}
	})
	if !found {
		r.Fatalf("no counter %q", name)
	}
	return v
}

func openFDs(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
