package vring_test

import (
	"testing"

	"guestwire/vring"
	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

// fuzzMem is guest memory of a fuzz process: small, in three regions, so that a
// fuzzer finds its way through it.
type fuzzMem struct {
	mem   *vringtest.Memory
	tab   *guestmem.Table
	parts [][]byte // the guest's view, in order
	size  int
}

func newFuzzMem(f *testing.F) *fuzzMem {
	m := &fuzzMem{mem: vringtest.NewMemory(f, 0x1800, 0x0801, 0x0fff)}
	m.tab = m.mem.Table()
	for _, r := range m.mem.Regions() {
		m.parts = append(m.parts, m.mem.Bytes(r.GPA, r.Size))
		m.size += int(r.Size)
	}
	return m
}

// poke writes one byte of guest memory.
func (m *fuzzMem) poke(at int, v byte) {
	at %= m.size
	for _, p := range m.parts {
		if at < len(p) {
			p[at] = v
			return
		}
		at -= len(p)
	}
}

// fill writes an image over guest memory, zeroes behind it.
func (m *fuzzMem) fill(image []byte) {
	for _, p := range m.parts {
		n := copy(p, image)
		clear(p[n:])
		image = image[n:]
	}
}

// FuzzDevicePop lets a guest write any bytes into its memory, rings included,
// before and between the operations of a device. Whatever it does, the device
// stays inside guest memory, ends every step, returns exactly what it took, and
// breaks at most once.
//
// ops: each byte is an operation; a write to guest memory takes three more.
func FuzzDevicePop(f *testing.F) {
	m := newFuzzMem(f)
	for _, h := range vringtest.Hostiles() {
		if h.ID == "R11" { // needs more memory
			continue
		}
		seed := vringtest.NewMemory(f, 0x1800, 0x0801, 0x0fff)
		h.Build(seed.NewRing(vringtest.HostileSize))
		features := byte(7)
		if h.Want == vring.IndirectOff {
			features = 6
		}
		f.Add(features<<4|4, seed.Read(vringtest.BaseGPA, 0x3000), []byte{0, 0, 4, 5, 6, 1, 4, 5})
	}
	f.Add(byte(0xf0), []byte{}, []byte{8, 0, 0x22, 1, 0, 1, 4, 5, 8, 0, 0x22, 2, 2, 4, 3, 7, 5})
	f.Fuzz(func(t *testing.T, setup byte, image, ops []byte) {
		if len(image) > m.size || len(ops) > 4096 {
			return
		}
		m.fill(image)
		size := uint16(1) << (setup & 7 % 5) // 1..16
		// The layout of a Ring of 16: other sizes see the same areas shorter.
		c := vring.Config{
			Size: size, Mem: m.tab, CallFD: -1, ErrFD: -1,
			Desc:     m.tab.Slice(vringtest.BaseGPA, 256),
			Avail:    m.tab.Slice(vringtest.BaseGPA+256, 38),
			Used:     m.tab.Slice(vringtest.BaseGPA+256+40, 134),
			Indirect: setup&0x10 != 0, EventIdx: setup&0x20 != 0, InOrder: setup&0x40 != 0,
		}
		q, err := vring.NewDeviceQueue(c)
		if err != nil {
			t.Fatal(err)
		}
		d := &fuzzDevice{t: t, m: m, q: q, size: int(size)}
		if setup&0x80 != 0 {
			q.Reclaim()
		}
		d.run(ops)
	})
}

type fuzzDevice struct {
	t         *testing.T
	m         *fuzzMem
	q         *vring.DeviceQueue
	size      int
	held      []vring.Chain
	completed int
}

func (d *fuzzDevice) run(ops []byte) {
	for i := 0; i < len(ops); i++ {
		broken := d.q.Broken()
		switch op := ops[i]; op % 10 {
		case 0, 1:
			var c vring.Chain
			if d.q.Pop(&c) {
				d.popped(c)
			}
		case 2:
			cs := make([]vring.Chain, int(op)/10)
			for _, c := range cs[:d.q.PopBatch(cs)] {
				d.popped(c)
			}
		case 3:
			n := min(int(op)/10, len(d.held))
			d.q.Rewind(n)
			d.held = d.held[:len(d.held)-n]
		case 4:
			d.push()
		case 5:
			d.q.Publish()
		case 6:
			d.q.ArmKickBeyond(int(op) / 10)
		case 7:
			d.q.DisarmKick()
		default:
			if i+3 < len(ops) {
				d.m.poke(int(ops[i+1])<<8|int(ops[i+2]), ops[i+3])
			}
			i += 3
		}
		if broken != nil && d.q.Broken() != broken {
			d.t.Fatalf("%v after %v", d.q.Broken(), broken)
		}
		if n := d.q.Available(); n < 0 || n > d.size || d.q.Broken() != nil && n != 0 {
			d.t.Fatalf("%d available, %v", n, d.q.Broken())
		}
		if d.q.Broken() != nil {
			d.held = nil
		}
	}
	s := d.q.Stats()
	if d.q.Broken() == nil && s.Pops != uint64(d.completed+len(d.held)) {
		d.t.Fatalf("%d pops, %d completed and %d held", s.Pops, d.completed, len(d.held))
	}
}

// popped checks a chain: it lies in guest memory, adds up, and there are no more
// of them than the ring can have.
func (d *fuzzDevice) popped(c vring.Chain) {
	for _, part := range []struct {
		segs [][]byte
		want uint32
	}{{c.Readable, c.ReadLen}, {c.Writable, c.WriteLen}} {
		sum := uint64(0)
		for _, s := range part.segs {
			gpa, ok := d.m.tab.GPA(s)
			if !ok || len(s) == 0 || d.m.tab.Slice(gpa, uint64(len(s))) == nil || cap(s) != len(s) {
				d.t.Fatalf("segment of %d bytes outside guest memory", len(s))
			}
			sum += uint64(len(s))
		}
		if sum != uint64(part.want) {
			d.t.Fatalf("segments of %d bytes, length %d", sum, part.want)
		}
	}
	if int(c.Head) >= d.size {
		d.t.Fatalf("head %d of %d", c.Head, d.size)
	}
	if d.held = append(d.held, c); len(d.held) > d.size {
		d.t.Fatalf("%d chains in flight in a ring of %d", len(d.held), d.size)
	}
}

func (d *fuzzDevice) push() {
	if len(d.held) == 0 {
		return
	}
	c := d.held[0]
	d.held = d.held[1:]
	for _, s := range c.Writable {
		s[0] = 0xff // it may well be the ring itself
	}
	d.q.Push(c.Head, c.WriteLen)
	if e := d.q.Broken(); e != nil && e.Reason == vring.PushOrder {
		d.t.Fatalf("chains are completed in order, yet %v", e)
	}
	d.completed++
}
