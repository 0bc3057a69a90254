package vring_test

import (
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

// deviceOn starts the device side of r as c wants it.
func deviceOn(t testing.TB, r *vringtest.Ring, change func(c *vring.Config)) *vring.DeviceQueue {
	t.Helper()
	c := r.Config(r.Mem.Table())
	if change != nil {
		change(&c)
	}
	q, err := vring.NewDeviceQueue(c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestHostileContent serves every ring of the catalogue: it breaks for the
// stated reason, says so once on err, and touches nothing afterwards; or the
// chain is served and every pop has its used element.
func TestHostileContent(t *testing.T) {
	for _, h := range vringtest.Hostiles() {
		t.Run(h.ID+" "+h.Name, func(t *testing.T) {
			m := vringtest.NewMemory(t, 8<<20, 1<<20)
			r := m.NewRing(vringtest.HostileSize)
			h.Build(r)
			call, errs := vringtest.NewEvent(t), vringtest.NewEvent(t)
			q := deviceOn(t, r, func(c *vring.Config) {
				c.Indirect, c.EventIdx, c.InOrder = h.Features.Indirect, h.Features.EventIdx, h.Features.InOrder
				c.CallFD, c.ErrFD, c.Index = call.FD, errs.FD, 5
			})
			var c vring.Chain
			offered := r.AvailIdx()
			ok := q.Pop(&c)
			if h.Want != 0 {
				if ok {
					t.Fatalf("served as %d+%d bytes", c.ReadLen, c.WriteLen)
				}
				checkBroken(t, q, r, h.Want, call, errs)
				return
			}
			if !ok {
				t.Fatalf("not served: %v", q.Broken())
			}
			if c.ReadLen != h.Read || c.WriteLen != h.Written || len(c.Readable)+len(c.Writable) != h.Pieces {
				t.Errorf("%d bytes to read, %d to write in %d pieces; want %d, %d, %d",
					c.ReadLen, c.WriteLen, len(c.Readable)+len(c.Writable), h.Read, h.Written, h.Pieces)
			}
			if c.ReadLen != vring.Oversize && total(c.Readable) != int(c.ReadLen) || total(c.Writable) != int(c.WriteLen) {
				t.Error("the slices do not add up to the lengths")
			}
			q.Push(c.Head, 0)
			for q.Pop(&c) {
				q.Push(c.Head, 0)
			}
			q.Publish()
			if q.Broken() != nil || r.UsedIdx() != offered {
				t.Errorf("%d used of %d, %v", r.UsedIdx(), offered, q.Broken())
			}
		})
	}
}

func total(segs [][]byte) (n int) {
	for _, s := range segs {
		n += len(s)
	}
	return n
}

// checkBroken checks that q broke for reason and is inert.
func checkBroken(t *testing.T, q *vring.DeviceQueue, r *vringtest.Ring, want vring.Reason, call, errs *vringtest.Event) {
	t.Helper()
	e := q.Broken()
	if e == nil || e.Reason != want || e.Queue != 5 {
		t.Fatalf("broken is %v, want %v", e, want)
	}
	if n := errs.Count(); n != 1 {
		t.Errorf("err was signalled %d times", n)
	}
	used, avail := r.UsedIdx(), q.LastAvail()
	var c vring.Chain
	if q.Pop(&c) || q.PopBatch(make([]vring.Chain, 4)) != 0 || q.Available() != 0 || q.ArmKick() {
		t.Error("a broken queue goes on")
	}
	q.Push(0, 0)
	q.Rewind(1)
	q.DisarmKick()
	q.Publish()
	q.Break(vring.Stopped)
	if q.Broken() != e || errs.Count() != 0 || call.Count() != 0 || r.UsedIdx() != used || q.LastAvail() != avail {
		t.Error("a broken queue changed")
	}
}

// R14: decisions are made on private copies. The guest rewrites everything
// between Pop and Push.
func TestHostileR14(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(16)
	gpa := m.Alloc(64, 1)
	table, n := r.Table(func(b []byte) {
		vringtest.PutDesc(b, gpa, 32, vringtest.Next, 1)
		vringtest.PutDesc(b[16:], gpa+32, 32, vringtest.Write, 0)
	}, 2)
	r.SetDesc(7, table, n, vringtest.Indirect, 0)
	r.Offer(7)
	q := deviceOn(t, r, func(c *vring.Config) { c.Indirect = true })
	var c vring.Chain
	if !q.Pop(&c) {
		t.Fatal(q.Broken())
	}
	for i := range 16 {
		r.SetDesc(i, ^uint64(0), ^uint32(0), 0xffff, 0xffff)
		r.SetAvail(uint16(i), 0xffff)
	}
	clear(m.Bytes(table, uint64(n)))
	if c.ReadLen != 32 || c.WriteLen != 32 || len(c.Readable[0]) != 32 || len(c.Writable[0]) != 32 {
		t.Errorf("the chain changed under us: %d+%d bytes", c.ReadLen, c.WriteLen)
	}
	c.Writable[0][0] = 9
	q.Push(c.Head, 1)
	q.Publish()
	if id, n := r.UsedElem(0); id != 7 || n != 1 || m.Bytes(gpa+32, 1)[0] != 9 {
		t.Errorf("used element is %d, %d bytes", id, n)
	}
}

// R14 again, with a second thread that writes random bytes all over the memory,
// rings included, while the device works. Nothing may leave guest memory.
func TestHostileR14Concurrent(t *testing.T) {
	m := vringtest.NewMemory(t, 0x3000, 0x1001)
	r := m.NewRing(16)
	mem := m.Bytes(vringtest.BaseGPA, 0x3000)
	var stop atomic.Bool
	flipped := make(chan int)
	go func() {
		rng := rand.New(rand.NewPCG(5, 5))
		n := 0
		for ; !stop.Load(); n++ {
			mem[rng.IntN(512)] ^= 1 << rng.IntN(8) // the rings are in there
			spin(200)
		}
		flipped <- n
	}()
	pops, breaks := 0, map[vring.Reason]int{}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		for i := range 16 {
			r.SetDesc(i, vringtest.BaseGPA+uint64(i)*100, 100, uint16(i%8), uint16(i+1)%16)
			r.SetAvail(uint16(i), uint16(i))
		}
		q := deviceOn(t, r, func(c *vring.Config) {
			c.Indirect, c.EventIdx, c.InOrder, c.Base = true, true, true, r.AvailIdx()-16
		})
		var c vring.Chain
		for q.Pop(&c) {
			pops++
			for _, s := range append(c.Readable, c.Writable...) {
				if gpa, ok := m.Table().GPA(s); !ok || len(m.Table().Slice(gpa, uint64(len(s)))) != len(s) {
					t.Fatalf("segment of %d bytes outside guest memory", len(s))
				}
			}
			q.Push(c.Head, c.WriteLen)
			q.Publish()
		}
		if e := q.Broken(); e != nil {
			breaks[e.Reason]++
		}
	}
	stop.Store(true)
	t.Logf("%d pops, %d flips, broken for %v", pops, <-flipped, breaks)
}

// R17: a device that needs more chains than there are gives all back, asks for a
// kick beyond them and finds them again, in order.
func TestHostileR17(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(16)
	for i := range 16 {
		r.SetDesc(i, m.Alloc(64, 1), 64, vringtest.Write, 0)
	}
	r.Offer(3, 1, 2)
	q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx = true })
	var c vring.Chain
	for range 1000 {
		for _, head := range []uint16{3, 1, 2} {
			if !q.Pop(&c) || c.Head != head {
				t.Fatalf("popped %d, want %d", c.Head, head)
			}
		}
		if q.Pop(&c) {
			t.Fatal("a fourth chain")
		}
		if q.ArmKick() {
			t.Fatal("everything is popped, yet ArmKick sees more")
		}
		if r.AvailEvent() != 3 {
			t.Fatalf("avail_event is %d, want the next chain", r.AvailEvent())
		}
		q.Rewind(3)
		if q.ArmKickBeyond(3) {
			t.Fatal("three chains are more than three")
		}
		if !q.ArmKickBeyond(2) || !q.ArmKick() {
			t.Fatal("three chains are not more than two")
		}
	}
	r.Offer(9)
	if !q.ArmKickBeyond(3) || q.Available() != 4 {
		t.Error("the fourth chain is not seen")
	}
	if s := q.Stats(); s.Pops != 0 || s.Pushes != 0 {
		t.Errorf("stats %+v after rewinding everything", s)
	}
}

