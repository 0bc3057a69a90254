package vnet

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

func TestTxOneFrame(t *testing.T) {
	r := newRig(t)
	data := pattern(9000, 1)
	r.tx.Send(append(hdr(1, 1, 54, 1448, 34, 16), data...))
	r.settle()
	if len(r.h.Got) != 1 {
		t.Fatalf("%d frames", len(r.h.Got))
	}
	want := link.Offload{GSO: link.GSOTCPv4, NeedsCsum: true, SegSize: 1448, CsumStart: 34, CsumOff: 16}
	if f := r.h.Got[0]; !bytes.Equal(f.Data, data) || f.Off != want {
		t.Errorf("%d bytes, %+v", len(f.Data), f.Off)
	}
	if u := r.tx.Reap(); len(u) != 1 || u[0].Written != 0 {
		t.Errorf("returned %+v", u)
	}
	if s := r.d.Stats(); s.TxFrames != 1 || s.TxBytes != 9000 || s.TxBatches != 1 || s.TX.Pushes != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestTxHeaderSpread is N2: the header, and the boundary behind it, at every
// place that descriptors can put them.
func TestTxHeaderSpread(t *testing.T) {
	whole := append(hdr(1, 0, 0, 0, 34, 6), pattern(70, 3)...)
	for name, f := range map[string]uint64{"direct": everything &^ vhostuser.RingFIndirectDesc, "indirect": everything} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f))
			var cuts [][]int
			for i := 1; i < len(whole); i++ {
				cuts = append(cuts, []int{i}, []int{i, min(i+1, len(whole)-1)})
			}
			bytewise := make([]int, 0, 30)
			for i := 1; i < 30; i++ {
				bytewise = append(bytewise, i)
			}
			cuts = append(cuts, bytewise, nil)
			for _, c := range cuts {
				var parts [][]byte
				from := 0
				for _, to := range append(c, len(whole)) {
					if to > from {
						parts = append(parts, whole[from:to])
						from = to
					}
				}
				r.h.Reset()
				r.tx.Send(parts...)
				r.settle()
				r.tx.Reap()
				if len(r.h.Got) != 1 || !bytes.Equal(r.h.Got[0].Data, whole[12:]) ||
					r.h.Got[0].Off != (link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 6}) {
					t.Fatalf("cut at %v: %+v", c, r.h.Got)
				}
			}
		})
	}
}

// TestTxDrops: each chain that is wrong comes back and is counted; the good one
// behind it is delivered.
func TestTxDrops(t *testing.T) {
	big := func(n int) [][]byte { return [][]byte{plain(), pattern(n, 1)} }
	for _, tc := range []struct {
		name  string
		parts [][]byte
		want  Drop // dropNone: delivered
	}{
		{"N1 one byte", [][]byte{{1}}, DropShort},
		{"N1 header only", [][]byte{plain()}, DropShort},
		{"N1 part of the header", [][]byte{plain()[:11]}, DropShort},
		{"N6 13 bytes", [][]byte{plain(), pattern(13, 1)}, DropShort},
		{"N6 14 bytes", [][]byte{plain(), pattern(14, 1)}, dropNone},
		{"N6 MTU", big(1514), dropNone},
		{"N6 MTU and a VLAN tag", big(1518), dropNone},
		{"N6 longer than the MTU", big(1519), DropMTU},
		{"N6 64 KiB without GSO", big(65549), DropMTU},
		{"N6 64 KiB with GSO", [][]byte{hdr(1, 1, 0, 1448, 34, 16), pattern(65549, 1)}, dropNone},
		{"R11 longer than any frame", [][]byte{hdr(1, 1, 0, 1448, 34, 16), pattern(link.MaxFrame+1, 1)}, DropOversize},
		{"R11 much longer", [][]byte{hdr(1, 1, 0, 1448, 34, 16), pattern(1<<20, 1)}, DropOversize},
		{"N3", [][]byte{hdr(1, 3, 0, 1448, 34, 16), pattern(100, 1)}, DropGSO},
		{"N4", [][]byte{hdr(1, 0, 0, 0, 34, 65), pattern(100, 1)}, DropCsum},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.tx.Send(tc.parts...)
			r.tx.Send(plain(), pattern(60, 2))
			r.settle()
			want := 1
			if tc.want == dropNone {
				want = 2
			} else if n := r.drops(tc.want); n != 1 {
				t.Errorf("%d counted as %v: %v", n, tc.want, r.d.drops)
			}
			if r.h.Count != want || len(r.tx.Reap()) != 2 {
				t.Errorf("%d frames delivered, want %d", r.h.Count, want)
			}
		})
	}
}

