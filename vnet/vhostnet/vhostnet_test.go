package vhostnet

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vnet/tap"
	"guestwire/vring/vhostkern"
)

// frame is n bytes that no other seed has.
func frame(n int, seed uint64) []byte {
	f := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range f {
		f[i] = byte(rnd.Uint32())
	}
	return f
}

var (
	tso = link.Offload{GSO: link.GSOTCPv4, SegSize: 1460, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	uso = link.Offload{GSO: link.GSOUDP, SegSize: 1400, NeedsCsum: true, CsumStart: 34, CsumOff: 6}
)

// shapes are the frames that pass both ways. A buffer ends at inBuf bytes, with the
// header.
var shapes = []struct {
	name string
	off  link.Offload
	n    int
}{
	{"smallest", link.Offload{}, 14},
	{"full", link.Offload{}, 1514},
	{"one buffer", tso, inBuf - tap.HdrLen},
	{"a byte more", tso, inBuf - tap.HdrLen + 1},
	{"checksum left out", link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}, 600},
	{"64 KiB of TCP", tso, link.MaxGSOFrame},
	{"45 datagrams", uso, 42 + 45*1400},
	{"largest", link.Offload{}, link.MaxFrame},
}

// Bit 27 is not asked for: the tap has headers.
func TestFeatures(t *testing.T) {
	r := newRig(t)
	// VERSION_1, EVENT_IDX, MRG_RXBUF (virtio 1.3, 6 and 5.1.3).
	if want := uint64(1<<32 | 1<<29 | 1<<15); r.k.features != want {
		t.Errorf("features %#x, want %#x", r.k.features, want)
	}
	if r.k.tap != r.c.Tap || r.k.attached != 2 {
		t.Errorf("%d rings with tap %d", r.k.attached, r.k.tap)
	}
	if c := r.h.Ups[0].Caps; c.MTU != 1500 || !c.Csum || !c.TSO4 || !c.TSO6 {
		t.Errorf("%+v", c)
	}
}

func TestFromNamespace(t *testing.T) {
	r := newRig(t)
	for round := range 80 { // the ring goes round several times
		for i, s := range shapes {
			want := frame(s.n, uint64(i))
			r.k.give(s.off, 34, want)
			r.turn()
			if len(r.h.Got) != 1 {
				t.Fatalf("round %d, %s: %d frames, %+v, %q", round, s.name, len(r.h.Got), r.e.Stats(), r.lines)
			}
			if got := r.h.Got[0]; got.Off != s.off || !bytes.Equal(got.Data, want) {
				t.Fatalf("round %d, %s: %d bytes with %+v, want %d with %+v", round, s.name, len(got.Data), got.Off, len(want), s.off)
			}
			r.h.Reset()
		}
	}
	if n := r.k.q[vhostkern.RX].Available(); n != inRing {
		t.Errorf("%d buffers are posted of %d", n, inRing)
	}
}

func TestToNamespace(t *testing.T) {
	r := newRig(t)
	for round := range 80 {
		for i, s := range shapes {
			want := frame(s.n, uint64(i))
			header := min(s.n, 54)
			if !link.Send(r.e, want[:header], want[header:], s.off) {
				t.Fatalf("round %d, %s: no room", round, s.name)
			}
			r.turn()
			off, got := r.k.seen()
			if off != s.off || !bytes.Equal(got, want) {
				t.Fatalf("round %d, %s: %d bytes with %+v, want %d with %+v", round, s.name, len(got), off, len(want), s.off)
			}
			r.k.returns()
		}
	}
	if s := r.e.Stats(); s.RxFrames != uint64(80*len(shapes)) || s.RxShort != 0 {
		t.Errorf("%+v", s)
	}
}

