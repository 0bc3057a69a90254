package xdp

import (
	"context"
	"time"
)

// waitMillis is the longest that a loop sleeps before it looks whether to end.
const waitMillis = 100

// meter tells a loop when to go on, and others how it goes. It reads the clock
// once for a batch.
type meter struct {
	ctx              context.Context
	start, now, told time.Time
	end              time.Time // zero: none
	tell             func(Count)
}

func newMeter(ctx context.Context, d time.Duration, tell func(Count)) *meter {
	now := time.Now()
	m := &meter{ctx: ctx, start: now, now: now, told: now, tell: tell}
	if d > 0 {
		m.end = now.Add(d)
	}
	return m
}

// on says whether to go on.
func (m *meter) on(c Count) bool {
	m.now = time.Now()
	if m.tell != nil && m.now.Sub(m.told) >= time.Second {
		m.told = m.now
		m.tell(c)
	}
	return m.ctx.Err() == nil && (m.end.IsZero() || m.now.Before(m.end))
}

// due returns how many datagrams of a rate may go now, at most Batch. When none
// may it sleeps until one does.
func (m *meter) due(sent uint64, rate int) int {
	if rate == 0 {
		return Batch
	}
	if n := allowed(m.now.Sub(m.start), rate) - int64(sent); n > 0 {
		return int(min(n, Batch))
	}
	next := m.start.Add(time.Duration(float64(sent+1) / float64(rate) * float64(time.Second)))
	time.Sleep(min(next.Sub(m.now), waitMillis*time.Millisecond))
	return 0
}

// allowed is how many datagrams a rate allows within d.
func allowed(d time.Duration, rate int) int64 { return int64(d.Seconds() * float64(rate)) }
