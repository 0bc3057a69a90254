package flow

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

func key(i int, proto uint8) *Key {
	return &Key{
		Guest:     wire.Addr{10: 0xff, 11: 0xff, 12: 10, 13: 0, 14: 2, 15: 15},
		Remote:    wire.Addr{10: 0xff, 11: 0xff, 12: 198, 13: 51, 14: byte(i >> 8), 15: byte(i)},
		GuestPort: uint16(i), RemotePort: uint16(i >> 16), Proto: proto,
	}
}

var secret = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// The life cycle as a table: every state by every event.
func TestLifeCycle(t *testing.T) {
	type event struct {
		name string
		do   func(t *Table, i uint32) bool
	}
	events := []event{
		{"insert", func(t *Table, i uint32) bool { _, ok := t.Insert(key(1, 6), 5); return ok }},
		{"opening", func(t *Table, i uint32) bool { return t.Advance(i, Opening) }},
		{"active", func(t *Table, i uint32) bool { return t.Advance(i, Active) }},
		{"closing", func(t *Table, i uint32) bool { return t.Advance(i, Closing) }},
		{"free", func(t *Table, i uint32) bool { return t.Advance(i, Free) }},
		{"invalid", func(t *Table, i uint32) bool { return t.Advance(i, nStates) }},
		{"remove", func(t *Table, i uint32) bool { t.Remove(i); return true }},
	}
	for _, row := range []struct {
		from State
		to   []State // by event; Free with ok means removed
		ok   []bool
	}{
		//       insert   opening  active   closing  free     invalid  remove
		{Free, []State{Opening, Free, Free, Free, Free, Free, Free},
			[]bool{true, false, false, false, false, false, true}},
		{Opening, []State{Opening, Opening, Active, Closing, Opening, Opening, Free},
			[]bool{false, false, true, true, false, false, true}},
		{Active, []State{Active, Active, Active, Closing, Active, Active, Free},
			[]bool{false, false, false, true, false, false, true}},
		{Closing, []State{Closing, Closing, Closing, Closing, Closing, Closing, Free},
			[]bool{false, false, false, false, false, false, true}},
	} {
		for n, ev := range events {
			tab := NewTable(10, secret)
			i := uint32(1)
			if row.from != Free {
				i, _ = tab.Insert(key(1, 6), 5)
				if row.from != Opening && !tab.Advance(i, row.from) {
					t.Fatal("setup")
				}
			}
			if ok := ev.do(tab, i); ok != row.ok[n] {
				t.Errorf("%v, %s: %v, want %v", row.from, ev.name, ok, row.ok[n])
			}
			got := Free
			if i, ok := tab.Lookup(key(1, 6)); ok {
				got = tab.At(i).State
			}
			if got != row.to[n] {
				t.Errorf("%v, %s: now %v, want %v", row.from, ev.name, got, row.to[n])
			}
			for s := Opening; s < nStates; s++ {
				want := 0
				if s == got {
					want = 1
				}
				if tab.Count(6, s) != want {
					t.Errorf("%v, %s: %d flows counted %v, want %d", row.from, ev.name, tab.Count(6, s), s, want)
				}
			}
		}
	}
	if tab := NewTable(1, secret); tab.Count(6, 200) != 0 {
		t.Error("count of an invalid state")
	}
}

func TestNewFlow(t *testing.T) {
	tab := NewTable(10, secret)
	i, ok := tab.Insert(key(1, 17), 42)
	if !ok || i == 0 {
		t.Fatal(i, ok)
	}
	if f := tab.At(i); f.Key != *key(1, 17) || f.FD != hostsock.None || f.Last != 42 || f.State != Opening || f.Initiator != Guest || f.Slot != 0 {
		t.Errorf("%+v", *f)
	}
}

