package eventloop

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = Time(time.Millisecond)

type firings struct {
	w   *Wheel
	got []uint32
	at  []Time
	do  func(cookie uint32)
}

func (f *firings) Expired(cookie uint32) {
	f.got = append(f.got, cookie)
	f.at = append(f.at, f.w.Now())
	if f.do != nil {
		f.do(cookie)
	}
}

// drain advances to now until the wheel has caught up.
func drain(w *Wheel, now Time) (rounds int) {
	for {
		w.Advance(now)
		rounds++
		if next, ok := w.Next(); !ok || next > now {
			return rounds
		}
	}
}

func TestWheelNeverEarlyAtMostOneTickLate(t *testing.T) {
	for _, d := range []Time{1, ms - 1, ms, ms + 1, 63 * ms, 64 * ms, 65 * ms, 4095 * ms, 4096 * ms, 4097 * ms,
		262143 * ms, 262144 * ms, 3600_000 * ms, 7 * 86400_000 * ms, 400 * 86400_000 * ms} {
		base := Time(123456789)
		w := NewWheel(base)
		f := &firings{w: w}
		w.Set(w.New(f, 7), base+d)
		// Follow Next, as a loop does.
		for hops := 0; len(f.got) == 0; hops++ {
			next, ok := w.Next()
			if !ok || hops > levels {
				t.Fatalf("%v: lost (hops %d)", time.Duration(d), hops)
			}
			w.Advance(next)
		}
		if late := f.at[0] - (base + d); late < 0 || late >= ms {
			t.Errorf("timer of %v ran %v late", time.Duration(d), time.Duration(late))
		}
		if _, ok := w.Next(); ok || w.Len() != 0 {
			t.Errorf("%v: wheel not empty", time.Duration(d))
		}
	}
}

func TestWheelPastIsNextTick(t *testing.T) {
	w := NewWheel(1000 * ms)
	f := &firings{w: w}
	id := w.New(f, 1)
	f.do = func(uint32) { w.Set(id, 0) } // re-arms itself for long ago
	w.Set(id, 5*ms)
	w.Advance(1000 * ms)
	if len(f.got) != 0 {
		t.Fatal("ran in the tick it was set in")
	}
	w.Advance(1001 * ms)
	w.Advance(1001 * ms)
	if len(f.got) != 1 {
		t.Fatalf("ran %d times in one tick, want 1", len(f.got))
	}
}

// A timer set while its slot number equals that of the slot emptied last must
// still wait for its time.
func TestWheelSlotReuse(t *testing.T) {
	w := NewWheel(0)
	f := &firings{w: w}
	id := w.New(f, 1)
	w.Set(id, 5*ms)
	drain(w, 5*ms)
	drain(w, 128*ms)
	w.Set(id, 133*ms)
	w.Advance(130 * ms)
	if len(f.got) != 1 {
		t.Fatal("ran early")
	}
	w.Advance(133 * ms)
	if len(f.got) != 2 {
		t.Fatal("did not run")
	}
}

func TestWheelStopFreeInsideExpired(t *testing.T) {
	w := NewWheel(0)
	f := &firings{w: w}
	ids := make([]TimerID, 4)
	for i := range ids {
		ids[i] = w.New(f, uint32(i))
		w.Set(ids[i], 10*ms)
	}
	f.do = func(c uint32) {
		if c == 0 {
			w.Stop(ids[1])
			w.Free(ids[2])
			if got := w.New(f, 9); got != ids[2] {
				t.Errorf("New after Free returned %d, want %d", got, ids[2])
			}
			w.Set(ids[0], 20*ms)
		}
	}
	drain(w, 10*ms)
	if want := []uint32{0, 3}; !slices.Equal(f.got, want) {
		t.Fatalf("ran %v, want %v", f.got, want)
	}
	if !w.Armed(ids[0]) || w.Armed(ids[1]) || w.Armed(ids[2]) || w.Armed(ids[3]) {
		t.Error("wrong timers armed")
	}
	w.Free(ids[3])
	w.Free(ids[3]) // twice is harmless
	if a, b := w.New(f, 0), w.New(f, 0); a == b {
		t.Error("a timer was handed out twice")
	}
	w.Set(0, 1)
	w.Stop(0)
	w.Free(0)
	if w.Armed(0) {
		t.Error("timer 0 is armed")
	}
}