// Frames keep their order, batch after batch, and a turn ends within its budget.
func TestBatches(t *testing.T) {
	r := newRig(t)
	const count = inRing
	for i := range count {
		r.k.give(link.Offload{}, 34, frame(60+i, uint64(i)))
	}
	for r.h.Count < count {
		before := r.h.Count
		if r.turn(); r.h.Count == before {
			t.Fatalf("a turn without a frame, at %d", before)
		}
	}
	for i, f := range r.h.Got {
		if !bytes.Equal(f.Data, frame(60+i, uint64(i))) {
			t.Fatalf("frame %d is not itself", i)
		}
	}
	for _, n := range r.h.Batches {
		if n > inBatch {
			t.Errorf("a batch of %d", n)
		}
	}
	before := r.loop.Stats().Events
	for range 3 {
		r.turn()
	}
	if n := r.loop.Stats().Events - before; n != 0 {
		t.Errorf("%d events with nothing to do", n)
	}
}

// A slot is the kernel's until the used ring returns it: what it holds does not
// change, whatever is sent meanwhile, and nothing is reserved beyond.
func TestSlotsAreKept(t *testing.T) {
	r := newRig(t)
	var held [][]byte
	sent := 0
	for link.Send(r.e, frame(54, uint64(sent)), frame(500, uint64(sent)), link.Offload{}) {
		sent++
		r.turn()
		_, b := r.k.seen()
		held = append(held, b)
	}
	if sent != outRing {
		t.Errorf("%d frames fit, there are %d slots", sent, outRing)
	}
	for i, b := range held {
		if !bytes.Equal(b, append(frame(54, uint64(i)), frame(500, uint64(i))...)) {
			t.Fatalf("frame %d has changed under the kernel's hands", i)
		}
	}
	for range 3 {
		r.turn()
	}
	if r.h.Writables != 0 {
		t.Error("Writable with no slot returned")
	}
	r.k.returns()
	if r.turn(); r.h.Writables != 1 {
		t.Errorf("%d calls of Writable", r.h.Writables)
	}
	if n := len(r.e.Reserve(54, 500, 200)); n != outRing {
		t.Errorf("%d slots of %d are back", n, outRing)
	}
	r.e.Commit(0)
}

// The kernel calls when half of the slots are back, once. (Its very first return it
// always tells.)
func TestWritableAtHalf(t *testing.T) {
	r := newRig(t)
	link.Send(r.e, frame(54, 1), nil, link.Offload{})
	r.turn()
	r.k.seen()
	r.k.returns()
	r.turn()
	if n := len(r.e.Reserve(54, 1000, outRing)); n != outRing {
		t.Fatalf("%d slots", n)
	}
	for i := range outRing {
		r.e.out.slots[i].Used = 1000
	}
	r.e.Commit(outRing)
	if len(r.e.Reserve(54, 1000, 1)) != 0 {
		t.Fatal("a slot beyond the ring")
	}
	r.turn()
	for i := range outRing {
		r.k.seen()
		r.k.returns()
		r.turn()
		if want := i >= outRing/2; (r.h.Writables > 0) != want {
			t.Fatalf("%d slots are back, %d calls of Writable", i+1, r.h.Writables)
		}
	}
	if r.h.Writables != 1 {
		t.Errorf("%d calls of Writable", r.h.Writables)
	}
}

// A reservation may be cut short, and slots be used in part or not at all.
func TestReserve(t *testing.T) {
	r := newRig(t)
	slots := r.e.Reserve(34, 1000, 3)
	if len(slots) != 3 {
		t.Fatalf("%d slots", len(slots))
	}
	var want [][]byte
	for i := range slots {
		s, f := &slots[i], frame(34+100*i, uint64(i))
		copy(s.Header, f)
		s.Used = copy(s.Payload[0], f[34:])
		want = append(want, f)
	}
	r.e.Commit(2)
	r.turn()
	for _, w := range want[:2] {
		if _, got := r.k.seen(); !bytes.Equal(got, w) {
			t.Errorf("%d bytes, want %d", len(got), len(w))
		}
	}
	if _, got := r.k.seen(); got != nil {
		t.Errorf("a slot that was not committed arrived, with %d bytes", len(got))
	}
	// More than there are: Writable comes by itself when nothing is out.
	r.k.returns()
	if n := len(r.e.Reserve(54, 65000, 2*outRing)); n != outRing {
		t.Errorf("%d slots of 65,000 bytes", n)
	}
	r.e.Commit(0)
	if r.turn(); r.h.Writables != 1 {
		t.Errorf("%d calls of Writable", r.h.Writables)
	}
	for _, bad := range [][2]int{{-1, 0}, {link.MaxHeader + 1, 0}, {0, -1}, {54, link.MaxFrame}} {
		if r.e.Reserve(bad[0], bad[1], 1) != nil {
			t.Errorf("Reserve(%d, %d) gives a slot", bad[0], bad[1])
		}
	}
}

