package eventloop

import "math/bits"

// Expirer is told when a timer has run out. The timer is stopped by then and
// may be set again.
type Expirer interface{ Expired(cookie uint32) }

// TimerID names a timer of one wheel; 0 is none, and everything that takes a
// TimerID ignores 0.
type TimerID uint32

const (
	tick      = 1_000_000 // ns
	levelBits = 6
	slots     = 1 << levelBits
	levels    = 7 // 64^7 ms = 139 years

	nLists    = levels * slots
	noList    = nLists     // a list that is always empty
	notListed = nLists     // timer.list of a stopped timer
	freeTimer = ^uint16(0) // timer.list of a timer that was given back
	farthest  = 1<<42 - 1  // latest tick that can be set
	work      = 512        // timers moved or called per Advance
)

// Wheel is a hierarchical timing wheel: 7 levels of 64 slots, the lowest of 1 ms
// each, every other of the span of the whole level below. A timer is put at the
// level of the highest base-64 digit in which its tick differs from the present
// one, and moves down when time reaches its slot: arming and stopping are O(1),
// and a timer moves at most six times.
//
// A timer never runs early; it runs up to 1 ms late, later if the loop is late.
// One Advance moves or calls a bounded number of timers (512); after a long gap
// the rest follow in the next ones, and Next says that there is more to do, so
// that descriptors are looked at in between.
//
// A Wheel needs no Loop; whoever owns it calls Advance.
type Wheel struct {
	base   Time // tick 0
	now    Time
	cur    uint64 // tick that has been reached
	lists  [nLists + 1]list
	filled [levels]uint64 // bit per slot that holds a timer
	open   int            // list that cur has reached and that is being emptied, or noList
	timers []timer        // [0] is unused
	free   uint32         // chain of given back timers, by next
	armed  int
	runs   uint64

	firing       Expirer // whose Expired runs, for the guard of the loop
	firingCookie uint32
}

// list is doubly linked through timer.prev and timer.next, 0 at both ends.
type list struct{ head, tail uint32 }

type timer struct {
	e          Expirer
	at         uint64 // tick
	prev, next uint32
	cookie     uint32
	list       uint16
}

// NewWheel returns a wheel whose time is now.
func NewWheel(now Time) *Wheel {
	return &Wheel{base: now, now: now, open: noList, timers: make([]timer, 1, 16)}
}

// New makes a stopped timer that will call e.Expired(cookie).
func (w *Wheel) New(e Expirer, cookie uint32) TimerID {
	id := w.free
	if id != 0 {
		w.free = w.timers[id].next
	} else {
		id = uint32(len(w.timers))
		w.timers = append(w.timers, timer{})
	}
	w.timers[id] = timer{e: e, cookie: cookie, list: notListed}
	return TimerID(id)
}

// Set arms the timer, or arms it anew, for the absolute time at. A time that has
// passed counts as the next tick, so that a timer that re-arms itself for "now"
// cannot keep Advance, or the loop, from other work.
func (w *Wheel) Set(id TimerID, at Time) {
	if id == 0 {
		return
	}
	w.unlink(uint32(id))
	t := &w.timers[id]
	t.at = w.cur + 1
	if d := at - w.base; d > 0 {
		t.at = min(max(t.at, (uint64(d)+tick-1)/tick), farthest)
	}
	w.place(uint32(id))
}

// Stop disarms the timer. Stopping a stopped timer does nothing.
func (w *Wheel) Stop(id TimerID) {
	if id != 0 {
		w.unlink(uint32(id))
	}
}

// Free stops the timer and gives it back; id may be handed out again by New.
func (w *Wheel) Free(id TimerID) {
	if id == 0 || w.timers[id].list == freeTimer {
		return
	}
	w.unlink(uint32(id))
	w.timers[id] = timer{next: w.free, list: freeTimer}
	w.free = uint32(id)
}

// Armed says whether the timer will call.
func (w *Wheel) Armed(id TimerID) bool { return id != 0 && w.timers[id].list < nLists }

// Now returns the time of the last Advance.
func (w *Wheel) Now() Time { return w.now }

// Len returns the number of armed timers.
func (w *Wheel) Len() int { return w.armed }

// Runs returns how many timers have expired so far.
func (w *Wheel) Runs() uint64 { return w.runs }

// Next returns when Advance will have something to do: the time of the earliest
// timer, or earlier (when a slot of a higher level is reached and its timers
// must be sorted anew). It reports false when no timer is armed.
func (w *Wheel) Next() (Time, bool) {
	if w.lists[w.open].head != 0 {
		return w.now, true
	}
	at, _, ok := w.nextSlot()
	return w.base + Time(at)*tick, ok
}

// nextSlot finds the first slot that holds timers: the tick at which it begins,
// and its list. The timers of a level are all later than those of the levels
// below, since they differ from cur in a higher digit.
func (w *Wheel) nextSlot() (at uint64, l int, ok bool) {
	for level, bitmap := range w.filled {
		if bitmap == 0 {
			continue
		}
		slot := bits.TrailingZeros64(bitmap)
		shift := uint(level * levelBits)
		at = w.cur>>(shift+levelBits)<<(shift+levelBits) | uint64(slot)<<shift
		return at, level*slots + slot, true
	}
	return 0, 0, false
}

// Advance moves time on to now and calls the timers that have expired, earliest
// first and in the order they were set within one tick. Expired may set, stop,
// make and free any timer.
func (w *Wheel) Advance(now Time) {
	w.now = max(w.now, now)
	target := uint64(w.now-w.base) / tick
	for range work {
		// Nothing is added to the open list while it is emptied: a timer is set
		// for a tick after cur, which puts it into another slot.
		if w.lists[w.open].head == 0 {
			at, l, ok := w.nextSlot()
			if !ok || at > target {
				w.cur, w.open = max(w.cur, target), noList
				return
			}
			w.cur, w.open = at, l
		}
		id := w.lists[w.open].head
		w.unlink(id)
		if w.open >= slots {
			w.place(id)
			continue
		}
		w.runs++
		w.firing, w.firingCookie = w.timers[id].e, w.timers[id].cookie
		w.firing.Expired(w.firingCookie)
	}
}

// place links an unlinked timer where its tick belongs.
func (w *Wheel) place(id uint32) {
	t := &w.timers[id]
	level := 0
	if d := t.at ^ w.cur; d != 0 {
		level = (bits.Len64(d) - 1) / levelBits
	}
	slot := int(t.at>>(level*levelBits)) % slots
	w.filled[level] |= 1 << slot
	l := level*slots + slot
	t.list = uint16(l)
	t.prev, t.next = w.lists[l].tail, 0
	if t.prev != 0 {
		w.timers[t.prev].next = id
	} else {
		w.lists[l].head = id
	}
	w.lists[l].tail = id
	w.armed++
}

// unlink takes a timer out of its list, if it is in one.
func (w *Wheel) unlink(id uint32) {
	t := &w.timers[id]
	if t.list >= nLists {
		return
	}
	l := &w.lists[t.list]
	if t.prev != 0 {
		w.timers[t.prev].next = t.next
	} else {
		l.head = t.next
	}
	if t.next != 0 {
		w.timers[t.next].prev = t.prev
	} else {
		l.tail = t.prev
	}
	if l.head == 0 {
		w.filled[t.list/slots] &^= 1 << (t.list % slots)
	}
	t.list = notListed
	w.armed--
}
