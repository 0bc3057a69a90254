package vnet

import (
	"fmt"
	"testing"

	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
)

// sender is a driver that sends the same frame again and again without
// allocating: header and frame in pages, as Linux sends them.
type sender struct {
	r     *rig
	segs  []vring.DriverSeg
	batch int
}

func newSender(r *rig, size, batch int) *sender {
	h := plain()
	if size > 1514 {
		h = hdr(1, 1, 54, 1448, 34, 16)
	}
	s := &sender{r: r, batch: batch}
	for n := size + netHdrLen; n > 0; n -= 4096 {
		s.segs = append(s.segs, vring.DriverSeg{GPA: r.mem.Alloc(4096, 4096), Len: uint32(min(n, 4096))})
	}
	copy(r.mem.Bytes(s.segs[0].GPA, netHdrLen), h)
	return s
}

func (s *sender) run() {
	for range s.batch {
		if _, ok := s.r.tx.Q.Add(s.segs, 0); !ok {
			s.r.tb.Fatal("ring is full")
		}
	}
	s.r.tx.Q.Publish()
	s.r.d.Ready(0, eventloop.Again)
	s.r.d.Flush()
	s.reap()
}

func (s *sender) reap() {
	for {
		if _, _, ok := s.r.tx.Q.Used(); !ok {
			return
		}
	}
}

// poster is a driver that keeps the receive ring full of buffers of one size.
type poster struct {
	r    *rig
	segs [1]vring.DriverSeg
}

func newPoster(r *rig, size uint32) *poster {
	p := &poster{r: r}
	p.segs[0] = vring.DriverSeg{GPA: r.mem.Alloc(uint64(size), 1), Len: size, Write: true}
	p.run()
	return p
}

func (p *poster) run() {
	for {
		if _, _, ok := p.r.rx.Q.Used(); !ok {
			break
		}
	}
	for {
		if _, ok := p.r.rx.Q.Add(p.segs[:], 0); !ok {
			break
		}
	}
	p.r.rx.Q.Publish()
}

func perFrame(b *testing.B, frames int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
	b.ReportMetric(0, "ns/op")
}

func benchTX(b *testing.B, size, batch int) {
	r := newRig(b)
	r.h.Discard = true
	s := newSender(r, size, batch)
	s.run()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.run()
	}
	perFrame(b, batch)
	if want := (b.N + 1) * batch; r.h.Count < want {
		b.Fatalf("%d frames, want %d", r.h.Count, want)
	}
}

func BenchmarkTX64B(b *testing.B) { benchTX(b, 64, 64) }
func BenchmarkTX64K(b *testing.B) { benchTX(b, 65000, 8) }

// benchRX delivers count frames of size payload bytes per turn in a reservation
// of n slots, into buffers of buf bytes. The payload itself is the kernel's to
// copy and is not written here.
func benchRX(b *testing.B, size, n, count int, buf uint32, f uint64) {
	r := newRig(b, features(f))
	p := newPoster(r, buf)
	off := link.Offload{}
	if size > 1460 {
		off = link.Offload{GSO: link.GSOTCPv4, SegSize: 1448, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	}
	turn := func() {
		slots := r.d.Reserve(66, size, n)
		for i := range slots[:count] {
			slots[i].Used, slots[i].Off = size, off
		}
		r.d.Commit(count)
		r.d.Flush()
		p.run()
	}
	turn()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		turn()
	}
	perFrame(b, count)
}

func BenchmarkRX64K(b *testing.B) {
	for _, buf := range []uint32{1536, 4096, 65600} {
		b.Run(fmt.Sprintf("buffers of %d", buf), func(b *testing.B) { benchRX(b, 65000, 3, 3, buf, everything) })
	}
	b.Run("unmerged", func(b *testing.B) { benchRX(b, 65000, 3, 3, 65700, everything&^vhostuser.NetFMrgRxbuf) })
	b.Run("one of three slots used", func(b *testing.B) { benchRX(b, 65000, 3, 1, 1536, everything) })
}

func BenchmarkRX64B(b *testing.B) { benchRX(b, 0, 64, 64, 1536, everything) }

// BenchmarkRXAck is one small frame at a time, as acknowledgements go.
func BenchmarkRXAck(b *testing.B) { benchRX(b, 0, 1, 1, 1536, everything) }
