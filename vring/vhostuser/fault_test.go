package vhostuser_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring"
	"guestwire/vring/guestmem"
)

// testM11: the file behind guest memory shrinks.
func testM11(t *testing.T) {
	t.Run("sealed where it can be", func(t *testing.T) {
		b := newBench(t)
		_, v := b.running()
		if err := unix.Ftruncate(v.mem.FD, 4096); err != unix.EPERM {
			t.Errorf("ftruncate of guest memory: %v, want EPERM", err)
		}
		b.echo(v, 3)
	})
	t.Run("an unsealable file breaks the rings, not the process", func(t *testing.T) {
		b := newBench(t)
		b.panics = 1
		f, v := b.runningOnFile(t)
		v.echo(t)
		v.truncate(t)
		b.dev.Take()
		kick(v.vm, 1)
		b.turn()
		if n := b.loop.Stats().Panics; n != 1 {
			t.Fatalf("%d faults", n)
		}
		b.calls("Stop(0)", "Stop(1)")
		b.phase(0, Broken)
		b.phase(1, Broken)
		if v.errs[0].Count() == 0 || v.errs[1].Count() == 0 {
			t.Errorf("err descriptors not signalled")
		}
		if r := b.srv.State().Rings[1].Broken; r == nil || r.Reason != vring.UsedFault {
			t.Errorf("ring 1: %v", r)
		}
		if !b.srv.State().Connected {
			t.Errorf("disconnected")
		}

		// Set up again over the same hole it would fault again, and a second fault
		// within ten seconds ends the loop: it has to wait, and it does not touch it.
		setup := func() {
			for i := range 2 {
				b.do(func() error { _, err := f.GetVringBase(i); return err },
					func() error { return f.StartRing(i, v.setup(i, 0)) })
			}
		}
		setup()
		b.phase(0, Waiting)
		b.pass(10 * time.Second)
		b.phase(0, Waiting)

		// In time the frontend puts the memory right.
		v.newRing(t, 0)
		v.newRing(t, 1)
		v.restore(t)
		setup()
		b.pass(2 * time.Second)
		b.phase(0, Running)
		v.echo(t)
	})
	t.Run("a hole under a ring that starts closes the session", func(t *testing.T) {
		b := newBench(t)
		b.panics = 1
		f, w := b.runningOnFile(t)
		b.do(func() error { _, err := f.GetVringBase(0); return err })
		w.truncate(t)
		b.closed(func() error { return f.StartRing(0, w.setup(0, 0)) })
		f.Close()
		b.turn()

		// The next frontend's rings wait out the rest.
		v := newVM(t)
		f = b.session()
		b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
		for i := range 2 {
			b.do(func() error { return f.StartRing(i, v.setup(i, 0)) }, func() error { return f.SetVringEnable(i, true) })
		}
		b.phase(0, Waiting)
		b.pass(12 * time.Second)
		b.phase(0, Running)
		b.echo(v, 3)
	})
}

// fileVM is a guest whose memory is in a file of a file system, which cannot be
// sealed. The driver keeps its own copy of it, in which nothing ever faults.
type fileVM struct {
	*vm
	b       *bench
	file    int
	regions []guestmem.Region
	size    int64
}

func (b *bench) runningOnFile(t *testing.T) (*Frontend, *fileVM) {
	t.Helper()
	f, v := b.running()
	w := &fileVM{vm: v, b: b, file: openFile(t, t.TempDir()+"/mem", unix.O_RDWR|unix.O_CREAT), regions: v.mem.Regions()}
	for i := range w.regions {
		w.regions[i].FD = w.file
	}
	w.size = int64(w.regions[1].MmapOffset + w.regions[1].Size)
	w.restore(t)
	b.do(func() error { return f.SetMemTable(w.regions) })
	return f, w
}

// restore makes the file what the driver's copy is.
func (w *fileVM) restore(t *testing.T) {
	t.Helper()
	p := make([]byte, w.size)
	if _, err := unix.Pread(w.mem.FD, p, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(w.file, p, 0); err != nil {
		t.Fatal(err)
	}
}

func (w *fileVM) truncate(t *testing.T) {
	t.Helper()
	if err := unix.Ftruncate(w.file, 0); err != nil {
		t.Fatal(err)
	}
}

// echo has one buffer echoed and does not look at what comes back.
func (w *fileVM) echo(t *testing.T) {
	t.Helper()
	w.b.dev.Echo = true
	w.drv[0].Post(64)
	w.drv[1].Send([]byte("x"))
	w.restore(t)
	n := w.b.dev.Echoed
	kick(w.vm, 1)
	w.b.turn()
	if w.b.dev.Echoed != n+1 {
		t.Fatalf("%d buffers echoed, want 1\nlog: %s", w.b.dev.Echoed-n, strings.Join(w.b.log, "\n"))
	}
}

// A device that panics breaks; everything else goes on.
func TestDevicePanics(t *testing.T) {
	b := newBench(t)
	b.panics = 1
	f, v := b.running()
	b.dev.OnKick = func(int, *vring.DeviceQueue) { panic("bug in the device") }
	kick(v, 1)
	b.turn()
	b.phase(0, Broken)
	b.phase(1, Broken)
	b.dev.OnKick = nil
	if !strings.Contains(strings.Join(b.log, "\n"), "bug in the device") {
		t.Errorf("nothing of it in the log: %q", b.log)
	}
	b.do(func() error { _, err := f.GetFeatures(); return err })
	b.pass(11 * time.Second)
	for i := range 2 {
		v.newRing(t, i)
		b.do(func() error { _, err := f.GetVringBase(i); return err },
			func() error { return f.StartRing(i, v.setup(i, 0)) })
	}
	b.echo(v, 3)
}

// Somebody outside may find out first, for example who writes packets to guest
// memory.
func TestServerBreak(t *testing.T) {
	b := newBench(t)
	_, v := b.running()
	b.dev.Take()
	b.srv.Break(unix.EFAULT)
	b.calls("Stop(0)", "Stop(1)")
	b.phase(0, Broken)
	if v.errs[0].Count() != 1 {
		t.Errorf("err descriptor not signalled once")
	}
	b.srv.Break(unix.EFAULT)
	b.calls()
}

// A ring that its driver breaks stops; the other goes on, and setting it up
// again revives it.
func TestBrokenRing(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 3)
	b.dev.Take()
	v.ring[1].Offer(1000)
	kick(v, 1)
	b.turn()
	b.calls("Stop(1)")
	b.phase(0, Running)
	b.phase(1, Broken)
	if v.errs[1].Count() != 1 {
		t.Errorf("err descriptor not signalled once")
	}
	if r := b.srv.State().Rings[1].Broken; r == nil || r.Reason != vring.HeadRange {
		t.Errorf("ring 1: %v", r)
	}
	// Neither a kick nor new memory nor another kick descriptor revives it.
	kick(v, 1)
	b.do(func() error { return f.SetMemTable(v.mem.Regions()) },
		func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) },
		func() error { return f.SetVringAddr(v.addr(1)) })
	b.nack(func() error { return f.SetVringNum(1, 64) })
	b.phase(1, Broken)
	b.do(func() error { _, err := f.GetVringBase(1); return err })
	v.newRing(t, 1)
	b.do(func() error { return f.StartRing(1, v.setup(1, 0)) })
	b.echo(v, 3)
}
