package vring_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

// The used ring of 2.7.9, read by eye: chains without a writable part before the
// last of a run get no element; the run's element stands at the place of the
// first and names the last.
func TestInOrderUsedRing(t *testing.T) {
	const never = 0xeeeeeeee
	type elem struct{ id, length uint32 }
	for _, c := range []struct {
		name   string
		write  []bool // chain i is writable
		pushes []int  // sizes of the publishes
		want   []elem
	}{
		{"one batch of TX", []bool{false, false, false, false}, []int{4}, []elem{{3, 0}, {never, never}, {never, never}, {never, never}}},
		{"two batches of TX", []bool{false, false, false, false}, []int{1, 3}, []elem{{0, 0}, {3, 0}, {never, never}, {never, never}}},
		{"RX writes every length", []bool{true, true, true}, []int{3}, []elem{{0, 1}, {1, 2}, {2, 3}}},
		{"a writable one ends a run", []bool{false, false, true, false, false}, []int{5}, []elem{{2, 3}, {never, never}, {never, never}, {4, 0}, {never, never}}},
		{"a writable one between", []bool{true, false, true}, []int{3}, []elem{{0, 1}, {2, 3}, {never, never}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vringtest.NewMemory(t, 1<<20)
			r := m.NewRing(8)
			for i := range 8 {
				r.SetUsed(uint16(i), never, never)
			}
			r.Start(0)
			for i, w := range c.write {
				flags := uint16(0)
				if w {
					flags = vringtest.Write
				}
				r.SetDesc(i, m.Alloc(64, 1), 64, flags, 0)
				r.Offer(uint16(i))
			}
			q := deviceOn(t, r, func(c *vring.Config) { c.InOrder = true })
			var ch vring.Chain
			idx := 0
			for _, n := range c.pushes {
				for range n {
					if !q.Pop(&ch) {
						t.Fatal(q.Broken())
					}
					written := uint32(0)
					if c.write[idx] {
						written = uint32(idx) + 1
					}
					q.Push(ch.Head, written)
					idx++
				}
				q.Publish()
				if int(r.UsedIdx()) != idx {
					t.Errorf("used.idx is %d, want %d", r.UsedIdx(), idx)
				}
			}
			for i, want := range c.want {
				if id, n := r.UsedElem(uint16(i)); (elem{id, n}) != want {
					t.Errorf("element %d is {%#x, %#x}, want {%#x, %#x}", i, id, n, want.id, want.length)
				}
			}
		})
	}
}

