package vsockbridge

import (
	"math/rand/v2"
	"testing"
)

// TestTableModel runs the table against a map.
func TestTableModel(t *testing.T) {
	const limit = 300
	tab := newTable(limit)
	model := map[key]int32{}
	var list []key
	rnd := rand.New(rand.NewPCG(3, 4))
	for step := range 100_000 {
		k := key{peer: 2, peerPort: uint32(rnd.IntN(20)), port: uint32(rnd.IntN(40))}
		c := tab.find(k)
		if slot, ok := model[k]; ok != (c != nil) || ok && (c.slot != slot || c.key != k) {
			t.Fatalf("step %d: %v is %v, want %v", step, k, c, ok)
		}
		switch {
		case c == nil && !tab.full():
			if c = tab.add(k); c == nil || c.state.phase != vacant || c.fd != -1 {
				t.Fatalf("step %d: added %v", step, c)
			}
			c.state.phase = open
			model[k] = c.slot
			list = append(list, k)
		case c == nil:
			i := rnd.IntN(len(list))
			tab.remove(tab.at(model[list[i]]))
			delete(model, list[i])
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
		}
		if tab.used != len(model) || tab.keys != len(model) {
			t.Fatalf("step %d: %d used, %d keys, want %d", step, tab.used, tab.keys, len(model))
		}
	}
	if tab.slots() > limit+blockConns {
		t.Errorf("%d slots for %d", tab.slots(), limit)
	}
}

// TestStageModel runs a stage against a slice, in pieces of all sizes.
func TestStageModel(t *testing.T) {
	var p pool
	var s stage
	var v vector
	var want []byte
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		if rnd.IntN(2) == 0 && len(want) < 1<<20 {
			b := pattern(rnd.IntN(3*chunkSize/2), rnd.Uint64())
			s.append(&p, b)
			want = append(want, b...)
		} else {
			n := s.gather(&v, 0, rnd.IntN(len(want)+1))
			var have []byte
			for i := range v.n {
				have = append(have, v.piece(i)...)
			}
			v.reset()
			if n != len(have) || string(have) != string(want[:n]) {
				t.Fatalf("gathered %d bytes, %d, wrong", n, len(have))
			}
			n = rnd.IntN(n + 1)
			s.consume(&p, n)
			want = want[n:]
		}
		if s.bytes != len(want) || p.out > len(want)/chunkSize+2 || s.empty() != (len(want) == 0) {
			t.Fatalf("%d bytes in %d chunks, want %d", s.bytes, p.out, len(want))
		}
	}
	if s.clear(&p); p.out != 0 || p.kept > spareChunks {
		t.Errorf("%d chunks out, %d kept", p.out, p.kept)
	}
}
