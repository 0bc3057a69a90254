package eventloop

import (
	"testing"
	"time"
)

const us = Time(time.Microsecond)

// transactions works in turn for both ways, n times, the gaps alternating.
func transactions(s *linger, at Time, n, bytes int, gaps ...Time) Time {
	for i := range n {
		at += gaps[i%len(gaps)]
		s.worked(at, Way(i%2), bytes)
	}
	return at
}

// TestLingerHabit: the loop lingers when small amounts have been going to and
// fro, each within Poll.For of the other, and only for that long.
func TestLingerHabit(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		bytes int
		gaps  []Time
		want  bool
	}{
		{"nothing yet", 0, 0, []Time{us}, false},
		{"one request", 1, 100, []Time{us}, false},
		{"too few", 3, 100, []Time{150 * us}, true},
		{"quick", 20, 100, []Time{150 * us}, true},
		{"slow", 20, 100, []Time{300 * us}, false},
		{"the host quick, the guest not", 20, 100, []Time{150 * us, 300 * us}, true},
		{"one in three quick", 21, 100, []Time{150 * us, 300 * us, 300 * us}, false},
		{"now and then", 20, 100, []Time{2 * Time(time.Millisecond)}, false},
		{"large", 20, lingerBytes + 1, []Time{20 * us}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := linger{poll: PollAuto}
			now := transactions(&s, 1000*us, c.n, c.bytes, c.gaps...)
			if got := s.lingers(now + 10*us); got != c.want {
				t.Errorf("lingers: %v (score %d)", got, s.score)
			}
			if s.lingers(now + 200*us) {
				t.Error("lingers when the time is over")
			}
		})
	}
}

// TestLingerStream: work that goes one way is a stream, however small its pieces,
// and so is a reply of many pieces.
func TestLingerStream(t *testing.T) {
	s := linger{poll: PollAuto}
	now := transactions(&s, 1000*us, 20, 100, 20*us)
	for range 20 {
		now += 20 * us
		s.worked(now, FromGuest, 1400)
	}
	if s.lingers(now) {
		t.Error("lingers in a stream")
	}
	now = transactions(&s, now, 20, 100, 20*us)
	if !s.lingers(now) {
		t.Error("does not linger in transactions after it")
	}
}

// TestLingerModes: a fixed time, none, and always.
func TestLingerModes(t *testing.T) {
	for _, c := range []struct {
		name     string
		poll     Poll
		soon, at bool // 40 us, an hour after the only work
	}{
		{"off", Poll{}, false, false},
		{"auto", PollAuto, false, false},
		{"50us", Poll{For: 50 * time.Microsecond}, true, false},
		{"on", Poll{For: PollAlways}, true, true},
	} {
		l := &Loop{}
		l.SetPoll(c.poll)
		l.now = 1000 * us
		if l.Lingers() {
			t.Errorf("%s: lingers before there was any work", c.name)
		}
		l.Worked(FromGuest, 60)
		l.now += 40 * us
		if got := l.Lingers(); got != c.soon {
			t.Errorf("%s: lingers soon after: %v", c.name, got)
		}
		l.now += Time(time.Hour)
		if got := l.Lingers(); got != c.at {
			t.Errorf("%s: lingers long after: %v", c.name, got)
		}
		l.Rest()
		if l.Lingers() {
			t.Errorf("%s: lingers at rest", c.name)
		}
	}
}

// TestLingeringLoopDoesNotSleep, and one that does not linger does.
func TestLingeringLoopDoesNotSleep(t *testing.T) {
	clock := &fakeClock{t: 1000}
	l := newLoop(t, clock)
	l.SetPoll(Poll{For: 50 * time.Microsecond})
	l.Worked(ToGuest, 60)
	if d := l.patience(-1); d != 0 {
		t.Errorf("sleeps for %d ns after work", d)
	}
	clock.t += 60 * us
	if err := l.Turn(-1); err != nil { // reads the clock
		t.Fatal(err)
	}
	if d := l.patience(-1); d != -1 {
		t.Errorf("sleeps for %d ns when the time is over, want for ever", d)
	}
}

// TestPollMore: of two guests on a loop the more impatient one counts.
func TestPollMore(t *testing.T) {
	fixed, always := Poll{For: PollAuto.For}, Poll{For: PollAlways}
	for _, c := range []struct{ a, b, want Poll }{
		{Poll{}, PollAuto, PollAuto}, {PollAuto, Poll{}, PollAuto}, {PollAuto, fixed, fixed}, {fixed, PollAuto, fixed}, {always, fixed, always},
	} {
		if got := c.a.More(c.b); got != c.want {
			t.Errorf("%v.More(%v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
