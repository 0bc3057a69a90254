package eventloop

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	ErrFull    = errors.New("eventloop: mailbox full")
	ErrStopped = errors.New("eventloop: stopped")
	ErrStale   = errors.New("eventloop: stale token")
)

const (
	batch   = 128 // events fetched per turn
	mailbox = 64  // functions waiting in Do
	maxFDs  = 1<<31 - 1

	timerSlack = 1000 // ns by which the kernel may let a sleep be longer
)

// Token names a registration: generation<<32 | slot. The zero Token is never
// valid.
type Token uint64

// slot is one registration. Its generation changes when the slot is freed, so a
// token, or an event fetched earlier in the same turn, does not reach whoever
// has the slot next.
type slot struct {
	src      Source // nil in a free slot
	ev       Events // waited for; 0: not in the epoll set
	fd       int32
	cookie   uint32
	gen      uint32
	nextFree uint32
	again    bool // in the list of Again
}

// Loop is one epoll loop with its timers. Everything but Do and Stop is called
// on the goroutine that runs it.
type Loop struct {
	clock  Clock
	now    Time
	timers *Wheel
	slots  []slot // [0] is never used
	free   uint32 // chain of free slots, by nextFree

	epfd    int
	wakefd  int // eventfd, registered as the zero token
	pwait2  bool
	brisk   bool // sleeps have been short
	timeout unix.Timespec
	events  [batch]epollEvent
	fetched int // events in this turn's batch
	again   []Token
	turn    []Token // Again calls of this turn, double buffer with again
	late    []late  // AgainAt calls that are not due
	wakeAt  Time    // when the next turn is to begin at the latest, 0: whenever
	after   []hook
	linger  linger

	phase  phase // progress of this turn, so that a fault resumes behind the culprit
	pos    int
	mail   chan func()
	mailed int // letters to open this turn

	running Source // whose Ready runs, for the guard
	cookie  uint32

	lastFault Time
	faulted   bool
	fatal     error
	stats     LoopStats

	waking  atomic.Bool  // wakefd has been written and not been read yet
	stopped atomic.Bool  // Stop was called
	closed  atomic.Bool  // Close was called
	calling atomic.Int32 // goroutines inside wake
}

type hook struct {
	f func()
	b Breaker
}

// LoopStats counts what a loop has done.
type LoopStats struct {
	Turns  uint64 // turns run
	Waits  uint64 // turns that could sleep
	Events uint64 // events delivered to sources
	Agains uint64 // calls that Again asked for
	Stale  uint64 // events and Agains dropped because their registration was gone
	Panics uint64 // panics and memory faults recovered
}

// New makes a loop. The caller owns it and calls Close in the end.
func New(clock Clock) (*Loop, error) {
	now := clock.Now()
	l := &Loop{clock: clock, now: now, timers: NewWheel(now), pwait2: true,
		slots: make([]slot, 1, 16), late: make([]late, 0, maxLate), mail: make(chan func(), mailbox)}
	var e syscall.Errno
	if l.epfd, e = epollCreate(); e != 0 {
		return nil, fmt.Errorf("eventloop: epoll_create1: %w", e)
	}
	if l.wakefd, e = eventfd(); e != 0 {
		closeFD(l.epfd)
		return nil, fmt.Errorf("eventloop: eventfd2: %w", e)
	}
	if e = epollCtl(l.epfd, ctlAdd, l.wakefd, In, 0); e != 0 {
		closeFD(l.wakefd)
		closeFD(l.epfd)
		return nil, fmt.Errorf("eventloop: epoll_ctl: %w", e)
	}
	return l, nil
}

// Close gives the loop's own descriptors back. Those that were added stay open.
func (l *Loop) Close() {
	l.stopped.Store(true)
	if l.closed.Swap(true) {
		return
	}
	// A goroutine inside wake may be about to write to wakefd, whose number must
	// not belong to somebody else by then. It leaves within a few instructions.
	for l.calling.Load() != 0 {
		runtime.Gosched()
	}
	closeFD(l.wakefd)
	closeFD(l.epfd)
}

// Timers returns the loop's wheel.
func (l *Loop) Timers() *Wheel { return l.timers }

// Now returns the time of this turn, read once after the wait.
func (l *Loop) Now() Time { return l.now }

// Stats returns the counters.
func (l *Loop) Stats() LoopStats { return l.stats }

// Add registers fd: s.Ready(cookie, ...) is called when one of ev, HUP or Err
// holds. A descriptor that epoll does not take (a regular file) is refused with
// EPERM, one that is registered already with EEXIST. With ev == 0 the
// registration is made disarmed.
func (l *Loop) Add(fd int, ev Events, s Source, cookie uint32) (Token, error) {
	if fd < 0 || fd > maxFDs {
		return 0, syscall.EBADF
	}
	i := l.takeSlot()
	sl := &l.slots[i]
	t := Token(sl.gen)<<32 | Token(i)
	// The kernel judges fd even when it is to be disarmed at once.
	if e := epollCtl(l.epfd, ctlAdd, fd, ev, t); e != 0 {
		l.freeSlot(i)
		return 0, e
	}
	if ev == 0 {
		epollCtl(l.epfd, ctlDel, fd, 0, 0)
	}
	sl.src, sl.fd, sl.cookie, sl.ev = s, int32(fd), cookie, ev
	return t, nil
}

