package eventloop

import (
	"errors"
	"time"
)

var (
	ErrFull    = errors.New("eventloop: mailbox full")
	ErrStopped = errors.New("eventloop: stopped")
)

// Loop is one epoll loop.
type Loop struct {
	clock  Clock
	now    Time
	timers *Wheel
}

// LoopStats counts what a loop has done.
type LoopStats struct {
	Turns  uint64 // turns run
	Waits  uint64 // turns that could sleep
	Events uint64 // events delivered to sources
	Stale  uint64 // events dropped because their registration was gone
	Panics uint64 // panics and memory faults recovered
}

// New makes a loop.
func New(clock Clock) (*Loop, error) {
	now := clock.Now()
	return &Loop{clock: clock, now: now, timers: NewWheel(now)}, nil
}

// Add registers fd.
func (l *Loop) Add(fd int, ev Events, s Source, cookie uint32) (Token, error) { return 0, ErrFull }

// Modify changes what is waited for.
func (l *Loop) Modify(t Token, ev Events) error { return nil }

// Remove unregisters; to be called before the descriptor is closed.
func (l *Loop) Remove(t Token) {}

// Again has Ready(cookie, Again) called in the next turn.
func (l *Loop) Again(t Token) {}

// AfterTurn registers f to run after every turn.
func (l *Loop) AfterTurn(f func()) {}

// Timers returns the loop's wheel.
func (l *Loop) Timers() *Wheel { return l.timers }

// Now returns the time of this turn.
func (l *Loop) Now() Time { return l.now }

// Do runs f on the loop. Callable from any goroutine.
func (l *Loop) Do(f func()) error { return ErrStopped }

// Run turns until Stop.
func (l *Loop) Run() error { return nil }

// Stop ends Run. Callable from any goroutine.
func (l *Loop) Stop() {}

// Turn runs one turn.
func (l *Loop) Turn(maxWait time.Duration) error { return nil }

// Close releases the loop's descriptors.
func (l *Loop) Close() {}

// Stats returns the counters.
func (l *Loop) Stats() LoopStats { return LoopStats{} }