// What cannot be sent costs that frame alone, and no slot.
func TestRefused(t *testing.T) {
	r := newRig(t)
	f := frame(600, 1)
	for range outRing {
		link.Send(r.e, f[:54], f[54:], link.Offload{GSO: link.GSOTCPv4, SegSize: 100}) // no checksum
		link.Send(r.e, f[:13], nil, link.Offload{})
	}
	link.Send(r.e, f[:54], f[54:], link.Offload{})
	r.turn()
	if _, got := r.k.seen(); !bytes.Equal(got, f) {
		t.Error("the good frame behind the bad ones is not there")
	}
	if s := r.e.Stats(); s.RxOffload != 2*outRing || s.RxFrames != 1 {
		t.Errorf("%+v", s)
	}
}

// Headers that a process of the namespace can make cost that frame alone, and no
// buffer.
func TestHeaders(t *testing.T) {
	r := newRig(t)
	hdr := func(change func(b []byte)) []byte {
		b := append(make([]byte, tap.HdrLen), frame(100, 1)...)
		b[numBuffersAt] = 1
		change(b)
		return b
	}
	bad := [][]byte{
		make([]byte, 5), // not even a header
		make([]byte, tap.HdrLen+13),
		hdr(func(b []byte) { b[0], b[6], b[8] = 1, 100, 0 }), // checksum behind the end
		hdr(func(b []byte) { b[1], b[4] = 1, 100 }),          // GSO without a checksum
		hdr(func(b []byte) { b[0], b[1], b[4], b[6] = 1, 3, 100, 34 }),
	}
	for _, b := range bad {
		r.k.put(b)
	}
	r.k.give(link.Offload{}, 34, frame(200, 2))
	if r.turn(); len(r.h.Got) != 1 || len(r.h.Got[0].Data) != 200 {
		t.Errorf("%d frames came", len(r.h.Got))
	}
	if s := r.e.Stats(); s.Header != uint64(len(bad)) || s.Broken != 0 {
		t.Errorf("%+v", s)
	}
	if n := r.k.q[vhostkern.RX].Available(); n != inRing {
		t.Errorf("%d buffers are posted of %d", n, inRing)
	}
}

