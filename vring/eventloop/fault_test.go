package eventloop

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// device is a Source, Expirer and Breaker that fails on demand.
type device struct {
	fail    func()
	broken  []error
	onBreak func()
	calls   int
}

func (d *device) Ready(uint32, Events) { d.calls++; d.fail() }
func (d *device) Expired(uint32)       { d.calls++; d.fail() }
func (d *device) Break(err error) {
	d.broken = append(d.broken, err)
	if d.onBreak != nil {
		d.onBreak()
	}
}

// truncated returns memory whose file has been cut off below it: a load there
// is SIGBUS, as when a front-end truncates guest memory.
func truncated(t *testing.T) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 8192); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	return mem
}

// S6: every kind of failure, at every place that calls out, leaves the rest of
// the turn done and the loop alive.
func TestLoopRecoversOnce(t *testing.T) {
	mem := truncated(t)
	var nilMap map[int]int
	fails := map[string]struct {
		f      func()
		memory bool
	}{
		"panic":      {func() { panic("boom") }, false},
		"nil map":    {func() { nilMap[1] = 1 }, false},
		"SIGBUS":     {func() { mem[4096]++ }, true},
		"SIGBUS cpy": {func() { copy(mem[100:], mem[:64]) }, true},
	}
	places := []string{"event", "again", "timer", "after", "letter"}
	for name, fail := range fails {
		for _, place := range places {
			t.Run(name+" in "+place, func(t *testing.T) {
				c := &fakeClock{}
				l := newLoop(t, c)
				bad := &device{fail: fail.f}
				good := &counter{}
				a, b := pair(t)
				x, y := pair(t)
				var seen []string
				switch place {
				case "event":
					add(t, l, a, Out, bad, 5)
				case "again":
					l.Again(add(t, l, a, 0, bad, 5))
				case "timer":
					l.Timers().Set(l.Timers().New(bad, 5), ms)
				case "after":
					l.AfterTurnOf(bad, bad.fail)
				case "letter":
					l.Do(bad.fail)
				}
				add(t, l, b, Out, good, 0)
				add(t, l, y, Out, good, 0)
				l.Again(add(t, l, x, 0, good, 0))
				l.Do(func() { seen = append(seen, "letter") })
				l.Timers().Set(l.Timers().New(good, 0), ms)
				l.AfterTurn(func() { seen = append(seen, "after") })
				c.t = 2 * ms
				if err := l.Turn(0); err != nil {
					t.Fatalf("first fault ended the loop: %v", err)
				}
				if good.n != 4 || !slices.Equal(seen, []string{"letter", "after"}) {
					t.Errorf("rest of the turn: %d calls and %q", good.n, seen)
				}
				if l.Stats().Panics != 1 {
					t.Errorf("%d panics counted", l.Stats().Panics)
				}
				if place == "letter" {
					return // nobody to tell
				}
				var f *Fault
				if len(bad.broken) != 1 || !errors.As(bad.broken[0], &f) {
					t.Fatalf("Break got %v", bad.broken)
				}
				if place != "after" && f.Cookie != 5 {
					t.Errorf("cookie %d, want 5", f.Cookie)
				}
				if fail.memory != (f.Addr != 0) || len(f.Stack) == 0 || f.Error() == "" {
					t.Errorf("fault %+v", f)
				}
				calls := bad.calls
				c.t += 2 * ms
				turn(t, l)
				if bad.calls != calls {
					t.Error("culprit was called again")
				}
			})
		}
	}
}

func TestLoopSecondFaultEndsRun(t *testing.T) {
	for _, gap := range []time.Duration{0, 9 * time.Second, 11 * time.Second} {
		c := &fakeClock{}
		l := newLoop(t, c)
		a, b := pair(t)
		add(t, l, a, Out, &device{fail: func() { panic(1) }}, 0)
		turn(t, l)
		c.t += Time(gap)
		add(t, l, b, Out, &device{fail: func() { panic(2) }}, 0)
		err := l.Turn(0)
		if want := gap < 10*time.Second; (err != nil) != want {
			t.Errorf("second fault after %v: %v", gap, err)
		}
		if err != nil && l.Run() == nil {
			t.Error("Run goes on")
		}
	}
}

// A culprit that has removed itself, or freed its timer, is still told.
func TestLoopTellsWhoRemovedItself(t *testing.T) {
	c := &fakeClock{}
	l := newLoop(t, c)
	a, _ := pair(t)
	d := &device{}
	tok := add(t, l, a, Out, d, 3)
	d.fail = func() { l.Remove(tok); panic("after Remove") }
	turn(t, l)
	if len(d.broken) != 1 {
		t.Error("source was not told")
	}
	c.t += Time(time.Minute)
	e := &device{}
	id := l.Timers().New(e, 4)
	e.fail = func() { l.Timers().Free(id); panic("after Free") }
	l.Timers().Set(id, c.t)
	c.t += ms
	turn(t, l)
	if len(e.broken) != 1 {
		t.Error("expirer was not told")
	}
}

func TestLoopPanicInBreakIsFatal(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	a, b := pair(t)
	good := &counter{}
	add(t, l, a, Out, &device{fail: func() { panic(1) }, onBreak: func() { panic(2) }}, 0)
	add(t, l, b, Out, good, 0)
	if err := l.Turn(0); err == nil {
		t.Error("want an error")
	}
	if good.n != 1 {
		t.Error("the turn was not finished")
	}
}
