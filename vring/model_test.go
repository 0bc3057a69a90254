package vring_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"guestwire/vring"
	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

// modelChain is what the reference model knows of one chain.
type modelChain struct {
	cookie  uint32
	slot    int
	segs    []vring.DriverSeg
	read    []byte // what the device must see
	room    int    // bytes it may write
	wrote   []byte // what it wrote
	written uint32 // what it claimed
}

// model is a queue in plain Go: chains move from one list to the next, in order.
// Each list is compared with what the two sides of the ring say.
type model struct {
	t   *testing.T
	rng *rand.Rand
	p   *pair

	added     []*modelChain // by the driver, not published
	available []*modelChain
	held      []*modelChain // popped
	chains    []vring.Chain // of held
	pushed    []*modelChain // not published
	used      []*modelChain
	slots     []int // free buffer slots

	callEvent, kickEvent       *vringtest.Event
	driverSleeps, deviceSleeps bool
	popped, completed          uint64
	cookie                     uint32
	tables                     [2]*guestmem.Table
	table                      int
}

const slotSize = 4096

func (m *model) fatalf(format string, a ...any) {
	m.t.Helper()
	m.t.Fatalf("%s (device %v, driver %v)", fmt.Sprintf(format, a...), m.p.dev.Broken(), m.p.drv.Broken())
}

// newChain makes a chain of up to 6 buffers in a free slot; some are empty, some
// lie across regions.
func (m *model) newChain() *modelChain {
	if len(m.slots) == 0 {
		return nil
	}
	c := &modelChain{cookie: m.cookie, slot: m.slots[len(m.slots)-1]}
	base := uint64(vringtest.BaseGPA) + uint64(c.slot)*slotSize
	n := 1 + m.rng.IntN(6)
	readable := m.rng.IntN(n + 1)
	for i := range n {
		length := uint32(m.rng.IntN(slotSize/6 + 1))
		if m.rng.IntN(8) == 0 {
			length = 0
		}
		s := vring.DriverSeg{GPA: base, Len: length, Write: i >= readable}
		base += uint64(length)
		c.segs = append(c.segs, s)
		if s.Write {
			c.room += int(length)
			continue
		}
		b := make([]byte, length)
		for k := range b {
			b[k] = byte(m.rng.Uint32())
		}
		m.p.mem.Write(s.GPA, b)
		c.read = append(c.read, b...)
	}
	return c
}

func (m *model) add() {
	c := m.newChain()
	if c == nil {
		return
	}
	free := m.p.drv.Free()
	_, ok := m.p.drv.Add(c.segs, c.cookie)
	if !ok {
		if free >= len(c.segs) {
			m.fatalf("no room for %d buffers with %d free", len(c.segs), free)
		}
		return
	}
	m.cookie++
	m.slots = m.slots[:len(m.slots)-1]
	m.added = append(m.added, c)
}

func (m *model) publishAvail() {
	m.p.drv.Publish()
	if len(m.added) > 0 && m.deviceSleeps {
		if m.kickEvent.Count() == 0 {
			m.fatalf("the device sleeps and %d new chains raise no kick", len(m.added))
		}
		m.deviceSleeps = false
	}
	m.available = append(m.available, m.added...)
	m.added = nil
}

func (m *model) pop(n int) {
	cs := make([]vring.Chain, n)
	got := 0
	if n == 1 {
		if m.p.dev.Pop(&cs[0]) {
			got = 1
		}
		if want := min(1, len(m.available)); got != want {
			m.fatalf("popped %d of %d", got, len(m.available))
		}
	} else {
		got = m.p.dev.PopBatch(cs)
		// A batch ends at what avail.idx said when it was last read.
		if len(m.available) > 0 && got == 0 || got > len(m.available) {
			m.fatalf("batch of %d popped %d of %d", n, got, len(m.available))
		}
	}
	for i := range got {
		m.check(&cs[i], m.available[i])
	}
	m.held = append(m.held, m.available[:got]...)
	m.chains = append(m.chains, cs[:got]...)
	m.available = m.available[got:]
	m.popped += uint64(got)
}

// check compares a popped chain with what the driver added.
func (m *model) check(c *vring.Chain, want *modelChain) {
	var read []byte
	for _, s := range c.Readable {
		if len(s) == 0 {
			m.fatalf("empty segment")
		}
		read = append(read, s...)
	}
	if !bytes.Equal(read, want.read) || int(c.ReadLen) != len(want.read) {
		m.fatalf("chain %d: %d bytes to read, want %d, or other ones", want.cookie, c.ReadLen, len(want.read))
	}
	if total(c.Writable) != want.room || int(c.WriteLen) != want.room {
		m.fatalf("chain %d: room for %d (%d in segments), want %d", want.cookie, c.WriteLen, total(c.Writable), want.room)
	}
}