func TestLimits(t *testing.T) {
	tab := NewTable(4, secret)
	tab.SetLimit(17, 2)
	insert := func(i int, proto uint8) bool { _, ok := tab.Insert(key(i, proto), 0); return ok }
	for _, c := range []struct {
		n     int
		proto uint8
		want  bool
	}{
		{1, 17, true}, {2, 17, true}, {3, 17, false}, // UDP is full
		{1, 6, true}, {1, 6, false}, // the same key
		{1, 1, true}, {1, 58, false}, {2, 6, false}, // the table is full
	} {
		if got := insert(c.n, c.proto); got != c.want {
			t.Errorf("insert %d of %d: %v", c.n, c.proto, got)
		}
	}
	if tab.Len() != 4 || tab.LenProto(17) != 2 || tab.LenProto(58) != 1 || tab.LenProto(132) != 0 {
		t.Error("lengths")
	}
	i, _ := tab.OldestIdle(17)
	tab.Remove(i)
	if insert(3, 6) != true || insert(4, 17) != false {
		t.Error("room after Remove")
	}
	if tab := NewTable(-5, secret); tab.slab.max != 1 {
		t.Error("lower clamp")
	}
	if tab := NewTable(1<<30, secret); tab.slab.max != MaxFlows {
		t.Error("upper clamp")
	}
}

func TestHandles(t *testing.T) {
	tab := NewTable(10, secret)
	i, _ := tab.Insert(key(1, 6), 0)
	h := tab.Handle(i)
	if tab.Get(h) != tab.At(i) {
		t.Error("live handle")
	}
	tab.Remove(i)
	tab.Remove(i)
	if tab.Get(h) != nil || tab.Len() != 0 {
		t.Error("handle of a removed flow")
	}
	j, _ := tab.Insert(key(2, 6), 0)
	if j != i {
		t.Fatal("index is not reused")
	}
	if tab.Get(h) != nil || tab.Get(tab.Handle(j)) == nil {
		t.Error("handle of a reused index")
	}
	if tab.Get(Handle{}) != nil || tab.Get(Handle{1 << 30, 1}) != nil {
		t.Error("nonsense handle")
	}
}

func (t *Table) order(proto uint8) (got []uint32) {
	for i, ok := t.OldestIdle(proto); ok; i, ok = t.Newer(i) {
		got = append(got, i)
	}
	return got
}