// TestTxMTU: a driver that was not told an MTU may send what it likes.
func TestTxMTU(t *testing.T) {
	r := newRig(t, without(vhostuser.NetFMTU))
	r.tx.Send(plain(), pattern(9014, 1))
	r.settle()
	if r.h.Count != 1 {
		t.Errorf("dropped: %v", r.d.drops)
	}
}

// TestTxDirection is R9 and R15.
func TestTxDirection(t *testing.T) {
	r := newRig(t, without(vhostuser.RingFIndirectDesc))
	r.tx.Post(100)
	r.settle()
	if r.drops(DropDirection) != 1 {
		t.Errorf("R15: %v", r.d.drops)
	}
	ring := r.mem.NewRing(8)
	ring.SetDesc(0, 0, 0, 0, 0)
	ring.Offer(0)
	r.d.Stop(txQueue)
	r.d.Start(txQueue, r.queue(txQueue, ring, 0))
	r.settle()
	if id, n := ring.UsedElem(0); r.drops(DropEmpty) != 1 || ring.UsedIdx() != 1 || id != 0 || n != 0 {
		t.Errorf("R9: %v, used %d", r.d.drops, ring.UsedIdx())
	}
}

// TestTxWritableTail: a chain may have writable buffers behind the frame; they
// are left alone.
func TestTxWritableTail(t *testing.T) {
	r := newRig(t, noRing)
	r.d.Stop(txQueue)
	ring := r.mem.NewRing(8)
	gpa := r.mem.Alloc(72, 1)
	copy(r.mem.Bytes(gpa+12, 60), pattern(60, 1))
	ring.SetDesc(0, gpa, 72, vringtest.Next, 1)
	ring.SetDesc(1, r.mem.Alloc(64, 1), 64, vringtest.Write, 0)
	ring.Offer(0)
	r.d.Start(txQueue, r.queue(txQueue, ring, 0))
	r.settle()
	if _, n := ring.UsedElem(0); r.h.Count != 1 || n != 0 {
		t.Errorf("%d frames, used length %d", r.h.Count, n)
	}
}

// TestTxLegacyHeader is N5: the header's length follows the last negotiation.
func TestTxLegacyHeader(t *testing.T) {
	r := newRig(t, noRing)
	for _, tc := range []struct {
		f uint64
		n int
	}{{0, 10}, {vhostuser.NetFMrgRxbuf, 12}, {vhostuser.FVersion1, 12}, {0, 10}} {
		r.stop()
		r.d.Negotiated(tc.f)
		r.f = tc.f
		r.reboot()
		r.h.Reset()
		r.tx.Send(plain()[:tc.n], pattern(60, 1))
		r.settle()
		if len(r.h.Got) != 1 || !bytes.Equal(r.h.Got[0].Data, pattern(60, 1)) {
			t.Errorf("features %#x: %+v", tc.f, r.h.Got)
		}
		r.post(1, 2048)
		link.Send(r.ep(), pattern(54, 1), pattern(20, 2), link.Offload{})
		r.settle()
		if f := r.reap(); len(f) != 1 || len(f[0].hdr) != tc.n || !bytes.Equal(f[0].data[:54], pattern(54, 1)) {
			t.Errorf("features %#x: received %+v", tc.f, f)
		}
	}
}

// TestTxBatches: a batch at a time, a budget per turn, everything in order and
// exactly once.
func TestTxBatches(t *testing.T) {
	for name, f := range map[string]uint64{"plain ring": r0, "all ring features": everything} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f), ringSize(2048))
			const total = 700
			for i := range total {
				if _, ok := r.tx.Send(plain(), pattern(60, uint64(i))); !ok {
					t.Fatal("ring is full")
				}
			}
			r.h.OnFrames = func(batch []link.Frame) {
				// Long turns give back what they have on the way.
				if n := int(r.tx.Ring.UsedIdx()); len(r.h.Got) <= txChains && n < len(r.h.Got)-txBatch {
					t.Errorf("%d chains given back when %d frames have come", n, len(r.h.Got))
				}
			}
			r.d.Kick(txQueue)
			r.d.Kick(txQueue) // R21: the turn is used up
			if len(r.h.Got) != txChains {
				t.Errorf("%d frames in one turn, budget %d", len(r.h.Got), txChains)
			}
			r.settle()
			if len(r.h.Got) != total {
				t.Fatalf("%d frames", len(r.h.Got))
			}
			for i, g := range r.h.Got {
				if !bytes.Equal(g.Data, pattern(60, uint64(i))) {
					t.Fatalf("frame %d differs", i)
				}
			}
			for _, n := range r.h.Batches {
				if n > txBatch {
					t.Errorf("batch of %d", n)
				}
			}
			if n := len(r.tx.Reap()); n != total {
				t.Errorf("%d chains came back", n)
			}
		})
	}
}

const r0 = uint64(everything &^ (1<<28 | 1<<29 | 1<<35))