func (m *model) rewind() {
	n := m.rng.IntN(len(m.held) + 1)
	m.p.dev.Rewind(n)
	k := len(m.held) - n
	m.available = append(append([]*modelChain(nil), m.held[k:]...), m.available...)
	m.held, m.chains = m.held[:k], m.chains[:k]
	m.popped -= uint64(n)
}

// push completes the oldest held chain; what it writes goes through the slices
// that Pop gave, however long ago.
func (m *model) push() {
	if len(m.held) == 0 {
		return
	}
	mc, c := m.held[0], m.chains[0]
	m.held, m.chains = m.held[1:], m.chains[1:]
	mc.written = uint32(mc.room)
	if m.rng.IntN(3) == 0 {
		mc.written = uint32(m.rng.IntN(mc.room + 1))
	}
	left := int(mc.written)
	for _, s := range c.Writable {
		for i := range s[:min(left, len(s))] {
			s[i] = byte(m.rng.Uint32())
			mc.wrote = append(mc.wrote, s[i])
		}
		left -= min(left, len(s))
	}
	m.p.dev.Push(c.Head, mc.written)
	m.pushed = append(m.pushed, mc)
}

func (m *model) publishUsed() {
	m.p.dev.Publish()
	if len(m.pushed) > 0 && m.driverSleeps {
		if m.callEvent.Count() == 0 {
			m.fatalf("the driver sleeps and %d used chains raise no call", len(m.pushed))
		}
		m.driverSleeps = false
	}
	m.used = append(m.used, m.pushed...)
	m.completed += uint64(len(m.pushed))
	m.pushed = nil
}

func (m *model) takeUsed() {
	for n := m.rng.IntN(8); n >= 0; n-- {
		cookie, written, ok := m.p.drv.Used()
		if ok != (len(m.used) > 0) {
			m.fatalf("Used gives %v with %d used", ok, len(m.used))
		}
		if !ok {
			return
		}
		c := m.used[0]
		m.used = m.used[1:]
		if cookie != c.cookie || written != c.written {
			m.fatalf("chain %d with %d bytes came back, want %d with %d", cookie, written, c.cookie, c.written)
		}
		var got []byte
		for _, s := range c.segs {
			if s.Write {
				got = append(got, m.p.mem.Read(s.GPA, uint64(s.Len))...)
			}
		}
		if !bytes.Equal(got[:written], c.wrote) {
			m.fatalf("chain %d: the bytes written are not what the driver finds", cookie)
		}
		m.slots = append(m.slots, c.slot)
	}
}

func (m *model) armKick() {
	m.kickEvent.Count()
	n := 0
	if m.rng.IntN(2) == 0 {
		n = m.rng.IntN(3)
	}
	more := m.p.dev.ArmKickBeyond(n)
	n = min(n, m.p.dev.Size()-1)
	if more != (len(m.available) > n) {
		m.fatalf("ArmKickBeyond(%d) says %v with %d available", n, more, len(m.available))
	}
	// Only a kick for the very next chain is predictable here.
	m.deviceSleeps = !more && n == 0
}

func (m *model) armCall() {
	m.callEvent.Count()
	more := m.p.drv.ArmCall()
	if more != (len(m.used) > 0) {
		m.fatalf("ArmCall says %v with %d used", more, len(m.used))
	}
	m.driverSleeps = !more
}

// swapMemory moves the device to another mapping of the same memory.
func (m *model) swapMemory() {
	m.table = 1 - m.table
	t := m.tables[m.table]
	c := m.p.ring.Config(t)
	if err := m.p.dev.SetMem(t, c.Desc, c.Avail, c.Used); err != nil {
		m.fatalf("SetMem: %v", err)
	}
	// What was pushed is published, what was held comes again.
	m.available = append(append([]*modelChain(nil), m.held...), m.available...)
	m.popped -= uint64(len(m.held))
	m.held, m.chains = nil, nil
	m.publishUsed()
}