// A ring that breaks takes the link down, not the flows; a second later it works
// again, from nothing.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		name string
		hurt func(r *rig)
	}{
		{"the kernel complains", func(r *rig) { unix.Write(r.k.errFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }},
		{"a frame in part", func(r *rig) {
			b := append(make([]byte, tap.HdrLen), frame(100, 1)...)
			b[numBuffersAt] = 2
			r.k.put(b)
			r.k.q[vhostkern.RX].Publish()
		}},
		{"a buffer that was not given", func(r *rig) {
			r.k.give(link.Offload{}, 34, frame(100, 1))
			r.e.arena.Mem[inRingAt+2*page+5] = 0xff // used.ring[0].id
		}},
		{"a slot that was not given", func(r *rig) {
			link.Send(r.e, frame(54, 1), nil, link.Offload{})
			r.turn()
			r.k.seen()
			r.k.returns()
			r.e.arena.Mem[outRingAt+2*page+4] = 0x55
			for link.Send(r.e, frame(54, 1), nil, link.Offload{}) && r.e.out.q.Broken() == nil {
			}
			link.Send(r.e, frame(54, 1), nil, link.Offload{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.hurt(r)
			r.turn()
			r.turn()
			if r.h.Downs != 1 || r.h.Gone != 0 || r.e.Stats().Broken != 1 {
				t.Fatalf("%d LinkDown, %d GuestGone, %+v", r.h.Downs, r.h.Gone, r.e.Stats())
			}
			if r.e.Reserve(54, 0, 1) != nil {
				t.Error("a slot while the link is down")
			}
			r.second()
			if len(r.h.Ups) != 2 || r.h.Ups[1].Fresh || r.k.attached != 4 {
				t.Fatalf("up again: %+v", r.h.Ups)
			}
			r.h.Reset()
			r.k.give(tso, 54, frame(60000, 7))
			link.Send(r.e, frame(54, 3), nil, link.Offload{})
			r.turn()
			if _, got := r.k.seen(); len(got) != 54 || len(r.h.Got) != 1 || !bytes.Equal(r.h.Got[0].Data, frame(60000, 7)) {
				t.Error("no frames any more")
			}
		})
	}
}

// The rings may go away while a reservation is open.
func TestCommitAfterBreak(t *testing.T) {
	r := newRig(t)
	r.h.OnFrames = func([]link.Frame) {
		r.e.Reserve(54, 100, 3)
		panic("of a test")
	}
	r.k.give(link.Offload{}, 34, frame(100, 1))
	r.turn()
	r.h.OnFrames = nil
	r.e.Commit(3)
	if r.second(); len(r.h.Ups) != 2 || !r.h.Ups[1].Fresh || r.h.Downs != 1 || r.h.Gone != 1 || r.gone != 0 {
		t.Errorf("%+v up, %d down, %d gone", r.h.Ups, r.h.Downs, r.h.Gone)
	}
	r.h.Reset()
	r.k.give(link.Offload{}, 34, frame(200, 2))
	if r.turn(); len(r.h.Got) != 1 {
		t.Error("no frames any more")
	}
}

// When the interface is deleted the link goes down for good, within a second.
func TestGone(t *testing.T) {
	r := newRig(t)
	r.second()
	if r.gone != 0 || r.h.Downs != 0 {
		t.Fatal("gone, but it is there")
	}
	r.unlik()
	r.second()
	if r.h.Downs != 1 || r.h.Gone != 1 || r.gone != 1 || r.k.closed != 1 {
		t.Errorf("%d LinkDown, %d GuestGone, %d Gone, %d Close", r.h.Downs, r.h.Gone, r.gone, r.k.closed)
	}
	if r.e.Reserve(34, 0, 1) != nil {
		t.Error("room towards an interface that is gone")
	}
	r.e.Close() // once more
	r.turn()
}

// Neither direction allocates.
func TestNoAllocations(t *testing.T) {
	r := newRig(t)
	r.h.Discard = true
	small, large := frame(1514, 1), frame(60000, 2)
	var buf [link.MaxFrame + tap.HdrLen]byte
	one := func(f []byte, off link.Offload) {
		n := copy(buf[tap.HdrLen:], f)
		tap.Encode(buf[:], &off, 54, n)
		buf[numBuffersAt] = byte((n + tap.HdrLen + inBuf - 1) / inBuf)
		r.k.put(buf[:tap.HdrLen+n])
		r.k.q[vhostkern.RX].Publish()
		link.Send(r.e, f[:54], f[54:], off)
		r.loop.Turn(0)
		r.k.seen()
		r.k.returns()
	}
	one(large, tso)
	if n := testing.AllocsPerRun(300, func() {
		one(small, link.Offload{})
		one(large, tso)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if r.h.Count < 600 || r.e.Stats().RxFrames < 600 {
		t.Errorf("%d frames came, %+v", r.h.Count, r.e.Stats())
	}
}

// What fails leaves the tap to its owner, and nothing else open.
func TestOpenFails(t *testing.T) {
	fd, _ := newTap(t)
	defer unix.Close(fd)
	r := newRig(t)
	before := descriptors(t)
	for name, c := range map[string]struct {
		mtu    int
		refuse error
	}{"MTU too small": {67, nil}, "MTU too large": {65536, nil}, "the kernel refuses": {0, unix.EPERM}} {
		k := &kernel{t: t, refuse: c.refuse}
		_, err := open(Config{Tap: fd, MTU: c.mtu}, &linktest.Handler{}, r.loop, k)
		if err == nil || c.refuse != nil && !errors.Is(err, c.refuse) || k.closed != 1 {
			t.Errorf("%s: %v, closed %d times", name, err, k.closed)
		}
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	if _, err := tap.Setup(fd); err != nil {
		t.Errorf("the tap is not as good as before: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := descriptors(t)
	r := newRig(t)
	r.e.Close()
	r.loop.Close()
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}