// Modify changes the events waited for. With ev == 0 the source is disarmed
// entirely: not even HUP and Err, which epoll would go on to report, reach it,
// so a source that can do nothing does not keep the loop awake. With Edge, a
// condition that holds already is reported anew.
func (l *Loop) Modify(t Token, ev Events) error {
	sl := l.slot(t)
	if sl == nil {
		return ErrStale
	}
	op := ctlMod
	switch {
	case ev == 0 && sl.ev == 0:
		return nil
	case ev == 0:
		op = ctlDel
	case sl.ev == 0:
		op = ctlAdd
	}
	if e := epollCtl(l.epfd, op, int(sl.fd), ev, t); e != 0 {
		return e
	}
	sl.ev = ev
	return nil
}

// Remove ends a registration. It must be called before the descriptor is closed:
// epoll watches open files, not numbers, and another number for the same file
// would keep the old registration alive. A stale token is ignored.
func (l *Loop) Remove(t Token) {
	sl := l.slot(t)
	if sl == nil {
		return
	}
	if sl.ev != 0 {
		epollCtl(l.epfd, ctlDel, int(sl.fd), 0, 0)
	}
	l.freeSlot(uint32(t))
}

// Again has the source's Ready(cookie, Again) called in the next turn, behind
// the events of that turn, which will not sleep. Several calls count as one.
func (l *Loop) Again(t Token) {
	if sl := l.slot(t); sl != nil && !sl.again {
		sl.again = true
		l.again = append(l.again, t)
	}
}

// AfterTurn registers f to run at the end of every turn, behind those registered
// before it. For set-up time. When f panics it is the loop's fault alone; a
// device uses AfterTurnOf.
func (l *Loop) AfterTurn(f func()) { l.AfterTurnOf(nil, f) }

// AfterTurnOf is AfterTurn with somebody to tell: when f panics or faults it is
// not called any more, and b.Break is. The owner may register anew.
func (l *Loop) AfterTurnOf(b Breaker, f func()) { l.after = append(l.after, hook{f, b}) }

// slot returns the registration of t, nil when it is gone.
func (l *Loop) slot(t Token) *slot {
	i := uint32(t)
	if int(i) >= len(l.slots) {
		return nil
	}
	if sl := &l.slots[i]; sl.src != nil && sl.gen == uint32(t>>32) {
		return sl
	}
	return nil
}

func (l *Loop) takeSlot() uint32 {
	if i := l.free; i != 0 {
		l.free = l.slots[i].nextFree
		return i
	}
	l.slots = append(l.slots, slot{gen: 1})
	// Again must not allocate later: keep room for every slot in both lists.
	if n := cap(l.slots); cap(l.again) < n {
		l.again = append(make([]Token, 0, n), l.again...)
	}
	return uint32(len(l.slots) - 1)
}

func (l *Loop) freeSlot(i uint32) {
	l.slots[i] = slot{gen: max(l.slots[i].gen+1, 1), nextFree: l.free}
	l.free = i
}

// Run turns until Stop. It returns nil after Stop, and the last fault when
// sources fault again and again (see Fault).
func (l *Loop) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Sleeps end up to 50 us late unless the thread asks for better; AgainAt is
	// for rests that are about as long. What this cannot change stays coarse.
	unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	for !l.stopped.Load() {
		if err := l.Turn(-1); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends Run after the turn that is under way. Any goroutine may call it.
func (l *Loop) Stop() {
	l.stopped.Store(true)
	l.wake()
}

// Do has f run on the loop. Any goroutine may call it. When it returns an error
// f will not run; when the loop stops before f's turn f does not run either.
func (l *Loop) Do(f func()) error {
	if l.stopped.Load() {
		return ErrStopped
	}
	select {
	case l.mail <- f:
	default:
		return ErrFull
	}
	l.wake()
	return nil
}

// wake makes the present or next wait return.
func (l *Loop) wake() {
	l.calling.Add(1)
	if !l.closed.Load() && !l.waking.Swap(true) {
		signal(l.wakefd)
	}
	l.calling.Add(-1)
}

// Turn runs one turn: wait at most maxWait (for ever if negative), then events,
// Again calls, mailbox, timers, AfterTurn functions, in this order. It returns
// an error only when the loop should not go on.
func (l *Loop) Turn(maxWait time.Duration) error {
	if l.fatal != nil {
		return l.fatal
	}
	n, e := l.wait(l.patience(maxWait))
	if e != 0 {
		return fmt.Errorf("eventloop: epoll_pwait: %w", e)
	}
	l.now = l.clock.Now()
	l.stats.Turns++
	l.fetched = n
	l.ripen()
	l.turn, l.again = l.again, l.turn[:0]
	if cap(l.again) < cap(l.slots) {
		l.again = make([]Token, 0, cap(l.slots))
	}
	for l.phase, l.pos = phaseEvents, 0; l.phase != phaseDone; {
		l.dispatch()
	}
	return l.fatal
}

// patience says how long this turn may sleep: not at all while something waits
// to be done, else until the next timer or late call.
func (l *Loop) patience(maxWait time.Duration) time.Duration {
	if len(l.again) != 0 || len(l.mail) != 0 || l.Lingers() || l.stopped.Load() {
		return 0
	}
	at, ok := l.timers.Next()
	if soon, any := l.soonest(); any && (!ok || soon < at) {
		at, ok = soon, true
	}
	if ok {
		d := max(time.Duration(at-l.clock.Now()), 0)
		if maxWait < 0 || d < maxWait {
			return d
		}
	}
	return maxWait
}
