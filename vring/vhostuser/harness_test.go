package vhostuser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/vhostuser/vhostusertest"
	"guestwire/vring/vringtest"
)

// bench is a server on a loop that the test turns by hand, under a clock that
// stands still. Frontend calls block, so they run beside it (do), and the test
// looks at the device only while none is under way.
type bench struct {
	tb    testing.TB
	clock *eventlooptest.FakeClock
	loop  *eventloop.Loop
	dev   *vhostusertest.FakeDevice
	srv   *Server
	path  string
	f     *Frontend
	log   []string

	panics uint64 // that the test wants
}

func newBench(tb testing.TB, change ...func(*ServerConfig)) *bench {
	tb.Helper()
	b := &bench{tb: tb, clock: &eventlooptest.FakeClock{}, dev: vhostusertest.New(4), path: filepath.Join(tb.TempDir(), "s")}
	var err error
	if b.loop, err = eventloop.New(b.clock); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.loop.Close)
	c := ServerConfig{Path: b.path, FD: -1, Log: func(format string, a ...any) {
		b.log = append(b.log, fmt.Sprintf(format, a...))
	}}
	for _, f := range change {
		f(&c)
	}
	if b.srv, err = NewServer(b.loop, b.dev, c); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		b.srv.Close()
		if n := b.loop.Stats().Panics; n != b.panics {
			tb.Errorf("%d panics and faults, want %d\nlog: %s", n, b.panics, strings.Join(b.log, "\n"))
		}
	})
	return b
}

// turn lets the loop run until it has nothing to do.
func (b *bench) turn() {
	b.tb.Helper()
	for range 1000 {
		before := b.loop.Stats()
		if err := b.loop.Turn(0); err != nil {
			b.tb.Fatalf("loop: %v", err)
		}
		after := b.loop.Stats()
		if before.Events == after.Events && before.Agains == after.Agains {
			return
		}
	}
	b.tb.Fatalf("the loop does not come to rest")
}

// pass moves the clock on, in steps that no timer is missed by.
func (b *bench) pass(d time.Duration) {
	for ; d > 0; d -= 50 * time.Millisecond {
		b.clock.Advance(min(d, 50*time.Millisecond))
		b.turn()
	}
}

// try runs f, which may block on the server, and returns its error.
func (b *bench) try(f func() error) error {
	b.tb.Helper()
	done := make(chan error, 1)
	go func() {
		done <- f()
		b.loop.Do(func() {}) // wakes the loop below
	}()
	for {
		if err := b.loop.Turn(time.Second); err != nil {
			b.tb.Fatalf("loop: %v", err)
		}
		select {
		case err := <-done:
			b.turn()
			return err
		default:
		}
	}
}

// do is try for what must succeed.
func (b *bench) do(steps ...func() error) {
	b.tb.Helper()
	for i, f := range steps {
		if err := b.try(f); err != nil {
			b.tb.Fatalf("step %d: %v\nlog: %s", i, err, strings.Join(b.log, "\n"))
		}
	}
}

// dial connects a frontend.
func (b *bench) dial() *Frontend {
	b.tb.Helper()
	f, err := DialFrontend(b.path)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(f.Close)
	b.turn()
	b.f = f
	return f
}

const allProtocol = ^uint64(0) &^ ProtocolFGPAAddresses // addresses stay user addresses

// session connects and negotiates everything on offer, with acknowledgements.
func (b *bench) session() *Frontend {
	b.tb.Helper()
	f := b.dial()
	b.do(func() error {
		_, _, err := f.Negotiate(^uint64(0)&^VhostFLogAll, allProtocol)
		return err
	})
	return f
}

// vm is guest memory with one ring and a driver per queue of the device.
type vm struct {
	mem  *vringtest.Memory
	ring [4]*vringtest.Ring
	drv  [4]*vringtest.Driver
	call [4]*vringtest.Event
	errs [4]*vringtest.Event
}

func newVM(tb testing.TB) *vm {
	v := &vm{mem: vringtest.NewMemory(tb, 1<<20, 1<<20)}
	for i := range v.ring {
		v.newRing(tb, i)
	}
	return v
}

func (v *vm) newRing(tb testing.TB, i int) {
	v.ring[i] = v.mem.NewRing(64)
	v.drv[i] = v.ring[i].NewDriver(vringtest.Features{EventIdx: true, InOrder: true}, 0)
	v.call[i], v.errs[i] = vringtest.NewEvent(tb), vringtest.NewEvent(tb)
}

