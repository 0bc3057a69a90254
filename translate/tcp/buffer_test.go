package tcp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"guestwire/translate/wire"
)

// The scoreboard against a plain set of numbers.
func TestBoard(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var b board
		base := wire.Seq(rng.Uint32())
		var have [200]bool
		full := false
		for range 1 + rng.IntN(40) {
			from := rng.IntN(190)
			to := from + 1 + rng.IntN(min(20, 200-from-1)+1)
			n := b.n
			before := b
			b.add(span{base.Add(from), base.Add(to)})
			if n == maxBlocks && b == before {
				full = true // forgotten, or known already
				continue
			}
			for i := from; i < to; i++ {
				have[i] = true
			}
		}
		count, got := 0, [200]bool{}
		for k, r := range b.r[:b.n] {
			if r.len() <= 0 || k > 0 && r.from.Diff(b.r[k-1].to) <= 0 {
				t.Fatalf("ranges %v", b.r[:b.n])
			}
			for i := int(r.from.Diff(base)); i < int(r.to.Diff(base)); i++ {
				got[i] = true
				count++
			}
		}
		if got != have && !full {
			t.Fatalf("ranges %v of base %d", b.r[:b.n], base)
		}
		if count != b.bytes {
			t.Fatalf("%d bytes counted, %d there", b.bytes, count)
		}
		checkHoles(t, &b, base, &got)
	}
}

func checkHoles(t *testing.T, b *board, base wire.Seq, have *[200]bool) {
	t.Helper()
	last := -1
	for i, x := range have {
		if x {
			last = i
		}
	}
	for s := 0; ; {
		h, ok := b.hole(base.Add(s))
		from := s
		for from < last && have[from] {
			from++
		}
		if from >= last {
			if ok {
				t.Fatalf("hole %v behind the last range", h)
			}
			return
		}
		to := from
		for !have[to] {
			to++
		}
		if !ok || h.from != base.Add(from) || h.to != base.Add(to) {
			t.Fatalf("hole %v %v from %d, want [%d, %d)", h, ok, s, from, to)
		}
		s = to
	}
}

// Chunks: bytes come back from where they were put, memory is bounded, and what
// was released is used again.
func TestSeqBuf(t *testing.T) {
	for _, start := range []wire.Seq{0, 5, chunkSize - 1, 1<<32 - 100_000, 1<<32 - 1} {
		p := newPool(64)
		var b seqBuf
		want := pattern(500_000, 1)
		for off := 0; off < len(want); off += 7001 {
			n := min(7001, len(want)-off)
			if got := b.put(&p, start.Add(off), want[off:off+n]); got != n {
				t.Fatalf("put %d of %d", got, n)
			}
		}
		if p.used > len(want)/chunkSize+2 {
			t.Errorf("%d chunks", p.used)
		}
		var got []byte
		for off := 0; off < len(want); {
			iov := b.view(&p, make([][]byte, 0, 3), start.Add(off), len(want)-off)
			if len(iov) > 3 {
				t.Fatal("more slices than there is room for")
			}
			for _, s := range iov {
				got = append(got, s...)
			}
			n := length(iov)
			b.release(&p, start.Add(off), start.Add(off+n))
			off += n
			if left := (len(want)-off)/chunkSize + 2; p.used > left {
				t.Fatalf("%d chunks for %d bytes", p.used, len(want)-off)
			}
		}
		if !bytes.Equal(got, want) {
			t.Error("bytes differ")
		}
		b.clear(&p)
		if p.used != 0 {
			t.Errorf("%d chunks left", p.used)
		}
	}
	p := newPool(2)
	var b seqBuf
	if n := b.put(&p, 0, make([]byte, 3*chunkSize)); n != 2*chunkSize {
		t.Errorf("%d bytes in a pool of two chunks", n)
	}
}

// Free chunks beyond a limit go back to the garbage collector, and their numbers
// are used again.
func TestPool(t *testing.T) {
	const n = keepFree/chunkSize + 100
	p := newPool(n)
	var ids []uint16
	for range n {
		ids = append(ids, p.get())
	}
	if p.get() != 0 {
		t.Error("beyond the limit")
	}
	for _, i := range ids {
		p.put(i)
	}
	kept := 0
	for _, c := range p.chunks {
		if c != nil {
			kept++
		}
	}
	if kept != keepFree/chunkSize || p.used != 0 {
		t.Errorf("%d chunks kept, %d used", kept, p.used)
	}
	seen := map[uint16]bool{}
	for range n {
		i := p.get()
		if i == 0 || seen[i] || len(p.chunks[i]) != chunkSize {
			t.Fatalf("chunk %d", i)
		}
		seen[i] = true
	}
	if len(p.chunks) != n+1 {
		t.Errorf("%d numbers", len(p.chunks))
	}
}
