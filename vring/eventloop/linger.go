package eventloop

import "time"

// Poll says how long a loop looks for more work, instead of sleeping, after a
// device has had some. The zero Poll always sleeps.
type Poll struct {
	For      time.Duration // after the last work; PollAlways: without end
	Adaptive bool          // only while work has been coming within that time
}

// PollAlways never sleeps while a device is up.
const PollAlways = time.Duration(1<<63 - 1)

// PollAuto is for transactions: a request, an answer that is not long in coming,
// the next request. 200 us is what KVM gives a halted processor, too, before it
// takes it away. Where nothing comes that soon it costs nothing.
var PollAuto = Poll{For: 200 * time.Microsecond, Adaptive: true}

// More returns the one of two that looks longer: guests may share a loop.
func (p Poll) More(o Poll) Poll {
	if o.For > p.For || o.For == p.For && p.Adaptive {
		return o
	}
	return p
}

// Way is the direction of work, as the guest sees it.
type Way uint8

const (
	FromGuest Way = iota
	ToGuest
)

const (
	lingerScore = 8       // the most that a habit counts
	lingerFrom  = 4       // and what it must count for the loop to linger
	lingerBytes = 8 << 10 // more than this in one direction is no request
	lingerIdle  = Time(time.Millisecond)
)

// linger is what is known of the habit of the work. A turn of direction is quick
// when it comes within Poll.For.
type linger struct {
	poll  Poll
	score int
	last  Time // when work was last done, 0: never
	way   Way
	bytes int // in that direction since the last turn of direction
}

// worked notes work.
func (s *linger) worked(now Time, way Way, bytes int) {
	gap := now - s.last
	switch {
	case s.last == 0 || gap > lingerIdle:
		s.score, s.bytes = 0, 0
	case way == s.way: // a stream, if it goes on like that
	case s.bytes > lingerBytes:
		s.score, s.bytes = 0, 0
	case gap <= Time(s.poll.For):
		s.score, s.bytes = min(s.score+2, lingerScore), 0
	default:
		s.score, s.bytes = max(s.score-1, 0), 0
	}
	if s.bytes += bytes; s.bytes > lingerBytes {
		s.score = 0
	}
	s.last, s.way = now, way
}

// lingers says whether to look again.
func (s *linger) lingers(now Time) bool {
	return s.last != 0 && now-s.last < Time(s.poll.For) && (!s.poll.Adaptive || s.score >= lingerFrom)
}

// SetPoll chooses how the loop waits. For set-up time.
func (l *Loop) SetPoll(p Poll) { l.linger.poll = p }

// Worked notes that a device has moved so many bytes this turn.
func (l *Loop) Worked(way Way, bytes int) { l.linger.worked(l.now, way, bytes) }

// Lingers reports whether the loop is going to look for more work, rather than
// sleep, after this turn, because that is likely to come so soon. A device with
// rings then asks for that turn (Again), looks at them in it, and needs no kicks.
func (l *Loop) Lingers() bool { return l.linger.lingers(l.now) }

// Rest has the loop sleep until there is work again: the guest has gone.
func (l *Loop) Rest() { l.linger.last = 0 }
