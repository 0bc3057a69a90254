package vring

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// A User Mode Linux guest is called by a signal (SIGIO on a socket). Traces show
// some of them delivered and then nothing: the guest sleeps on until its next
// timer, 10 ms or for as long as its programs wait. (What fits is that a signal
// which comes while the guest has them disabled, about to sleep, is only noted;
// that was not followed through the idle loop of Linux 7.2.) It is not called again
// either: with EVENT_IDX a call is due once (2.7.7.2), until the driver has moved
// used_event. So there a call that shows no effect is made again, a few times.
const (
	insistAfter = eventloop.Time(200_000) // until the second call, then 8 times as long
	insistTimes = 3
)

// insist is what is known of the last call. A driver that has heard it moves
// used_event, or makes more buffers available.
type insist struct {
	needed  bool // calls may be lost, and whether they were can be seen
	waiting bool // the last call has shown no effect yet
	event   uint16
	avail   uint16
	left    int            // calls to repeat
	after   eventloop.Time // how long to wait
	due     eventloop.Time // when the wait is over, 0: it has not begun
}

// mayLose says whether calls by fd may be lost: it is a socket or a pipe.
func mayLose(fd int) bool {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFSOCK || kind == unix.S_IFIFO
}

// called notes a call.
func (q *DeviceQueue) called() {
	if i := &q.insist; i.needed && q.eventIdx {
		i.event, i.avail = *q.ring.usedEvent, q.ring.loadAvailIdx()
		i.waiting, i.left, i.after, i.due = true, insistTimes, insistAfter, 0
	}
}

// Insist repeats the last call if it is overdue and the frontend is one that may
// lose calls. It is for the end of every turn and returns when to ask again at
// the latest, 0: no need.
func (q *DeviceQueue) Insist(now eventloop.Time) eventloop.Time {
	i := &q.insist
	if !i.waiting {
		return 0
	}
	switch {
	case q.broken != nil || *q.ring.usedEvent != i.event || q.ring.loadAvailIdx() != i.avail:
		i.waiting = false
		return 0
	case i.due == 0:
		i.due = now + i.after
	case now >= i.due:
		q.stats.CallsRepeated++
		signal(q.callFD)
		if i.left--; i.left == 0 {
			i.waiting = false
			return 0
		}
		i.after *= 8
		i.due = now + i.after
	}
	return i.due
}
