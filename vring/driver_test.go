package vring_test

import (
	"testing"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

func driverOn(t *testing.T, r *vringtest.Ring, change func(c *vring.Config)) *vring.DriverQueue {
	t.Helper()
	c := r.DriverConfig()
	if change != nil {
		change(&c)
	}
	d, err := vring.NewDriverQueue(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func seg(n uint32, write bool) vring.DriverSeg {
	return vring.DriverSeg{GPA: vringtest.BaseGPA, Len: n, Write: write}
}

func TestAdd(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	d := driverOn(t, m.NewRing(4), nil)
	for _, c := range []struct {
		name string
		segs []vring.DriverSeg
		ok   bool
		free int
	}{
		{"nothing", nil, false, 4},
		{"readable after writable", []vring.DriverSeg{seg(1, true), seg(1, false)}, false, 4},
		{"more than the ring", make([]vring.DriverSeg, 5), false, 4},
		{"one", []vring.DriverSeg{seg(1, true)}, true, 3},
		{"the rest", []vring.DriverSeg{seg(1, false), seg(1, true), seg(1, true)}, true, 0},
		{"full", []vring.DriverSeg{seg(1, false)}, false, 0},
	} {
		if _, ok := d.Add(c.segs, 0); ok != c.ok || d.Free() != c.free {
			t.Errorf("%s: %v with %d free left, want %v and %d", c.name, ok, d.Free(), c.ok, c.free)
		}
	}
}

// With IN_ORDER a driver takes descriptors in ring order, next is the one
// behind, and 0 behind the last (2.7.5, 2.7.5.2).
func TestInOrderDescriptors(t *testing.T) {
	p := newPair(t, 8, vringtest.Features{InOrder: true}, 0)
	want := uint16(0)
	var c vring.Chain
	for i := range 50 {
		segs := make([]vring.DriverSeg, 1+i%3)
		for k := range segs {
			segs[k] = seg(8, false)
		}
		head, ok := p.drv.Add(segs, uint32(i))
		if !ok || head != want {
			t.Fatalf("chain %d starts at %d, want %d", i, head, want)
		}
		for k := range segs[1:] {
			b := p.mem.Bytes(p.ring.DescGPA+16*uint64((int(head)+k)%8), 16)
			if next := uint16(b[14]) | uint16(b[15])<<8; int(next) != (int(head)+k+1)%8 {
				t.Fatalf("descriptor %d leads to %d", (int(head)+k)%8, next)
			}
		}
		want = (want + uint16(len(segs))) % 8
		p.drv.Publish()
		p.dev.Pop(&c)
		p.dev.Push(c.Head, 0)
		p.dev.Publish()
		if cookie, _, ok := p.drv.Used(); !ok || cookie != uint32(i) {
			t.Fatalf("chain %d came back as %d, %v", i, cookie, ok)
		}
	}
}

// A driver side does not trust its device either (vhost-net, or another
// process): what cannot be true breaks it.
func TestDriverDistrustsDevice(t *testing.T) {
	for _, c := range []struct {
		name    string
		inOrder bool
		lie     func(r *vringtest.Ring)
		want    vring.Reason
	}{
		{"id out of range", false, func(r *vringtest.Ring) { r.SetUsed(0, 4, 0) }, vring.UsedRange},
		{"id of 2^32-1", false, func(r *vringtest.Ring) { r.SetUsed(0, 0xffffffff, 0) }, vring.UsedRange},
		{"id not in flight", false, func(r *vringtest.Ring) { r.SetUsed(0, 3, 0) }, vring.UsedRange},
		{"id inside a chain", false, func(r *vringtest.Ring) { r.SetUsed(0, 1, 0) }, vring.UsedRange},
		{"more bytes than room", false, func(r *vringtest.Ring) { r.SetUsed(0, 0, 9) }, vring.UsedLength},
		{"more than in flight", false, func(r *vringtest.Ring) { r.SetUsed(2, 0, 0) }, vring.UsedRange},
		{"index goes back", false, func(r *vringtest.Ring) { r.SetUsed(0xfffe, 0, 0) }, vring.UsedRange},
		{"in order, id out of range", true, func(r *vringtest.Ring) { r.SetUsed(0, 4, 0) }, vring.UsedRange},
		{"in order, id never comes", true, func(r *vringtest.Ring) { r.SetUsed(0, 3, 0); r.SetUsed(1, 0, 0) }, vring.UsedRange},
		{"in order, more bytes than room", true, func(r *vringtest.Ring) { r.SetUsed(0, 0, 9) }, vring.UsedLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vringtest.NewMemory(t, 1<<20)
			r := m.NewRing(4)
			errs := vringtest.NewEvent(t)
			d := driverOn(t, r, func(cfg *vring.Config) { cfg.InOrder, cfg.ErrFD = c.inOrder, errs.FD })
			d.Add([]vring.DriverSeg{seg(8, false), seg(8, true)}, 1)
			d.Add([]vring.DriverSeg{seg(8, true)}, 2)
			d.Publish()
			c.lie(r)
			for range 10 {
				d.Used()
				d.ArmCall()
				r.SetUsed(uint16(r.UsedIdx()), 0, 0)
			}
			if e := d.Broken(); e == nil || e.Reason != c.want || errs.Count() != 1 {
				t.Errorf("broken is %v, want %v", e, c.want)
			}
			if _, ok := d.Add([]vring.DriverSeg{seg(8, true)}, 3); ok {
				t.Error("a broken driver side takes chains")
			}
			d.Publish()
		})
	}
}

// The driver's half of notification suppression, seen from the ring.
func TestDriverNotifications(t *testing.T) {
	for _, event := range []bool{false, true} {
		m := vringtest.NewMemory(t, 1<<20)
		r := m.NewRing(8)
		r.Start(65530)
		kick := vringtest.NewEvent(t)
		d := driverOn(t, r, func(c *vring.Config) { c.EventIdx, c.Base, c.CallFD = event, 65530, kick.FD })
		q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx, c.Base = event, 65530 })
		for i := range 30 {
			armed := i%2 == 0
			if armed {
				q.ArmKick()
			} else {
				q.DisarmKick()
			}
			kick.Count()
			for range 3 {
				d.Add([]vring.DriverSeg{seg(8, true)}, uint32(i))
			}
			d.Publish()
			want := uint64(0)
			if armed {
				want = 1
			}
			if got := kick.Count(); got != want {
				t.Fatalf("EVENT_IDX %v, armed %v: %d kicks for a batch", event, armed, got)
			}
			served(t, q, 3)
			if !d.ArmCall() || !d.ArmCallBeyond(2) || d.ArmCallBeyond(3) {
				t.Fatal("ArmCall miscounts what came back")
			}
			for range 3 {
				if _, n, ok := d.Used(); !ok || n != 8 {
					t.Fatal("a chain is missing")
				}
			}
			if d.ArmCall() {
				t.Fatal("ArmCall sees chains that were taken")
			}
			d.DisarmCall()
		}
		d.Publish()
		if kick.Count() != 0 {
			t.Error("a kick for nothing")
		}
	}
}

func TestNewDriverQueueRefuses(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(16)
	for name, change := range map[string]func(c *vring.Config){
		"size":                 func(c *vring.Config) { c.Size = 12 },
		"avail aligned to 2":   func(c *vring.Config) { c.Size, c.Avail = 8, c.Avail[2:] },
		"tables at odd places": func(c *vring.Config) { c.Indirect, c.Tables = true, m.Bytes(m.Alloc(1025, 16), 1025)[1:] },
	} {
		c := r.DriverConfig()
		change(&c)
		if _, err := vring.NewDriverQueue(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The avail ring needs only two bytes of alignment; its index then shares a word
// with the first entry.
func TestAvailRingAtTwoBytes(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.RingAt(4, m.Alloc(64, 16), m.Alloc(16, 4)+2, m.Alloc(38, 4))
	r.SetDesc(3, m.Alloc(8, 1), 8, 0, 0)
	call := vringtest.NewEvent(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.CallFD = call.FD })
	for i := range 20 {
		r.SetAvailFlags(uint16(i & 1))
		r.Offer(3)
		served(t, q, 1)
		if call.Count() != uint64(1-i&1) {
			t.Fatal("avail.flags are misread")
		}
	}
}
