package eventloop

// maxLate is how many registrations may wait in AgainAt at a time. The list is
// walked every turn.
const maxLate = 64

// late is a call that AgainAt was asked for.
type late struct {
	token Token
	at    Time
}

// AgainAt has the source's Ready(cookie, Again) called in the first turn that
// begins at or after the given time, which the loop wakes for as precisely as
// the kernel can. It is for rests of some tens of microseconds between two
// batches, for which the wheel is too coarse. The last call for a registration
// counts. It reports false when too many rest already; the caller then goes on
// without.
func (l *Loop) AgainAt(t Token, at Time) bool {
	if l.slot(t) == nil {
		return false
	}
	for i := range l.late {
		if l.late[i].token == t {
			l.late[i].at = at
			return true
		}
	}
	if len(l.late) == maxLate {
		return false
	}
	l.late = append(l.late, late{t, at})
	return true
}

// WakeAt has the next turn begin at the given time at the latest, as precisely as
// AgainAt; 0 asks for nothing. It is for those who look every turn (AfterTurn)
// and counts for one turn only.
func (l *Loop) WakeAt(at Time) {
	if at != 0 && (l.wakeAt == 0 || at < l.wakeAt) {
		l.wakeAt = at
	}
}

// ripen turns the late calls that are due into calls of this turn.
func (l *Loop) ripen() {
	l.wakeAt = 0
	for i := 0; i < len(l.late); {
		if x := l.late[i]; x.at <= l.now {
			last := len(l.late) - 1
			l.late[i] = l.late[last]
			l.late = l.late[:last]
			l.Again(x.token)
			continue
		}
		i++
	}
}

// soonest is the time of the earliest late call or wish to be woken.
func (l *Loop) soonest() (at Time, ok bool) {
	at, ok = l.wakeAt, l.wakeAt != 0
	for i := range l.late {
		if x := l.late[i].at; !ok || x < at {
			at, ok = x, true
		}
	}
	return at, ok
}
