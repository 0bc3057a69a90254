package vhostuser_test

import (
	"testing"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring"
	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

func popAll(i int, q *vring.DeviceQueue) {
	var c vring.Chain
	for q.Pop(&c) {
		q.Push(c.Head, 0)
	}
	q.Publish()
	q.ArmKick()
}

// testLateMemTable swaps memory under running rings, which get no new addresses:
// the same bytes come from elsewhere in the frontend's file.
func testLateMemTable(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 10)
	keepsFDs(t, func() {
		for range 50 {
			b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
			b.echo(v, 2)
		}
	})
	if got := len(b.dev.Take()); got == 0 {
		t.Fatal("the device was never told anything")
	}
	b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
	b.calls() // the queue stayed the same
	if b.dev.Running[0].Broken() != nil || b.dev.Running[1].Broken() != nil {
		t.Errorf("broken")
	}
}

// The old mapping must be gone, and nothing may look at it.
func TestMemorySwapReallyMoves(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 3)
	// A copy of guest memory in another file, to which the guest moves.
	var st unix.Stat_t
	if err := unix.Fstat(v.mem.FD, &st); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("copy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, st.Size); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, st.Size)
	unix.Pread(v.mem.FD, p, 0)
	unix.Pwrite(fd, p, 0)
	rs := v.mem.Regions()
	for i := range rs {
		rs[i].FD = fd
	}
	b.do(func() error { return f.SetMemTable(rs) })

	v.drv[1].Send([]byte("into the old memory"))
	b.turn()
	if b.dev.Echoed != 3 || len(v.drv[1].Reap()) != 0 {
		t.Errorf("the old memory is still being served")
	}
	if n := countMappings(t, "vringtest"); n != 1 {
		t.Errorf("guest memory is mapped %d times, want once, by the test", n)
	}
}

// A ring that falls out of memory stops and comes back with it.
func TestRingOutsideMemory(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 70)
	b.dev.Take()
	first, second := v.mem.Regions()[0], v.mem.Regions()[1] // rings are in the first
	b.do(func() error { return f.SetMemTable([]guestmem.Region{second}) })
	b.calls("Stop(0)", "Stop(1)")
	b.phase(0, Waiting)
	kick(v, 1)
	b.turn()
	b.do(func() error { return f.AddMemReg(first) })
	b.calls("Start(0)", "Start(1)")
	b.echo(v, 70)

	b.do(func() error { return f.RemMemReg(first) }) // M14
	b.calls("Stop(0)", "Stop(1)")
	var base uint16
	b.do(func() (err error) { base, err = f.GetVringBase(1); return })
	if base != 140 {
		t.Errorf("base %d, want 140", base)
	}
	b.do(func() error { return f.RemMemReg(second) }, func() error { return f.SetMemTable(v.mem.Regions()) })
	b.phase(0, Running)
	b.phase(1, Stopped)
}

func testLogging(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	size := (v.mem.End()/guestmem.PageSize+7)/8 + 4096
	logFD, bits := newLog(t, size)
	dirty := func(gpa uint64) bool { p := gpa / guestmem.PageSize; return bits[p/8]&(1<<(p%8)) != 0 }
	anyDirty := func() bool {
		for _, c := range bits {
			if c != 0 {
				return true
			}
		}
		return false
	}
	acked := b.srv.State().Features
	event := vringtest.NewEvent(t)

	b.do(func() error { return f.SetLogBase(logFD, size, 0) }, func() error { return f.SetLogFD(event.FD) })
	b.echo(v, 1)
	if anyDirty() {
		t.Errorf("logged without LOG_ALL")
	}
	b.dev.Take()
	withLog := func(used bool) {
		for i := range 2 {
			a := v.addr(i)
			if used {
				a.Flags = 1
			}
			b.do(func() error { return f.SetVringAddr(a) })
		}
	}
	b.do(func() error { return f.SetFeatures(acked | VhostFLogAll) })
	withLog(true)
	b.calls() // the device need not know
	b.echo(v, 1)
	for i := range 2 {
		if !dirty(v.ring[i].UsedGPA) {
			t.Errorf("used ring %d not logged", i)
		}
	}
	b.pass(200e6)
	if event.Count() == 0 {
		t.Errorf("log descriptor not signalled")
	}

	// A new log while it is in use.
	logFD2, bits2 := newLog(t, size)
	b.do(func() error { return f.SetLogBase(logFD2, size, 0) })
	clear(bits)
	b.echo(v, 1)
	if anyDirty() {
		t.Errorf("the old log is still written")
	}
	bits = bits2
	if !dirty(v.ring[0].UsedGPA) {
		t.Errorf("the new log is not written")
	}

	withLog(false)
	clear(bits)
	b.echo(v, 1)
	if !anyDirty() {
		t.Errorf("received data not logged")
	}
	b.do(func() error { return f.SetFeatures(acked) })
	clear(bits)
	b.echo(v, 1)
	if anyDirty() {
		t.Errorf("logged after LOG_ALL was taken back")
	}
	if b.srv.State().Logging {
		t.Errorf("still logging")
	}
	f.Close()
	b.turn()
	if n := countMappings(t, "dirty-log"); n != 2 {
		t.Errorf("logs are mapped %d times, want twice, by the test", n)
	}
}

func newLog(t *testing.T, size uint64) (fd int, bits []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("dirty-log", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	bits, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(bits) })
	return fd, bits
}
