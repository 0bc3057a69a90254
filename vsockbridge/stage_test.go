package vsockbridge

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestStageMessages: messages of all lengths, those included after which fewer
// bytes of a chunk are left than the next length needs.
func TestStageMessages(t *testing.T) {
	var p pool
	var s stage
	var v vector
	var want [][]byte
	rnd := rand.New(rand.NewPCG(7, 8))
	lengths := []int{1, 2, 3, chunkSize - 10, chunkSize - 9, chunkSize - 8, chunkSize - 7, chunkSize - 6, chunkSize - 5, chunkSize - 4, chunkSize, 3 * chunkSize}
	for i := range 3000 {
		if len(want) < 5 && rnd.IntN(2) == 0 {
			m := pattern(lengths[rnd.IntN(len(lengths))], uint64(i))
			cut := rnd.IntN(len(m) + 1)
			s.extend(&p, m[:cut])
			s.extend(&p, m[cut:])
			s.finish()
			want = append(want, m)
			continue
		}
		if len(want) == 0 {
			continue
		}
		n := s.message(&p)
		s.gather(&v, lengthSize, n)
		var have []byte
		for i := range v.n {
			have = append(have, v.piece(i)...)
		}
		v.reset()
		if !bytes.Equal(have, want[0]) {
			t.Fatalf("step %d: message of %d bytes, want %d", i, n, len(want[0]))
		}
		s.consume(&p, lengthSize+n)
		if want = want[1:]; s.empty() != (len(want) == 0) || s.empty() && p.out != 0 {
			t.Fatalf("step %d: empty %v, %d chunks, %d messages", i, s.empty(), p.out, len(want))
		}
	}
}