func (m *model) step() {
	switch m.rng.IntN(16) {
	case 0, 1, 2, 3:
		m.add()
	case 4, 5:
		m.publishAvail()
	case 6:
		m.pop(1)
	case 7:
		m.pop(2 + m.rng.IntN(70))
	case 8:
		if m.rng.IntN(3) == 0 {
			m.rewind()
		}
	case 9, 10:
		for range m.rng.IntN(10) {
			m.push()
		}
	case 11:
		m.publishUsed()
	case 12, 13:
		m.takeUsed()
	case 14:
		switch m.rng.IntN(6) {
		case 0:
			m.p.dev.DisarmKick()
			m.deviceSleeps = false
		case 1:
			m.p.drv.DisarmCall()
			m.driverSleeps = false
		case 2, 3:
			m.armCall()
		default:
			m.armKick()
		}
	case 15:
		if m.rng.IntN(20) == 0 {
			m.swapMemory()
		} else if n := m.p.dev.Available(); n != len(m.available) {
			m.fatalf("%d available, want %d", n, len(m.available))
		}
	}
	s := m.p.dev.Stats()
	if s.Pops != m.popped || s.Pushes != m.completed || m.popped != m.completed+uint64(len(m.pushed)+len(m.held)) {
		m.fatalf("not conserved: %d popped (stats %d), %d completed (stats %d), %d held, %d pushed",
			m.popped, s.Pops, m.completed, s.Pushes, len(m.held), len(m.pushed))
	}
	if m.p.dev.Broken() != nil || m.p.drv.Broken() != nil {
		m.fatalf("broken")
	}
}

// TestModel runs random operations of both sides over one memory: every size and
// every combination of features, over the wrap of the ring and of 2^16, with
// buffers split over regions.
func TestModel(t *testing.T) {
	for _, size := range []uint16{1, 2, 4, 16, 64, 256, 1024} {
		for bits := range 8 {
			f := vringtest.Features{EventIdx: bits&1 != 0, Indirect: bits&2 != 0, InOrder: bits&4 != 0}
			t.Run(fmt.Sprintf("%d/%+v", size, f), func(t *testing.T) {
				t.Parallel()
				runModel(t, size, f, uint64(size)<<3|uint64(bits), 25000)
			})
		}
	}
}

func runModel(t *testing.T, size uint16, f vringtest.Features, seed uint64, steps int) {
	const base = 65536 - 100 // 2^16 is crossed early on
	slots := int(size) + 8
	// Odd sizes: regions end inside slots, and between a table's descriptors.
	room := uint64(slots) * slotSize
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)),
		callEvent: vringtest.NewEvent(t), kickEvent: vringtest.NewEvent(t),
	}
	a, b := room/3+1, room/3-77
	mem := vringtest.NewMemory(t, a, b, room-a-b, 4<<20)
	mem.AllocAcross(room)
	r := mem.NewRing(size)
	r.Start(base)
	for i := range slots {
		m.slots = append(m.slots, i)
	}
	for i := range m.tables {
		tab, err := guestmem.Map(mem.Regions())
		if err != nil {
			t.Fatal(err)
		}
		defer tab.Close()
		m.tables[i] = tab
	}
	c := r.Config(m.tables[0])
	c.EventIdx, c.Indirect, c.InOrder, c.Base, c.CallFD = f.EventIdx, f.Indirect, f.InOrder, base, m.callEvent.FD
	dev, err := vring.NewDeviceQueue(c)
	if err != nil {
		t.Fatal(err)
	}
	d := r.DriverConfig()
	d.EventIdx, d.Indirect, d.InOrder, d.Base, d.CallFD = f.EventIdx, f.Indirect, f.InOrder, base, m.kickEvent.FD
	if f.Indirect {
		n := uint64(size) * 8 * 16
		d.TablesGPA = mem.Alloc(n, 16)
		d.Tables = mem.Bytes(d.TablesGPA, n)
	}
	drv, err := vring.NewDriverQueue(d)
	if err != nil {
		t.Fatal(err)
	}
	m.p = &pair{mem: mem, ring: r, dev: dev, drv: drv}
	for range steps {
		m.step()
	}
	m.drain()
	if m.completed < 200 {
		t.Errorf("only %d chains went through: the wraps were not tested", m.completed)
	}
}

// drain takes everything to its end: what went in comes out.
func (m *model) drain() {
	m.publishAvail()
	for len(m.available)+len(m.held)+len(m.pushed) > 0 {
		m.pop(64)
		for len(m.held) > 0 {
			m.push()
		}
		m.publishUsed()
	}
	for len(m.used) > 0 {
		m.takeUsed()
	}
	if n := m.p.drv.Free(); n != m.p.dev.Size() {
		m.fatalf("%d descriptors free at the end, want %d", n, m.p.dev.Size())
	}
	if s := m.p.drv.Stats(); s.Added != s.Used || s.Used != m.completed {
		m.fatalf("driver stats %+v, %d completed", s, m.completed)
	}
}