// TestTxByteBudget: large frames end a turn sooner.
func TestTxByteBudget(t *testing.T) {
	r := newRig(t)
	for range 100 {
		r.tx.Send(hdr(1, 1, 0, 1448, 34, 16), pattern(65000, 1))
	}
	r.h.Discard = true
	r.d.Kick(txQueue)
	if n := r.h.Bytes; n < txBytes || n > txBytes+txBatch*65549 || r.h.Count == 100 {
		t.Errorf("%d bytes in one turn, budget %d", n, txBytes)
	}
	r.settle()
	if r.h.Count != 100 {
		t.Errorf("%d frames", r.h.Count)
	}
}

// TestTxKickStorm is R21 and R22: kicks for nothing, and none at all.
func TestTxKickStorm(t *testing.T) {
	r := newRig(t)
	for range 100 {
		r.d.Kick(txQueue)
		r.d.Kick(rxQueue)
	}
	if n := r.loop.Stats().Agains; n > 1 {
		t.Errorf("%d turns asked for", n)
	}
	r.tx.Send(plain(), pattern(60, 1))
	r.tx.Kick.Count() // lost
	r.d.Kick(txQueue) // a polling server looks now and then
	r.settle()
	if r.h.Count != 1 {
		t.Errorf("%d frames", r.h.Count)
	}
}

// TestTxRewrite is R14: a guest that rewrites the header while the frame is
// being handled changes nothing.
func TestTxRewrite(t *testing.T) {
	r := newRig(t, noRing)
	r.d.Stop(txQueue)
	ring := r.mem.NewRing(8)
	gpa := r.mem.Alloc(112, 1)
	mem := r.mem.Bytes(gpa, 112)
	copy(mem, hdr(1, 0, 0, 0, 34, 16))
	ring.SetDesc(0, gpa, 112, 0, 0)
	ring.Offer(0)
	r.h.OnFrames = func(batch []link.Frame) {
		copy(mem, bytes.Repeat([]byte{0xff}, 112))
		ring.SetDesc(0, 0xdead, 0xffffffff, 7, 9)
		if f := &batch[0]; f.Len != 100 || f.Off != (link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}) || len(f.Segs[0]) != 100 {
			t.Errorf("frame became %+v", f)
		}
	}
	r.d.Start(txQueue, r.queue(txQueue, ring, 0))
	r.settle()
	if id, _ := ring.UsedElem(0); r.h.Count != 1 || ring.UsedIdx() != 1 || id != 0 {
		t.Errorf("%d frames, used %d", r.h.Count, ring.UsedIdx())
	}
}

// TestTxSleep: a driver that comes back soon is waited for without a kick, one
// that does not is asked to kick at once, and nothing turns while it stays away.
func TestTxSleep(t *testing.T) {
	for name, tc := range map[string]struct {
		gap   eventloop.Time
		kicks bool
	}{"soon": {txPoll / 2, false}, "late": {2 * txPrompt, true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			kicks, turns := 0, uint64(0)
			for i := range 30 {
				before := r.loop.Stats().Agains
				r.tx.Send(plain(), pattern(60, 1))
				if n := int(r.tx.Kick.Count()); i >= 10 {
					kicks += n
				}
				r.d.Kick(txQueue) // also when not kicked: it must do no harm
				r.loop.Turn(0)
				r.clock.Advance(time.Duration(tc.gap))
				r.loop.Turn(0)
				r.tx.Reap()
				if i >= 10 {
					turns += r.loop.Stats().Agains - before
				}
			}
			if r.h.Count != 30 || (kicks == 20) != tc.kicks || (kicks == 0) == tc.kicks {
				t.Errorf("%d frames, %d kicks", r.h.Count, kicks)
			}
			if (turns == 0) != tc.kicks {
				t.Errorf("%d turns asked for", turns)
			}
			r.settle()
			before := r.loop.Stats().Agains
			for range 5 {
				r.clock.Advance(time.Duration(txPoll))
				r.turn()
			}
			if n := r.loop.Stats().Agains - before; n != 0 {
				t.Errorf("%d turns while nothing is to be done", n)
			}
			r.tx.Kick.Count()
			r.tx.Send(plain(), pattern(60, 1))
			if r.tx.Kick.Count() != 1 {
				t.Error("no kick was asked for")
			}
		})
	}
}

func TestTxNoAllocation(t *testing.T) {
	for _, size := range []int{60, 65549} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := newRig(t)
			r.h.Discard = true
			s := newSender(r, size, 20)
			s.run()
			if n := testing.AllocsPerRun(100, s.run); n != 0 {
				t.Errorf("%v allocations per batch", n)
			}
			if r.h.Count == 0 || r.d.drops != [numDrops]uint64{} {
				t.Errorf("%d frames, drops %v", r.h.Count, r.d.drops)
			}
		})
	}
}