func TestLRU(t *testing.T) {
	tab := NewTable(100, secret)
	var tcp []uint32
	for n := range 4 {
		i, _ := tab.Insert(key(n, 6), eventloop.Time(n))
		tcp = append(tcp, i)
		tab.Insert(key(n, 17), 0)
	}
	a, b, c, d := tcp[0], tcp[1], tcp[2], tcp[3]
	for _, step := range []struct {
		name string
		do   func()
		want []uint32
	}{
		{"as inserted", func() {}, []uint32{a, b, c, d}},
		{"touch the oldest", func() { tab.Touch(a, 10) }, []uint32{b, c, d, a}},
		{"touch the newest", func() { tab.Touch(a, 11) }, []uint32{b, c, d, a}},
		{"touch in the middle", func() { tab.Touch(c, 12) }, []uint32{b, d, a, c}},
		{"remove in the middle", func() { tab.Remove(d) }, []uint32{b, a, c}},
		{"remove the newest", func() { tab.Remove(c) }, []uint32{b, a}},
		{"insert behind a removed newest", func() { tab.Insert(key(9, 6), 13) }, []uint32{b, a, c}},
		{"remove the oldest", func() { tab.Remove(b) }, []uint32{a, c}},
		{"remove the next", func() { tab.Remove(a) }, []uint32{c}},
		{"remove the last", func() { tab.Remove(c) }, nil},
		{"insert the first", func() { tab.Insert(key(9, 6), 14) }, []uint32{c}},
	} {
		step.do()
		if got := tab.order(6); !slices.Equal(got, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	if len(tab.order(17)) != 4 {
		t.Error("another protocol's order changed")
	}
}

// Random operations against Go's map.
func TestTableModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, clash := range []bool{false, true} {
		tab := NewTable(3000, secret)
		if clash { // every key at home in the same cell: deletion has much to move
			tab.hash = hasher{}
		}
		model := map[Key]uint32{}
		n := 20000
		if clash {
			n = 5000
		}
		for range n {
			k := key(rnd.IntN(4000), []uint8{6, 17, 1}[rnd.IntN(3)])
			i, have := model[*k]
			if j, ok := tab.Lookup(k); ok != have || j != i {
				t.Fatalf("lookup: %d %v, want %d %v", j, ok, i, have)
			}
			if have {
				if rnd.IntN(3) > 0 {
					tab.Remove(i)
					delete(model, *k)
				} else {
					tab.Touch(i, 0)
				}
			} else if i, ok := tab.Insert(k, 0); ok {
				model[*k] = i
			} else if len(model) < 3000 {
				t.Fatal("refused with room")
			}
			if tab.Len() != len(model) {
				t.Fatal("length")
			}
		}
		seen := 0
		tab.All(func(i uint32, f *Flow) bool {
			if model[f.Key] != i {
				t.Fatal("All shows a stranger")
			}
			seen++
			tab.Remove(i)
			return true
		})
		if seen != len(model) || tab.Len() != 0 || tab.index.used != 0 || slices.ContainsFunc(tab.index.cells, func(c uint64) bool { return c != 0 }) {
			t.Fatalf("%d of %d seen; left %d", seen, len(model), tab.Len())
		}
	}
}

func TestAllStops(t *testing.T) {
	tab := NewTable(10, secret)
	for n := range 3 {
		tab.Insert(key(n, 6), 0)
	}
	n := 0
	tab.All(func(uint32, *Flow) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("%d calls", n)
	}
}

// The promise of doc.go: little when idle, and an entry far below 1 KiB.
func TestMemory(t *testing.T) {
	var before, idle, full runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tab := NewTable(MaxFlows, secret)
	runtime.GC()
	runtime.ReadMemStats(&idle)
	const n = 10_000
	for i := range n {
		tab.Insert(key(i, 6), 0)
	}
	runtime.GC()
	runtime.ReadMemStats(&full)
	if d := int64(idle.HeapAlloc) - int64(before.HeapAlloc); d > 16<<10 {
		t.Errorf("idle table holds %d bytes", d)
	}
	per := (int64(full.HeapAlloc) - int64(idle.HeapAlloc)) / n
	t.Logf("%d bytes per flow", per)
	if per > 256 {
		t.Errorf("%d bytes per flow", per)
	}
	runtime.KeepAlive(tab)
}

func TestNoAllocations(t *testing.T) {
	tab := NewTable(1000, secret)
	for i := range 500 {
		tab.Insert(key(i, 6), 0)
	}
	k, miss, fresh := key(77, 6), key(999, 6), key(700, 6)
	if n := testing.AllocsPerRun(100, func() {
		i, _ := tab.Lookup(k)
		tab.Touch(i, 1)
		tab.Lookup(miss)
		j, _ := tab.Insert(fresh, 0)
		tab.Get(tab.Handle(j))
		tab.Remove(j)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(map[int]string{1: "1", 1000: "1000", 10_000: "10000"}[n], func(b *testing.B) {
			tab := NewTable(MaxFlows, secret)
			keys := make([]Key, n)
			for i := range keys {
				keys[i] = *key(i, 6)
				tab.Insert(&keys[i], 0)
			}
			i := 0
			for b.Loop() {
				if _, ok := tab.Lookup(&keys[i]); !ok {
					b.Fatal()
				}
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

func BenchmarkTouch(b *testing.B) {
	tab := NewTable(MaxFlows, secret)
	for i := range 1000 {
		tab.Insert(key(i, 6), 0)
	}
	for i := uint32(0); b.Loop(); i++ {
		tab.Touch(i%1000+1, 0)
	}
}