// R18 and R19: what makes no ring is refused at set-up.
func TestHostileR18R19(t *testing.T) {
	m := vringtest.NewMemory(t, 8<<20)
	r := m.NewRing(1024)
	good := r.Config(m.Table())
	for _, c := range []struct {
		name   string
		change func(c *vring.Config)
		ok     bool
	}{
		{"as it should be", func(c *vring.Config) {}, true},
		{"size 0", func(c *vring.Config) { c.Size = 0 }, false},
		{"size 1", func(c *vring.Config) { c.Size = 1 }, true},
		{"size 3", func(c *vring.Config) { c.Size = 3 }, false},
		{"size 1023", func(c *vring.Config) { c.Size = 1023 }, false},
		{"size 32769", func(c *vring.Config) { c.Size = 32769 }, false},
		{"size 65535", func(c *vring.Config) { c.Size = 65535 }, false},
		{"size larger than the areas", func(c *vring.Config) { c.Size = 2048 }, false},
		{"no descriptor table", func(c *vring.Config) { c.Desc = nil }, false},
		{"no avail ring", func(c *vring.Config) { c.Avail = nil }, false},
		{"no used ring", func(c *vring.Config) { c.Used = nil }, false},
		{"avail ring without event", func(c *vring.Config) { c.Avail = c.Avail[:4+2*1024] }, false},
		{"used ring without event", func(c *vring.Config) { c.Used = c.Used[:4+8*1024] }, false},
		{"table aligned to 8", func(c *vring.Config) { c.Size, c.Desc = 512, c.Desc[8:] }, false},
		{"avail ring aligned to 1", func(c *vring.Config) { c.Size, c.Avail = 512, c.Avail[1:] }, false},
		{"avail ring aligned to 2", func(c *vring.Config) { c.Size, c.Avail = 512, c.Avail[2:] }, true},
		{"used ring aligned to 2", func(c *vring.Config) { c.Size, c.Used = 512, c.Used[2:] }, false},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := vring.NewDeviceQueue(cfg); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Overlapping areas are the guest's problem; ours is to stay bounded.
	at := m.Alloc(64<<10, 16)
	r = m.RingAt(64, at, at, at)
	q := deviceOn(t, r, func(c *vring.Config) { c.Indirect, c.EventIdx, c.InOrder = true, true, true })
	var c vring.Chain
	for range 1000 {
		r.SetAvailIdx(r.AvailIdx() + 1)
		for q.Pop(&c) {
			q.Push(c.Head, c.WriteLen)
		}
		q.Publish()
		q.ArmKick()
	}
}

// R20: event indices and flags of any value cost at most a notification.
func TestHostileR20(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(4)
	r.SetDesc(0, m.Alloc(64, 1), 64, 0, 0)
	for _, event := range []bool{false, true} {
		r.Start(0)
		call := vringtest.NewEvent(t)
		q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx, c.CallFD = event, call.FD })
		for i := range 70000 {
			v := uint16(i * 40503)
			r.SetAvailFlags(v)
			r.SetUsedEvent(v)
			r.Offer(0)
			if !q.ArmKick() {
				t.Fatal("an offered chain is not seen")
			}
			var c vring.Chain
			if !q.Pop(&c) {
				t.Fatal(q.Broken())
			}
			q.Push(c.Head, 0)
			q.Publish()
		}
		if s := q.Stats(); s.Pushes != 70000 || s.Calls+s.CallsSuppressed != 70000 {
			t.Errorf("stats %+v", s)
		}
	}
}