func (v *vm) addr(i int) VringAddr {
	r := v.ring[i]
	return VringAddr{Index: uint32(i), Desc: v.mem.UVA(r.DescGPA), Avail: v.mem.UVA(r.AvailGPA), Used: v.mem.UVA(r.UsedGPA), Log: r.UsedGPA}
}

func (v *vm) setup(i int, base uint16) RingSetup {
	a := v.addr(i)
	return RingSetup{Size: uint32(v.ring[i].Size), Desc: a.Desc, Avail: a.Avail, Used: a.Used, Log: a.Log,
		Base: base, Kick: v.drv[i].Kick.FD, Call: v.call[i].FD, Err: v.errs[i].FD}
}

// running is a session with memory shared and the first pair of rings started
// and enabled.
func (b *bench) running() (*Frontend, *vm) {
	b.tb.Helper()
	v := newVM(b.tb)
	return b.start(v), v
}

func (b *bench) start(v *vm) *Frontend {
	b.tb.Helper()
	f := b.session()
	b.do(
		func() error { return f.SetMemTable(v.mem.Regions()) },
		func() error { return f.StartRing(0, v.setup(0, 0)) },
		func() error { return f.StartRing(1, v.setup(1, 0)) },
		func() error { return f.SetVringEnable(0, true) },
		func() error { return f.SetVringEnable(1, true) },
	)
	b.phase(0, Running)
	b.phase(1, Running)
	return f
}

// echo sends n buffers through the device and takes them back.
func (b *bench) echo(v *vm, n int) {
	b.tb.Helper()
	b.dev.Echo = true
	for i := range n {
		want := fmt.Sprintf("buffer %d", i)
		if _, ok := v.drv[0].Post(64); !ok {
			b.tb.Fatal("receive ring full")
		}
		if _, ok := v.drv[1].Send([]byte(want)); !ok {
			b.tb.Fatal("transmit ring full")
		}
		b.turn()
		b.pass(2 * time.Millisecond)
		got := v.drv[0].Reap()
		if len(got) != 1 || string(got[0].Data) != want {
			b.tb.Fatalf("echo %d: got %d chains %v\nlog: %s", i, len(got), got, strings.Join(b.log, "\n"))
		}
		if sent := v.drv[1].Reap(); len(sent) != 1 {
			b.tb.Fatalf("echo %d: %d sent chains came back", i, len(sent))
		}
	}
}

func (b *bench) phase(i int, want Phase) {
	b.tb.Helper()
	if got := b.srv.State().Rings[i].Phase; got != want {
		b.tb.Fatalf("ring %d is %v, want %v\nlog: %s", i, got, want, strings.Join(b.log, "\n"))
	}
}

// calls compares what the device was told since the last calls.
func (b *bench) calls(want ...string) {
	b.tb.Helper()
	if got := b.dev.Take(); !slices.Equal(got, want) {
		b.tb.Errorf("device was told\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

// nack expects a refusal after which the session lives.
func (b *bench) nack(f func() error) {
	b.tb.Helper()
	err := b.try(f)
	if _, ok := err.(*NackError); !ok {
		b.tb.Fatalf("got %v, want a refusal\nlog: %s", err, strings.Join(b.log, "\n"))
	}
	if !b.srv.State().Connected {
		b.tb.Fatalf("refused, and then closed: %s", b.srv.State().Counters.LastClose)
	}
}

// closed expects that f ends the session, and that a new one can begin.
func (b *bench) closed(f func() error) {
	b.tb.Helper()
	err := b.try(f)
	b.turn()
	if b.srv.State().Connected {
		b.tb.Fatalf("still connected; the frontend's error is %v", err)
	}
	if err == nil {
		if _, _, err := b.f.ReadReply(); err != ErrClosed {
			b.tb.Fatalf("connection not closed: %v", err)
		}
	}
}

func countFDs(tb testing.TB) int {
	tb.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	return len(d)
}

// keepsFDs fails the test if f leaves more or fewer descriptors open than it
// found.
func keepsFDs(tb testing.TB, f func()) {
	tb.Helper()
	before := countFDs(tb)
	f()
	if after := countFDs(tb); after != before {
		tb.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openFile(tb testing.TB, path string, flags int) int {
	tb.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	return fd
}

func countMappings(tb testing.TB, name string) int {
	tb.Helper()
	p, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Count(string(p), "memfd:"+name)
}

// kick writes to ring i's kick descriptor whatever the driver thinks of it.
func kick(v *vm, i int) { unix.Write(v.drv[i].Kick.FD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }
