package eventloop

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type fakeClock struct{ t Time }

func (c *fakeClock) Now() Time { return c.t }

// call is one Ready that a probe has seen.
type call struct {
	cookie uint32
	ev     Events
}

type probe struct {
	calls []call
	do    func(cookie uint32, ev Events)
}

func (p *probe) Ready(cookie uint32, ev Events) {
	p.calls = append(p.calls, call{cookie, ev})
	if p.do != nil {
		p.do(cookie, ev)
	}
}

func newLoop(t testing.TB, c Clock) *Loop {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// turn runs one turn that does not sleep.
func turn(t testing.TB, l *Loop) {
	t.Helper()
	if err := l.Turn(0); err != nil {
		t.Fatal(err)
	}
}

func pair(t testing.TB) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func add(t testing.TB, l *Loop, fd int, ev Events, s Source, cookie uint32) Token {
	t.Helper()
	tok, err := l.Add(fd, ev, s, cookie)
	if err != nil {
		t.Fatal(err)
	}
	if tok == 0 {
		t.Fatal("Add returned the zero token")
	}
	return tok
}

func TestLoopLevelAndEdge(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	p := &probe{}
	a, b := pair(t)
	tok := add(t, l, a, In, p, 7)
	turn(t, l)
	if len(p.calls) != 0 {
		t.Fatalf("%v without input", p.calls)
	}
	unix.Write(b, []byte("x"))
	turn(t, l)
	turn(t, l)
	if want := []call{{7, In}, {7, In}}; !slices.Equal(p.calls, want) {
		t.Fatalf("level: %v, want %v", p.calls, want)
	}
	p.calls = nil
	if err := l.Modify(tok, In|Edge); err != nil {
		t.Fatal(err)
	}
	turn(t, l) // re-arming reports what holds
	turn(t, l)
	unix.Write(b, []byte("y"))
	turn(t, l)
	turn(t, l)
	if want := []call{{7, In}, {7, In}}; !slices.Equal(p.calls, want) {
		t.Fatalf("edge: %v, want %v", p.calls, want)
	}
	l.Remove(tok)
	unix.Write(b, []byte("z"))
	turn(t, l)
	if len(p.calls) != 2 {
		t.Fatal("called after Remove")
	}
	if err := l.Modify(tok, In); err != ErrStale {
		t.Errorf("Modify of a stale token: %v", err)
	}
	l.Remove(tok) // no-op
	l.Again(tok)
	turn(t, l)
	if len(p.calls) != 2 {
		t.Fatal("Again of a stale token called")
	}
}

func TestLoopRefusesWhatEpollRefuses(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	p := &probe{}
	file, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	a, _ := pair(t)
	add(t, l, a, In, p, 0)
	for _, c := range []struct {
		name string
		fd   int
		ev   Events
		want error
	}{
		{"regular file", file, In, syscall.EPERM},
		{"regular file, disarmed", file, 0, syscall.EPERM},
		{"closed", 1 << 20, In, syscall.EBADF},
		{"negative", -1, In, syscall.EBADF},
		{"twice", a, In, syscall.EEXIST},
	} {
		if _, err := l.Add(c.fd, c.ev, p, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if got := len(l.slots); got > 3 {
		t.Errorf("%d slots: refused Adds leak", got)
	}
}

// A source that can do nothing must be able to fall silent, even when its peer
// has gone (EPOLLHUP cannot be masked).
func TestLoopDisarmedIsSilent(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	p := &probe{}
	a, b := pair(t)
	tok := add(t, l, a, In, p, 1)
	unix.Shutdown(b, unix.SHUT_RDWR)
	turn(t, l)
	if len(p.calls) != 1 || p.calls[0].ev&HUP == 0 {
		t.Fatalf("%v, want HUP", p.calls)
	}
	if err := l.Modify(tok, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Modify(tok, 0); err != nil {
		t.Fatal(err)
	}
	turn(t, l)
	if len(p.calls) != 1 {
		t.Fatal("disarmed source was called")
	}
	if err := l.Modify(tok, Err); err != nil {
		t.Fatal(err)
	}
	turn(t, l)
	if len(p.calls) != 2 {
		t.Fatal("re-armed source was not called")
	}
	tok2 := add(t, l, b, 0, p, 2)
	turn(t, l)
	l.Again(tok2)
	turn(t, l)
	if got := p.calls[len(p.calls)-1]; got != (call{2, Again}) {
		t.Errorf("Again of a disarmed source: %v", got)
	}
}

// S2: both descriptors of one batch are ready; the first source closes the
// second's and registers a new one, which gets the same number and slot.
func TestLoopStaleGenerationInOneBatch(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	var fds, toks = [2]int{}, [2]Token{}
	peers := [2]int{}
	for i := range fds {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i], peers[i] = p[0], p[1]
	}
	newcomer := &probe{}
	p := &probe{}
	p.do = func(c uint32, _ Events) {
		other := 1 - c
		l.Remove(toks[other])
		unix.Close(fds[other])
		q, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if q[0] != fds[other] {
			t.Fatalf("number %d was not reused (got %d)", fds[other], q[0])
		}
		n := add(t, l, q[0], In, newcomer, 99)
		if uint32(n) != uint32(toks[other]) {
			t.Fatal("slot was not reused")
		}
		t.Cleanup(func() { unix.Close(q[0]); unix.Close(q[1]) })
	}
	for i := range fds {
		toks[i] = add(t, l, fds[i], In, p, uint32(i))
		unix.Write(peers[i], []byte("x"))
	}
	turn(t, l)
	if len(p.calls) != 1 || len(newcomer.calls) != 0 {
		t.Fatalf("old source called %d times, new one %d; want 1 and 0", len(p.calls), len(newcomer.calls))
	}
	if s := l.Stats(); s.Stale != 1 {
		t.Errorf("%d stale events, want 1", s.Stale)
	}
}

// An event that was fetched for conditions no longer asked for is not delivered.
func TestLoopModifyWithinBatch(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	p := &probe{}
	a, b := pair(t)
	var toks [2]Token
	p.do = func(c uint32, _ Events) { l.Modify(toks[1-c], 0) }
	toks[0] = add(t, l, a, Out, p, 0)
	toks[1] = add(t, l, b, Out, p, 1)
	turn(t, l)
	if len(p.calls) != 1 {
		t.Errorf("%v, want one call", p.calls)
	}
	// Narrowed instead of disarmed: both are readable and writable when fetched.
	unix.Write(a, []byte("x"))
	unix.Write(b, []byte("x"))
	p.calls = nil
	p.do = func(c uint32, _ Events) { p.do = nil; l.Modify(toks[1-c], In) }
	l.Modify(toks[0], In|Out)
	l.Modify(toks[1], In|Out)
	turn(t, l)
	if len(p.calls) != 2 || p.calls[0].ev != In|Out || p.calls[1].ev != In {
		t.Errorf("%v, want In|Out, then In alone", p.calls)
	}
}

func TestLoopOrderOfATurn(t *testing.T) {
	c := &fakeClock{}
	l := newLoop(t, c)
	var got []string
	log := func(s string) { got = append(got, s) }
	a, b := pair(t)
	p := &probe{do: func(_ uint32, ev Events) {
		if ev == Again {
			log("again")
		} else {
			log("event")
		}
	}}
	tok := add(t, l, a, In, p, 0)
	unix.Write(b, []byte("x"))
	l.AfterTurn(func() { log("after 1") })
	l.AfterTurn(func() { log("after 2") })
	l.Timers().Set(l.Timers().New(expirer(func() {
		log("timer")
		l.Again(tok)
		l.Again(tok)
	}), 0), 5*ms)
	if err := l.Do(func() { log("letter") }); err != nil {
		t.Fatal(err)
	}
	l.Again(tok)
	c.t = 6 * ms
	turn(t, l)
	want := []string{"event", "again", "letter", "timer", "after 1", "after 2"}
	if !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	got = nil
	if d := l.patience(-1); d != 0 {
		t.Errorf("the loop would sleep %v with an Again waiting", d)
	}
	turn(t, l)
	if want = []string{"event", "again", "after 1", "after 2"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

type expirer func()

func (f expirer) Expired(uint32) { f() }

// Again called while an Again is delivered comes in the next turn, not in this.
func TestLoopAgainInsideAgain(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	p := &probe{}
	a, _ := pair(t)
	tok := add(t, l, a, 0, p, 3)
	p.do = func(uint32, Events) { l.Again(tok) }
	l.Again(tok)
	for i := range 5 {
		turn(t, l)
		if len(p.calls) != i+1 {
			t.Fatalf("turn %d: %d calls", i, len(p.calls))
		}
	}
}

func TestLoopMailbox(t *testing.T) {
	l := newLoop(t, &fakeClock{})
	n := 0
	for range mailbox {
		if err := l.Do(func() { n++ }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Do(func() {}); err != ErrFull {
		t.Errorf("full mailbox: %v", err)
	}
	turn(t, l)
	if n != mailbox {
		t.Errorf("%d letters opened, want %d", n, mailbox)
	}
	// A letter that writes letters: they wait for the next turn.
	var again func()
	again = func() { n++; l.Do(again) }
	n = 0
	l.Do(again)
	turn(t, l)
	if n != 1 {
		t.Errorf("%d letters in one turn", n)
	}
	l.Stop()
	if err := l.Do(func() {}); err != ErrStopped {
		t.Errorf("stopped: %v", err)
	}
}

func TestLoopRunStopFromElsewhere(t *testing.T) {
	l := newLoop(t, NewClock())
	done := make(chan error)
	go func() { done <- l.Run() }()
	ran := make(chan bool)
	if err := l.Do(func() { close(ran) }); err != nil {
		t.Fatal(err)
	}
	<-ran
	time.Sleep(5 * time.Millisecond) // asleep in the wait
	l.Stop()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run did not return")
	}
}

func TestLoopCloseRacesWithDo(t *testing.T) {
	for range 20 {
		l, err := New(NewClock())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for l.Do(func() {}) != ErrStopped {
					runtime.Gosched()
				}
			})
		}
		wg.Go(func() { l.Run(); l.Close() })
		time.Sleep(time.Millisecond)
		l.Stop()
		wg.Wait()
		l.Close() // twice is harmless
	}
}

// Waiting must be waiting: few waits, none of them early enough to need another.
func TestLoopSleepsUntilTheTimer(t *testing.T) {
	for _, pwait2 := range []bool{true, false} {
		l := newLoop(t, NewClock())
		l.pwait2 = pwait2
		fired := 0
		var id TimerID
		var due Time
		id = l.Timers().New(expirer(func() {
			if l.Now() < due {
				t.Errorf("early by %v", time.Duration(due-l.Now()))
			}
			if fired++; fired < 20 {
				due = l.Now() + 2500_000
				l.Timers().Set(id, due)
			}
		}), 0)
		due = l.clock.Now() + 2500_000
		l.Timers().Set(id, due)
		for fired < 20 {
			if err := l.Turn(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		// One wait per timer; a signal of the runtime may add a few.
		if s := l.Stats(); s.Turns > 30 {
			t.Errorf("pwait2 %v: %d turns for 20 timers", pwait2, s.Turns)
		}
	}
}

// EINTR: Go preempts long-running threads with SIGURG, and a raw wait feels it.
func TestLoopSurvivesSignals(t *testing.T) {
	l := newLoop(t, NewClock())
	var tid atomic.Int32
	done := make(chan error)
	l.Timers().Set(l.Timers().New(expirer(l.Stop), 0), l.clock.Now()+30*ms)
	l.Do(func() { tid.Store(int32(unix.Gettid())) })
	go func() { done <- l.Run() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
			if id := tid.Load(); id != 0 {
				unix.Tgkill(unix.Getpid(), int(id), unix.SIGURG)
			}
		}
	}
}

func TestLoopTurnDoesNotAllocate(t *testing.T) {
	c := &fakeClock{}
	l := newLoop(t, c)
	a, b := pair(t)
	cnt := &counter{}
	tok := add(t, l, a, In, cnt, 0)
	unix.Write(b, []byte("x"))
	id := l.Timers().New(cnt, 0)
	l.AfterTurn(func() {})
	letter := func() {}
	if n := testing.AllocsPerRun(200, func() {
		l.Again(tok)
		l.Timers().Set(id, c.t+ms)
		c.t += 2 * ms
		l.Do(letter)
		if l.Turn(time.Millisecond) != nil {
			t.Fatal("turn failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations per turn", n)
	}
	if cnt.n < 3*200 {
		t.Errorf("%d calls", cnt.n)
	}
}

func BenchmarkTurnIdle(b *testing.B) {
	l := newLoop(b, NewClock())
	for b.Loop() {
		l.Turn(0)
	}
}

func BenchmarkTurnOneEvent(b *testing.B) {
	l := newLoop(b, NewClock())
	x, y := pair(b)
	add(b, l, x, In, &counter{}, 0)
	unix.Write(y, []byte("x"))
	for b.Loop() {
		l.Turn(-1)
	}
}

func BenchmarkTurn100Events(b *testing.B) {
	l := newLoop(b, NewClock())
	for range 100 {
		x, _ := pair(b)
		add(b, l, x, Out, &counter{}, 0)
	}
	for b.Loop() {
		l.Turn(-1)
	}
}

func BenchmarkClock(b *testing.B) {
	c := NewClock()
	for b.Loop() {
		c.Now()
	}
}
