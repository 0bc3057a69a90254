package fault

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

const total = 2000

func numbered(i int) []byte {
	b := bytes.Repeat([]byte{0xa5}, 60)
	binary.BigEndian.PutUint32(b, uint32(i)) // in the Ethernet header, which stays whole
	return b
}

func number(f linktest.Frame) int { return int(binary.BigEndian.Uint32(f.Data)) }

// run sends total frames each way through a bad link.
func run(t *testing.T, c Config) (l *Link, toGuest, toHost []linktest.Frame) {
	t.Helper()
	h := &linktest.Handler{}
	ep := linktest.NewEndpoint(t, link.Caps{})
	ep.SegLen = 13
	l = New(c, h)
	l.LinkUp(ep, true)
	for i := 0; i < total; i += 4 {
		var in []linktest.Frame
		slots := h.EP().Reserve(14, 60, 5)
		for k := range 4 {
			in = append(in, linktest.Frame{Data: numbered(i + k)})
			copy(slots[k].Header, numbered(i+k))
			slots[k].Used = copy(slots[k].Payload[0], numbered(i + k)[14:])
		}
		h.EP().Commit(4)
		l.Frames(linktest.Batch(11, in...))
	}
	l.Release()
	return l, ep.Take(), h.Got
}

func TestClean(t *testing.T) {
	_, toGuest, toHost := run(t, Config{Seed: 1})
	for name, got := range map[string][]linktest.Frame{"to guest": toGuest, "to host": toHost} {
		if len(got) != total {
			t.Fatalf("%s: %d frames", name, len(got))
		}
		for i, f := range got {
			if !bytes.Equal(f.Data, numbered(i)) {
				t.Fatalf("%s: frame %d is %x", name, i, f.Data)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	for name, rates := range map[string]Rates{
		"loss": {Loss: 0.1}, "dup": {Dup: 0.1}, "corrupt": {Corrupt: 0.1}, "reorder": {Reorder: 0.1, Held: 5},
		"all": {Loss: 0.05, Dup: 0.05, Corrupt: 0.05, Reorder: 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			l, toGuest, toHost := run(t, Config{Seed: 7, ToGuest: rates, ToHost: rates})
			cg, ch := l.Counts()
			check(t, "to guest", rates, cg, toGuest)
			check(t, "to host", rates, ch, toHost)
			if same(toGuest, toHost) {
				t.Error("both directions drew the same faults")
			}
			if _, again, _ := run(t, Config{Seed: 7, ToGuest: rates, ToHost: rates}); !same(again, toGuest) {
				t.Error("the same seed gave another outcome")
			}
		})
	}
}

func same(a, b []linktest.Frame) bool {
	return slices.EqualFunc(a, b, func(a, b linktest.Frame) bool { return bytes.Equal(a.Data, b.Data) })
}

// check compares what arrived with what the link says it did.
func check(t *testing.T, dir string, r Rates, c Counts, got []linktest.Frame) {
	t.Helper()
	seen := make(map[int]int)
	flipped, backwards, last := 0, 0, -1
	for _, f := range got {
		n := number(f)
		seen[n]++
		if n < last {
			backwards++
		}
		last = max(last, n)
		wrong := 0
		for i, b := range numbered(n) {
			wrong += bits.OnesCount8(b ^ f.Data[i])
		}
		if wrong > 1 {
			t.Errorf("%s: frame %d with %d wrong bits", dir, n, wrong)
		}
		flipped += wrong
	}
	if missing := total - len(seen); missing != c.Lost {
		t.Errorf("%s: %d frames missing, %d counted", dir, missing, c.Lost)
	}
	if dup := len(got) - len(seen); dup != c.Duplicated {
		t.Errorf("%s: %d duplicates, %d counted", dir, dup, c.Duplicated)
	}
	if (backwards > 0) != (r.Reorder > 0) || (flipped > 0) != (r.Corrupt > 0) {
		t.Errorf("%s: %d out of order, %d bits flipped with %+v", dir, backwards, flipped, r)
	}
	for what, v := range map[string]struct {
		rate float64
		n    int
	}{"loss": {r.Loss, c.Lost}, "dup": {r.Dup, c.Duplicated}, "corrupt": {r.Corrupt, c.Corrupted}, "reorder": {r.Reorder, c.Reordered}} {
		if want := v.rate * total; float64(v.n) < want/2 || float64(v.n) > want*2 {
			t.Errorf("%s: %s hit %d of %d frames at rate %v", dir, what, v.n, total, v.rate)
		}
	}
}

func TestStall(t *testing.T) {
	h := &linktest.Handler{}
	ep := linktest.NewEndpoint(t, link.Caps{})
	l := New(Config{}, h)
	l.LinkUp(ep, true)

	l.StallToGuest(true)
	if link.Send(h.EP(), numbered(1), nil, link.Offload{}) {
		t.Fatal("sent through a stall")
	}
	l.Writable()
	if h.Writables != 0 {
		t.Error("Writable during a stall")
	}
	l.StallToGuest(false)
	if h.Writables != 1 || !link.Send(h.EP(), numbered(1), nil, link.Offload{}) || ep.Count != 1 {
		t.Errorf("after the stall: %d Writable, %d frames", h.Writables, ep.Count)
	}

	l.StallToHost(true)
	for i := range MaxKept + 1 {
		l.Frames(linktest.Batch(0, linktest.Frame{Data: numbered(i)}))
	}
	if h.Count != 0 {
		t.Error("frames during a stall")
	}
	l.StallToHost(false)
	if _, c := l.Counts(); h.Count != MaxKept || c.Lost != 1 {
		t.Errorf("%d frames after the stall, %d lost", h.Count, c.Lost)
	}
}