// GET_VRING_BASE: what was popped and not pushed comes again.
func TestLastAvail(t *testing.T) {
	r := ringOfOne(t, 8, 65533)
	q := deviceOn(t, r, func(c *vring.Config) { c.Base = 65533 })
	offer(r, 6)
	cs := make([]vring.Chain, 8)
	if n := q.PopBatch(cs); n != 6 {
		t.Fatalf("popped %d", n)
	}
	q.Push(0, 0)
	q.Push(0, 0)
	q.Publish()
	if got, want := q.LastAvail(), uint16(65535); got != want || r.UsedIdx() != want {
		t.Errorf("base is %d, used.idx %d, want %d", got, r.UsedIdx(), want)
	}
	q.Rewind(99)
	if q.LastAvail() != 65535 || q.Available() != 4 {
		t.Errorf("base %d, %d available after rewinding", q.LastAvail(), q.Available())
	}
	if s := q.Stats(); s.Pops != 2 || s.Pushes != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestPushOutOfOrder(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(4)
	for i := range 3 {
		r.SetDesc(i, m.Alloc(8, 1), 8, 0, 0)
	}
	r.Offer(2, 0, 1)
	var c vring.Chain
	for name, misuse := range map[string]func(q *vring.DeviceQueue){
		"second first":   func(q *vring.DeviceQueue) { q.Pop(&c); q.Pop(&c); q.Push(0, 0) },
		"never popped":   func(q *vring.DeviceQueue) { q.Push(2, 0) },
		"twice":          func(q *vring.DeviceQueue) { q.Pop(&c); q.Push(2, 0); q.Push(2, 0) },
		"after a rewind": func(q *vring.DeviceQueue) { q.Pop(&c); q.Rewind(1); q.Push(2, 0) },
	} {
		q := deviceOn(t, r, nil)
		misuse(q)
		q.Publish()
		if e := q.Broken(); e == nil || e.Reason != vring.PushOrder || r.UsedIdx() != 0 {
			t.Errorf("%s: %v, used.idx %d", name, e, r.UsedIdx())
		}
	}
}

// A chain that finds the arena full stays in the ring until others are
// published; nothing breaks and nothing is lost.
func TestFullArena(t *testing.T) {
	m := vringtest.NewMemory(t, 4<<20)
	r := m.NewRing(256)
	table, n := r.Table(func(b []byte) {
		for i := range 1000 {
			vringtest.PutDesc(b[16*i:], vringtest.BaseGPA, 1, vringtest.Next, uint16(i)+1)
		}
		vringtest.PutDesc(b[16*1000:], vringtest.BaseGPA, 1, 0, 0)
	}, 1001)
	r.SetDesc(0, table, n, vringtest.Indirect, 0)
	offer(r, 256)
	q := deviceOn(t, r, func(c *vring.Config) { c.Indirect = true })
	cs := make([]vring.Chain, 256)
	total, rounds := 0, 0
	for ; total < 256; rounds++ {
		n := q.PopBatch(cs)
		if n == 0 {
			t.Fatalf("nothing popped in an empty arena: %v", q.Broken())
		}
		if total+n < 256 && !q.ArmKick() {
			t.Fatal("chains left behind are not reported")
		}
		for i := range n {
			if len(cs[i].Readable) != 1001 || cs[i].ReadLen != 1001 {
				t.Fatalf("chain of %d segments", len(cs[i].Readable))
			}
			q.Push(0, 0)
		}
		q.Publish()
		total += n
	}
	// 32 slots per entry hold 8 such chains at a time.
	if rounds != 32 || r.UsedIdx() != 256 {
		t.Errorf("%d rounds, used.idx %d", rounds, r.UsedIdx())
	}
}

// More pieces than the arena ever holds: a buffer cut into many regions, again
// and again.
func TestTooFragmented(t *testing.T) {
	sizes := make([]uint64, 200)
	for i := range sizes {
		sizes[i] = 1
	}
	m := vringtest.NewMemory(t, append([]uint64{1 << 20}, sizes...)...)
	r := m.NewRing(16)
	table, n := r.Table(func(b []byte) {
		for i := range 100 {
			vringtest.PutDesc(b[16*i:], m.End()-200, 200, vringtest.Next, uint16(i)+1)
		}
	}, 100)
	r.SetDesc(0, table, n, vringtest.Indirect, 0)
	offer(r, 1)
	q := deviceOn(t, r, func(c *vring.Config) { c.Indirect = true })
	var c vring.Chain
	if q.Pop(&c) || q.Broken() == nil || q.Broken().Reason != vring.Segments {
		t.Errorf("broken is %v", q.Broken())
	}
}

// Reclaim returns what a backend before us popped and lost.
func TestReclaim(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(8)
	r.Start(65534)
	for i := range 8 {
		r.SetDesc(i, m.Alloc(64, 1), 64, vringtest.Write, 0)
	}
	r.Offer(5, 3, 1, 7)
	call := vringtest.NewEvent(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.Base, c.CallFD = 1, call.FD })
	if n := q.Reclaim(); n != 3 || call.Count() != 1 {
		t.Fatalf("reclaimed %d", n)
	}
	for i, head := range []uint32{5, 3, 1} {
		if id, n := r.UsedElem(uint16(65534 + i)); id != head || n != 0 {
			t.Errorf("element %d is {%d, %d}", i, id, n)
		}
	}
	if q.Reclaim() != 0 || r.UsedIdx() != 1 {
		t.Errorf("used.idx is %d", r.UsedIdx())
	}
	var c vring.Chain
	if !q.Pop(&c) || c.Head != 7 {
		t.Errorf("the next chain is %d", c.Head)
	}
	// A gap that no ring can have is nobody's chains.
	r.Start(100)
	if q := deviceOn(t, r, func(c *vring.Config) { c.Base = 50 }); q.Reclaim() != 0 || r.UsedIdx() != 100 {
		t.Error("reclaimed a gap larger than the ring")
	}
}

