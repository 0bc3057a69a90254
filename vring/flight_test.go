package vring

import (
	"math/rand/v2"
	"testing"
)

// TestFlight drives the arena as a queue does, with segments that say which
// chain they belong to, and compares with a list of copies: what is in flight is
// never overwritten, whatever wraps or grows.
func TestFlight(t *testing.T) {
	for _, size := range []uint16{1, 2, 8, 64} {
		rng := rand.New(rand.NewPCG(uint64(size), 1))
		f := newFlight(size)
		f.max = 512
		type chain struct {
			head uint16
			segs [][]byte // the arena's
			want [][]byte
		}
		var live []chain
		for step := range 20000 {
			switch op := rng.IntN(10); {
			case op < 6 && f.count < int(size):
				n := 1 + rng.IntN(40)
				if rng.IntN(20) == 0 {
					n = 400
				}
				c := chain{head: uint16(step)}
				f.begin()
				ok := true
				for range n {
					seg := []byte{byte(step)}
					if ok = f.add(seg); !ok {
						break
					}
					c.want = append(c.want, seg)
				}
				if !ok {
					if f.count == 0 {
						t.Fatalf("size %d step %d: no room for %d segments in an empty arena", size, step, n)
					}
					f.abort()
					break
				}
				c.segs = f.slots[f.start:f.head:f.head]
				f.commit(c.head, n%2 == 0)
				live = append(live, c)
			case op == 6 && len(live) > 0:
				n := 1 + rng.IntN(len(live))
				f.drop(n)
				live = live[:len(live)-n]
			case op >= 7 && len(live) > 0:
				n := 1 + rng.IntN(len(live))
				f.release(n)
				live = live[n:]
			}
			if f.count != len(live) || f.outgrown > f.count || f.head > f.limit || f.limit > len(f.slots) || len(f.slots) > f.max {
				t.Fatalf("size %d step %d: %d in flight (%d outgrown), want %d; head %d limit %d of %d",
					size, step, f.count, f.outgrown, len(live), f.head, f.limit, len(f.slots))
			}
			for i, c := range live {
				if m := f.marks[(f.first+uint16(i))&f.mask]; m.head != c.head {
					t.Fatalf("size %d step %d: chain %d has head %d, want %d", size, step, i, m.head, c.head)
				}
				for k := range c.want {
					if &c.segs[k][0] != &c.want[k][0] {
						t.Fatalf("size %d step %d: segment %d of chain %d was overwritten", size, step, k, i)
					}
				}
			}
		}
		f.reset()
		for _, s := range f.slots {
			if s != nil {
				t.Fatal("reset keeps a segment")
			}
		}
	}
}

// A chain may fill the whole arena of an otherwise empty queue, and no more.
func TestFlightHoldsTheLongestChain(t *testing.T) {
	for _, size := range []uint16{1, 256, 1024, MaxSize} {
		f := newFlight(size)
		f.begin()
		n := 0
		for ; f.add(nil); n++ {
		}
		if longest := int(size) + max(int(size), indirectMin); n < longest && n != arenaMax {
			t.Errorf("size %d: %d segments, the longest chain has %d", size, n, longest)
		}
		if n > arenaMax {
			t.Errorf("size %d: the arena grew to %d", size, n)
		}
	}
}