// S3: after a long gap many timers are due at once; each Advance does a bounded
// part, nothing is lost, the order holds.
func TestWheelGapIsWorkedOffInPortions(t *testing.T) {
	w := NewWheel(0)
	f := &firings{w: w}
	const n = 10_000
	for i := range n {
		w.Set(w.New(f, uint32(i)), Time(i+1)*7*ms)
	}
	gap := Time(100 * time.Hour)
	before := 0
	for rounds := 0; len(f.got) < n; rounds++ {
		w.Advance(gap)
		if done := len(f.got) - before; done > work {
			t.Fatalf("one Advance called %d timers, want at most %d", done, work)
		}
		before = len(f.got)
		if next, ok := w.Next(); len(f.got) < n && (!ok || next > gap) {
			t.Fatal("Next does not ask for the rest")
		}
		if rounds > levels*n/work {
			t.Fatal("no progress")
		}
	}
	if !slices.IsSorted(f.got) {
		t.Error("out of order")
	}
}

// Random operations against a list that is searched in full.
func TestWheelModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		w := NewWheel(Time(rnd.Int64N(1 << 40)))
		model := map[uint32]Time{}
		f := &firings{w: w}
		f.do = func(c uint32) {
			at, ok := model[c]
			if !ok || at > w.Now() {
				t.Fatalf("round %d: timer %d ran early or unarmed", round, c)
			}
			delete(model, c)
		}
		ids := make([]TimerID, 50)
		for i := range ids {
			ids[i] = w.New(f, uint32(i))
		}
		now := w.Now()
		for range 2000 {
			i := rnd.IntN(len(ids))
			switch rnd.IntN(4) {
			case 0, 1:
				at := now + 1 + Time(rnd.Int64N(1<<uint(10+rnd.IntN(34))))
				w.Set(ids[i], at)
				model[uint32(i)] = at
			case 2:
				w.Stop(ids[i])
				delete(model, uint32(i))
			case 3:
				now += Time(rnd.Int64N(1 << uint(10+rnd.IntN(32))))
				drain(w, now)
				for c, at := range model {
					if at <= now-ms {
						t.Fatalf("round %d: timer %d is %v late", round, c, time.Duration(now-at))
					}
				}
			}
			if w.Len() != len(model) {
				t.Fatalf("round %d: %d armed, want %d", round, w.Len(), len(model))
			}
		}
	}
}

func TestWheelDoesNotAllocate(t *testing.T) {
	w := NewWheel(0)
	f := &counter{}
	ids := make([]TimerID, 1000)
	for i := range ids {
		ids[i] = w.New(f, 0)
	}
	now := Time(0)
	if n := testing.AllocsPerRun(100, func() {
		for i, id := range ids {
			w.Set(id, now+Time(i)*ms)
		}
		now += 500 * ms
		w.Advance(now)
		w.Next()
		w.Free(ids[0])
		ids[0] = w.New(f, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type counter struct{ n int }

func (c *counter) Expired(uint32)       { c.n++ }
func (c *counter) Ready(uint32, Events) { c.n++ }

func BenchmarkWheelRearm(b *testing.B) {
	w := NewWheel(0)
	f := &counter{}
	ids := make([]TimerID, 1024)
	for i := range ids {
		ids[i] = w.New(f, 0)
	}
	for i := 0; b.Loop(); i++ {
		w.Set(ids[i%1024], w.now+Time(i%60000)*ms)
	}
}

func BenchmarkWheelAdvance(b *testing.B) {
	w := NewWheel(0)
	f := &counter{}
	for i := range 10_000 {
		w.Set(w.New(f, 0), Time(i)*1000*ms)
	}
	for b.Loop() {
		w.Advance(w.now + 1000)
		w.Next()
	}
}