// SetMem: same guest memory, mapped anew elsewhere; the old mapping goes away.
func TestSetMem(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(8)
	for i := range 8 {
		r.SetDesc(i, m.Alloc(64, 1), 64, vringtest.Write, 0)
	}
	old, err := guestmem.Map(m.Regions())
	if err != nil {
		t.Fatal(err)
	}
	q, err := vring.NewDeviceQueue(r.Config(old))
	if err != nil {
		t.Fatal(err)
	}
	r.Offer(0, 1, 2, 3)
	var c vring.Chain
	q.Pop(&c)
	q.Push(c.Head, 1)
	q.Pop(&c) // held over the change: comes again
	now := m.Table()
	cfg := r.Config(now)
	if err := q.SetMem(now, cfg.Desc[:16], cfg.Avail, cfg.Used); err == nil {
		t.Error("a short descriptor table was accepted")
	}
	if err := q.SetMem(now, cfg.Desc, cfg.Avail, cfg.Used); err != nil {
		t.Fatal(err)
	}
	old.Close()
	if r.UsedIdx() != 1 {
		t.Errorf("used.idx is %d: what was pushed must be published", r.UsedIdx())
	}
	var heads []uint16
	for q.Pop(&c) {
		heads = append(heads, c.Head)
		c.Writable[0][0] = 1
		q.Push(c.Head, 1)
	}
	q.Publish()
	if !slices.Equal(heads, []uint16{1, 2, 3}) || r.UsedIdx() != 4 {
		t.Errorf("popped %v, used.idx %d", heads, r.UsedIdx())
	}
}

