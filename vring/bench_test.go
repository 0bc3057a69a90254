package vring_test

import (
	"fmt"
	"testing"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

// pair is a device and a driver on one ring.
type pair struct {
	mem  *vringtest.Memory
	ring *vringtest.Ring
	dev  *vring.DeviceQueue
	drv  *vring.DriverQueue
}

func newPair(tb testing.TB, size uint16, f vringtest.Features, base uint16, sizes ...uint64) *pair {
	tb.Helper()
	if len(sizes) == 0 {
		sizes = []uint64{8 << 20}
	}
	m := vringtest.NewMemory(tb, sizes...)
	r := m.NewRing(size)
	r.Start(base)
	c := r.Config(m.Table())
	c.EventIdx, c.Indirect, c.InOrder, c.Base = f.EventIdx, f.Indirect, f.InOrder, base
	dev, err := vring.NewDeviceQueue(c)
	if err != nil {
		tb.Fatal(err)
	}
	d := r.DriverConfig()
	d.EventIdx, d.Indirect, d.InOrder, d.Base = f.EventIdx, f.Indirect, f.InOrder, base
	if f.Indirect {
		n := uint64(size) * 32 * 16
		d.TablesGPA = m.Alloc(n, 16)
		d.Tables = m.Bytes(d.TablesGPA, n)
	}
	drv, err := vring.NewDriverQueue(d)
	if err != nil {
		tb.Fatal(err)
	}
	return &pair{mem: m, ring: r, dev: dev, drv: drv}
}

// benchRing measures the device side alone: a full ring is popped, pushed and
// published in batches of 64, then offered again as it is by one store.
func benchRing(b *testing.B, segs int, write bool, f vringtest.Features, size uint16) {
	p := newPair(b, size, f, 0)
	var list []vring.DriverSeg
	for range segs {
		list = append(list, vring.DriverSeg{GPA: p.mem.Alloc(2048, 64), Len: 2048, Write: write})
	}
	n := 0
	for ; ; n++ {
		if _, ok := p.drv.Add(list, 0); !ok {
			break
		}
	}
	const batch = 64
	if n%batch != 0 {
		b.Fatalf("%d chains in the ring", n)
	}
	heads := make([]uint16, n)
	for i := range heads {
		heads[i] = uint16(i * int(size) / n)
	}
	for i := range int(size) {
		p.ring.SetAvail(uint16(i), heads[i%n])
	}
	idx := uint16(0)
	var cs [batch]vring.Chain
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		if done%n == 0 {
			idx += uint16(n)
			p.ring.SetAvailIdx(idx)
		}
		if got := p.dev.PopBatch(cs[:]); got != batch {
			b.Fatalf("popped %d: %v", got, p.dev.Broken())
		}
		for i := range cs {
			p.dev.Push(cs[i].Head, cs[i].WriteLen)
		}
		p.dev.Publish()
	}
}

func BenchmarkPopPush(b *testing.B) {
	for _, c := range []struct {
		name  string
		segs  int
		write bool
		f     vringtest.Features
	}{
		{"TX/1", 1, false, vringtest.Features{}},
		{"TX/1/inorder", 1, false, vringtest.Features{InOrder: true, EventIdx: true}},
		{"RX/1", 1, true, vringtest.Features{EventIdx: true}},
		{"RX/1/inorder", 1, true, vringtest.Features{InOrder: true, EventIdx: true}},
		{"TX/2", 2, false, vringtest.Features{}},
		{"TX/2/indirect", 2, false, vringtest.Features{Indirect: true}},
		{"TX/18/indirect", 18, false, vringtest.Features{Indirect: true, InOrder: true}},
	} {
		b.Run(c.name, func(b *testing.B) { benchRing(b, c.segs, c.write, c.f, 256) })
	}
}

// BenchmarkPopOne pops and pushes one by one, publishing every 64.
func BenchmarkPopOne(b *testing.B) {
	p := newPair(b, 256, vringtest.Features{EventIdx: true}, 0)
	gpa := p.mem.Alloc(2048, 64)
	for i := range 256 {
		p.ring.SetDesc(i, gpa, 2048, vringtest.Write, 0)
		p.ring.SetAvail(uint16(i), uint16(i))
	}
	idx := uint16(0)
	var c vring.Chain
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if i%256 == 0 {
			idx += 256
			p.ring.SetAvailIdx(idx)
		}
		if !p.dev.Pop(&c) {
			b.Fatal(p.dev.Broken())
		}
		p.dev.Push(c.Head, 2048)
		if i%64 == 63 {
			p.dev.Publish()
		}
	}
}

// BenchmarkRoundTrip is one chain at a time through both sides, with a wake-up
// decision on each, as a ping-pong does.
func BenchmarkRoundTrip(b *testing.B) {
	for _, f := range []vringtest.Features{{}, {EventIdx: true}, {EventIdx: true, InOrder: true}} {
		b.Run(fmt.Sprintf("%+v", f), func(b *testing.B) {
			p := newPair(b, 256, f, 0)
			list := []vring.DriverSeg{{GPA: p.mem.Alloc(2048, 64), Len: 2048}}
			var c vring.Chain
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				p.drv.Add(list, 1)
				p.drv.Publish()
				p.dev.Pop(&c)
				p.dev.Push(c.Head, 0)
				p.dev.Publish()
				p.dev.ArmKick()
				if _, _, ok := p.drv.Used(); !ok {
					b.Fatal("nothing came back")
				}
				p.drv.ArmCall()
			}
		})
	}
}
