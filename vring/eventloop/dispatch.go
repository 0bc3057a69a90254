package eventloop

import (
	"fmt"
	"runtime/debug"
	"time"
)

// faultPeriod is how long a loop must run without a second fault to be trusted
// with the next.
const faultPeriod = Time(10 * time.Second)

// Fault is the error of a call into a Source, timer, letter or AfterTurn
// function that panicked or touched memory that is not there (a front-end may
// truncate the file behind guest memory at any time). The loop recovers it,
// takes the culprit off its hands and goes on; a second fault within ten seconds
// ends Run, since a process that keeps faulting should be restarted.
type Fault struct {
	Cookie uint32  // of the source or timer
	Value  any     // what was recovered
	Addr   uintptr // address of a memory fault, 0 for any other panic
	Stack  []byte
}

func (f *Fault) Error() string {
	if f.Addr != 0 {
		return fmt.Sprintf("eventloop: memory fault at %#x: %v", f.Addr, f.Value)
	}
	return fmt.Sprintf("eventloop: panic: %v", f.Value)
}

// phase is how far a turn has come.
type phase uint8

const (
	phaseEvents phase = iota
	phaseAgain
	phaseMail
	phaseTimers
	phaseAfter
	phaseDone
)

// dispatch goes on with the turn from (phase, pos) to its end. One recover
// serves the whole turn: position is advanced before each call, so the next
// dispatch resumes behind a call that did not return.
func (l *Loop) dispatch() {
	defer l.recovered()
	debug.SetPanicOnFault(true)
	if l.phase == phaseEvents {
		l.dispatchEvents()
		l.next(phaseAgain)
	}
	if l.phase == phaseAgain {
		l.dispatchAgain()
		l.mailed = len(l.mail)
		l.next(phaseMail)
	}
	if l.phase == phaseMail {
		for l.pos < l.mailed {
			l.pos++
			(<-l.mail)()
		}
		l.next(phaseTimers)
	}
	if l.phase == phaseTimers {
		l.timers.Advance(l.now)
		l.next(phaseAfter)
	}
	for l.pos < len(l.after) {
		l.pos++
		if f := l.after[l.pos-1].f; f != nil {
			f()
		}
	}
	l.next(phaseDone)
}

func (l *Loop) next(p phase) { l.phase, l.pos = p, 0 }

func (l *Loop) dispatchEvents() {
	for l.pos < l.fetched {
		ev := &l.events[l.pos]
		l.pos++
		t := ev.token()
		if t == 0 {
			// Before the mailbox is looked at: a letter that comes later writes again.
			clearFD(l.wakefd)
			l.waking.Store(false)
			continue
		}
		// What was fetched may have been removed, disarmed or narrowed since.
		sl := l.slot(t)
		if sl == nil || sl.ev == 0 {
			l.stats.Stale++
			continue
		}
		got := ev.events() & (sl.ev | HUP | Err)
		if got == 0 {
			l.stats.Stale++
			continue
		}
		l.stats.Events++
		l.running, l.cookie = sl.src, sl.cookie
		sl.src.Ready(sl.cookie, got)
	}
}

func (l *Loop) dispatchAgain() {
	for l.pos < len(l.turn) {
		sl := l.slot(l.turn[l.pos])
		l.pos++
		if sl == nil {
			l.stats.Stale++
			continue
		}
		sl.again = false
		l.stats.Agains++
		l.running, l.cookie = sl.src, sl.cookie
		sl.src.Ready(sl.cookie, Again)
	}
}

// recovered turns a panic in dispatch into a Fault and deals with the culprit.
func (l *Loop) recovered() {
	v := recover()
	if v == nil {
		return
	}
	f := &Fault{Value: v, Stack: debug.Stack()}
	if e, ok := v.(interface{ Addr() uintptr }); ok {
		f.Addr = e.Addr()
	}
	l.stats.Panics++
	if l.faulted && l.now-l.lastFault < faultPeriod {
		l.fatal = f
	}
	l.faulted, l.lastFault = true, l.now
	if b := l.expel(f); b != nil {
		l.breakSafely(b, f)
	}
}

// expel takes whoever was being called out of the loop, and returns whom to tell.
// The culprit may have removed itself, or freed its timer, before it fell.
func (l *Loop) expel(f *Fault) Breaker {
	var who any
	switch l.phase {
	case phaseEvents:
		who, f.Cookie = l.running, l.cookie
		l.Remove(l.events[l.pos-1].token())
	case phaseAgain:
		who, f.Cookie = l.running, l.cookie
		l.Remove(l.turn[l.pos-1])
	case phaseTimers:
		who, f.Cookie = l.timers.firing, l.timers.firingCookie
	case phaseAfter:
		h := &l.after[l.pos-1]
		who = h.b
		h.f = nil
	}
	b, _ := who.(Breaker)
	return b
}

// breakSafely tells b. A Break that itself panics is a second fault.
func (l *Loop) breakSafely(b Breaker, f *Fault) {
	defer func() {
		if v := recover(); v != nil {
			l.stats.Panics++
			l.fatal = &Fault{Cookie: f.Cookie, Value: v, Stack: debug.Stack()}
		}
	}()
	b.Break(f)
}