// The dirty log gets the pages of what was written and of the used ring, no
// others.
func TestDirtyLog(t *testing.T) {
	for _, logUsed := range []bool{false, true} {
		m := vringtest.NewMemory(t, 16<<12, 16<<12) // 32 pages
		const page0 = vringtest.BaseGPA >> 12
		r := m.RingAt(4, vringtest.BaseGPA, vringtest.BaseGPA+1<<12, vringtest.BaseGPA+2<<12)
		at := func(page, off uint64) uint64 { return vringtest.BaseGPA + page<<12 + off }
		r.SetDesc(0, at(4, 0), 8<<12, vringtest.Write, 0)   // 8 pages, one byte written
		r.SetDesc(1, at(15, 0xff0), 32, vringtest.Write, 0) // across the regions
		r.SetDesc(2, at(20, 0), 64, 0, 0)                   // only read
		r.SetDesc(3, at(24, 0xfff), 2, vringtest.Write, 0)  // nothing written
		fd, err := unix.MemfdCreate("log", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		size := uint64(page0+32)/8 + 8
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			t.Fatal(err)
		}
		log, err := guestmem.MapLog(fd, size, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		dirty := func() (pages []uint64) {
			var b [8]byte
			if _, err := unix.Pread(fd, b[:], page0/8); err != nil {
				t.Fatal(err)
			}
			v := binary.LittleEndian.Uint64(b[:])
			for p := range uint64(64) {
				if v>>p&1 != 0 {
					pages = append(pages, p)
				}
			}
			if _, err := unix.Pwrite(fd, make([]byte, 8), page0/8); err != nil {
				t.Fatal(err)
			}
			return pages
		}
		used := []uint64(nil)
		if logUsed {
			used = []uint64{2}
		}
		q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx = true })
		r.Offer(0)
		served(t, q, 1)
		if got := dirty(); got != nil {
			t.Errorf("pages %v without a log", got)
		}
		q.SetLog(log, r.UsedGPA, logUsed)
		for _, c := range []struct {
			head    uint16
			written uint32
			want    []uint64
		}{
			{0, 1, []uint64{4}},
			{0, 0x1001, []uint64{4, 5}},
			{0, 8 << 12, []uint64{4, 5, 6, 7, 8, 9, 10, 11}},
			{1, 16, []uint64{15}},
			{1, 17, []uint64{15, 16}},
			{2, 0, nil},
			{3, 0, nil},
			{3, 2, []uint64{24, 25}},
		} {
			r.Offer(c.head)
			var ch vring.Chain
			if !q.Pop(&ch) {
				t.Fatal(q.Broken())
			}
			if got := dirty(); got != nil {
				t.Errorf("pages %v marked by a pop", got)
			}
			q.Push(ch.Head, c.written)
			q.Publish()
			want := append(slices.Clone(used), c.want...)
			if got := dirty(); !slices.Equal(got, want) {
				t.Errorf("head %d, %d written: pages %v, want %v", c.head, c.written, got, want)
			}
		}
		q.ArmKick()
		if got := dirty(); !slices.Equal(got, used) {
			t.Errorf("avail_event: pages %v, want %v", got, used)
		}
		q.SetLog(nil, 0, false)
		r.Offer(0)
		served(t, q, 1)
		if got := dirty(); got != nil {
			t.Errorf("pages %v after the log was taken away", got)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, f := range []vringtest.Features{{}, {EventIdx: true, Indirect: true, InOrder: true}} {
		p := newPair(t, 64, f, 0, 1<<20, 1<<20)
		far := vringtest.BaseGPA + 1<<20
		lists := [][]vring.DriverSeg{
			{{GPA: vringtest.BaseGPA, Len: 2048}},
			{{GPA: vringtest.BaseGPA, Len: 2048, Write: true}},
			{{GPA: uint64(far) - 100, Len: 2048}, {GPA: uint64(far) + 5000, Len: 64, Write: true}},
			make([]vring.DriverSeg, 20),
		}
		for i := range lists[3] {
			lists[3][i] = vring.DriverSeg{GPA: vringtest.BaseGPA + uint64(i)*4096, Len: 4096}
		}
		cs := make([]vring.Chain, 32)
		round := func() {
			for i := range 32 {
				p.drv.Add(lists[i%len(lists)], uint32(i))
			}
			p.drv.Publish()
			n := p.dev.PopBatch(cs)
			p.dev.Rewind(n / 2)
			n -= n / 2
			for i := range n {
				p.dev.Push(cs[i].Head, cs[i].WriteLen)
			}
			p.dev.Publish()
			for p.dev.Pop(&cs[0]) {
				p.dev.Push(cs[0].Head, 0)
			}
			p.dev.Publish()
			p.dev.ArmKick()
			for {
				if _, _, ok := p.drv.Used(); !ok {
					break
				}
			}
			p.drv.ArmCall()
		}
		round()
		if n := testing.AllocsPerRun(200, round); n != 0 {
			t.Errorf("%+v: %v allocations per round", f, n)
		}
		if p.dev.Broken() != nil || p.drv.Broken() != nil {
			t.Fatal(p.dev.Broken(), p.drv.Broken())
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := vring.AvailTooFar; r <= vring.Stopped; r++ {
		if s := r.String(); seen[s] || s == "" || s[:3] == "rea" && r != vring.Order {
			t.Errorf("reason %d is called %q", uint8(r), s)
		}
		seen[r.String()] = true
	}
	if s := vring.Reason(200).String(); s != "reason 200" {
		t.Errorf("unknown reason is called %q", s)
	}
}

// Found by the model: an empty chain takes a slot too, and getting it may move
// the chain to the front of the arena.
func TestEmptyChainWrapsTheArena(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(32)
	gpa := m.Alloc(64, 1)
	r.SetDesc(0, gpa, 32, vringtest.Next, 1)
	r.SetDesc(1, gpa+32, 32, 0, 0)
	r.SetDesc(2, 0, 0, 0, 0)
	offer(r, 32)
	q := deviceOn(t, r, nil)
	cs := make([]vring.Chain, 32)
	if n := q.PopBatch(cs); n != 32 { // 64 slots: all
		t.Fatalf("popped %d", n)
	}
	q.Push(0, 0)
	q.Publish()
	r.Offer(2)
	var c vring.Chain
	if !q.Pop(&c) || c.Head != 2 || len(c.Readable)+len(c.Writable) != 0 || c.ReadLen+c.WriteLen != 0 {
		t.Errorf("popped %+v, %v", c, q.Broken())
	}
}