// R21, R22, R24: the ring does not depend on kicks, nor mind them.
func TestHostileKicks(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(16)
	r.SetDesc(0, m.Alloc(64, 1), 64, 0, 0)
	q := deviceOn(t, r, nil) // no call descriptor either
	var c vring.Chain
	t.Run("R21", func(t *testing.T) { // kicked with nothing available
		for range 10000 {
			if q.Pop(&c) || q.ArmKick() || q.PopBatch(make([]vring.Chain, 1)) != 0 {
				t.Fatal("something came from nothing")
			}
			q.Publish()
		}
		if r.UsedIdx() != 0 || q.Stats().Publishes != 0 {
			t.Error("something was published")
		}
	})
	t.Run("R22", func(t *testing.T) { // no kick, no call
		r.Offer(0)
		if !q.Pop(&c) {
			t.Fatal("the chain is not seen without a kick")
		}
		q.Push(c.Head, 0)
		q.Publish()
		if r.UsedIdx() != 1 || q.Stats().Calls != 0 {
			t.Error("not published, or something was signalled")
		}
	})
	t.Run("R24", func(t *testing.T) { // the kick was drained by another
		q.ArmKick()
		r.Offer(0)
		if !q.ArmKick() {
			t.Error("arming again does not find the chain whose kick was lost")
		}
	})
}

// R23: a saturated blocking eventfd does not stop us, nor does a full pipe.
func TestHostileR23(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(4)
	r.SetDesc(0, m.Alloc(64, 1), 64, 0, 0)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC) // blocking
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	var c vring.Chain
	q := deviceOn(t, r, func(c *vring.Config) { c.CallFD, c.ErrFD = fd, fd })
	for i := range 20000 {
		if i == 100 {
			q.SetCall(p[1])
		}
		r.Offer(0)
		if !q.Pop(&c) {
			t.Fatal(q.Broken())
		}
		q.Push(c.Head, 0)
		q.Publish()
	}
	q.Break(vring.Stopped)
}

// R26: used ring memory that goes away is a fault for the loop's guard; the
// queue it breaks touches the memory never again.
func TestHostileR26(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(256)
	r.SetDesc(0, m.Alloc(64, 1), 64, 0, 0)
	r.Offer(0, 0)
	tab, err := guestmem.Map(m.Regions())
	if err != nil {
		t.Fatal(err)
	}
	call, errs := vringtest.NewEvent(t), vringtest.NewEvent(t)
	c := r.Config(tab)
	c.CallFD, c.ErrFD, c.Index = call.FD, errs.FD, 5
	q, err := vring.NewDeviceQueue(c)
	if err != nil {
		t.Fatal(err)
	}
	var ch vring.Chain
	if !q.Pop(&ch) {
		t.Fatal(q.Broken())
	}
	q.Push(ch.Head, 0)
	tab.Close() // everything is unmapped
	if !faults(q.Publish) {
		t.Fatal("publishing to unmapped memory did not fault")
	}
	q.Break(vring.UsedFault)
	checkBroken(t, q, r, vring.UsedFault, call, errs)
}

// faults calls f as the loop's guard does and reports whether memory faulted.
func faults(f func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	f()
	return
}
