package eventloop

import (
	"testing"
	"time"
)

// AgainAt calls in the first turn at or after the time, once, and the last call
// for a registration counts.
func TestLoopAgainAt(t *testing.T) {
	clock := &fakeClock{t: 1000}
	l := newLoop(t, clock)
	p := &probe{}
	a, b := pair(t)
	one, two := add(t, l, a, 0, p, 1), add(t, l, b, 0, p, 2)
	if !l.AgainAt(one, 5000) || !l.AgainAt(one, 9000) || !l.AgainAt(two, 6000) {
		t.Fatal("refused")
	}
	for _, step := range []struct {
		at   Time
		want []call
	}{
		{5999, nil},
		{6000, []call{{2, Again}}},
		{6001, nil},
		{8999, nil},
		{9500, []call{{1, Again}}},
		{20000, nil},
	} {
		clock.t, p.calls = step.at, nil
		turn(t, l)
		if len(p.calls) != len(step.want) || len(p.calls) > 0 && p.calls[0] != step.want[0] {
			t.Errorf("at %d: %v, want %v", step.at, p.calls, step.want)
		}
	}
	// Both at once, beside an Again: each source once.
	l.Again(one)
	l.AgainAt(one, 30000)
	l.AgainAt(two, 30000)
	clock.t, p.calls = 30000, nil
	turn(t, l)
	turn(t, l)
	if len(p.calls) != 2 {
		t.Errorf("%v, want one call each", p.calls)
	}
}

// A source that has gone is not called, and its place in the list comes back.
func TestLoopAgainAtStaleAndFull(t *testing.T) {
	clock := &fakeClock{t: 1}
	l := newLoop(t, clock)
	p := &probe{}
	var tokens []Token
	for range maxLate/2 + 1 {
		a, b := pair(t)
		tokens = append(tokens, add(t, l, a, 0, p, 0), add(t, l, b, 0, p, 0))
	}
	for i, tok := range tokens {
		if got, want := l.AgainAt(tok, 100), i < maxLate; got != want {
			t.Fatalf("registration %d: %v", i, got)
		}
	}
	for _, tok := range tokens[:maxLate/2] {
		l.Remove(tok)
	}
	if l.AgainAt(tokens[0], 100) {
		t.Error("a stale token was taken")
	}
	clock.t = 100
	turn(t, l)
	if len(p.calls) != maxLate/2 {
		t.Errorf("%d calls, want %d", len(p.calls), maxLate/2)
	}
	if !l.AgainAt(tokens[maxLate], 200) {
		t.Error("the list did not become free")
	}
}

// The loop wakes for a late call by itself, within the time that a rest may be
// off: most waits, since others use this machine too.
func TestLoopSleepsUntilTheLateCall(t *testing.T) {
	l := newLoop(t, NewClock())
	const rest = Time(200_000)
	late := 0
	var due Time
	p := &probe{}
	a, _ := pair(t)
	tok := add(t, l, a, 0, p, 0)
	p.do = func(uint32, Events) {
		if l.Now() < due {
			t.Errorf("early by %v", time.Duration(due-l.Now()))
		}
		if l.Now() > due+Time(10*time.Millisecond) {
			late++
		}
		due = l.clock.Now() + rest
		l.AgainAt(tok, due)
	}
	l.AgainAt(tok, 1)
	for len(p.calls) < 50 {
		if err := l.Turn(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if late > 25 {
		t.Errorf("%d of 50 rests were more than 10 ms too long", late)
	}
	if s := l.Stats(); s.Turns > 100 {
		t.Errorf("%d turns for 50 rests", s.Turns)
	}
}

func TestLoopAgainAtDoesNotAllocate(t *testing.T) {
	clock := &fakeClock{t: 1}
	l := newLoop(t, clock)
	p := &probe{calls: make([]call, 0, 4096)}
	a, _ := pair(t)
	tok := add(t, l, a, 0, p, 0)
	if n := testing.AllocsPerRun(1000, func() {
		l.AgainAt(tok, clock.t+1)
		clock.t++
		l.Turn(0)
	}); n != 0 {
		t.Errorf("%v allocations per rest", n)
	}
}

// WakeAt bounds the next sleep, and only that: the earliest wish counts, 0 is none.
func TestLoopWakeAt(t *testing.T) {
	clock := &fakeClock{t: 1000}
	l := newLoop(t, clock)
	for _, at := range []Time{9000, 5000, 0, 7000} {
		l.WakeAt(at)
	}
	if d := l.patience(-1); d != 4000 {
		t.Errorf("sleeps for %d ns, want 4000", d)
	}
	clock.t = 2000
	if err := l.Turn(0); err != nil {
		t.Fatal(err)
	}
	if d := l.patience(-1); d != -1 {
		t.Errorf("sleeps for %d ns afterwards, want for ever", d)
	}
}
