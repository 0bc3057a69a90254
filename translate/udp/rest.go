package udp

import (
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// A peer that streams to the guest wakes us for every datagram, and we interrupt
// the guest for every one: a guest that is busy with interrupts does not get
// round to reading, and its socket buffer overflows. So a socket that streams is
// left alone for a moment after it was read, and what has come meanwhile goes to
// the guest in one batch.
const (
	// restFor is how long: 200 us of a 400 Mbit/s stream are 7 datagrams of 1,400
	// bytes.
	restFor = eventloop.Time(200_000)

	// restGap is how soon after the last read there must have been more.
	restGap = eventloop.Time(300_000)

	// restRun is how many datagrams must have come since the guest last sent
	// anything by that socket. Whoever waits for answers does not rest.
	restRun = 8

	// restMany datagrams in one read make the next rest shorter, four times as many
	// none: the socket's buffer must not overflow meanwhile (Linux's default holds
	// about 90).
	restMany = 16
)

// idle is what is known of a socket's habit.
type idle struct {
	last    eventloop.Time // when it was last read with success
	run     int            // datagrams since the guest last sent, up to restRun
	resting bool           // watched for errors alone
	until   eventloop.Time // end of the rest
}

// idleOf finds the socket's.
func (e *Engine) idleOf(s source) *idle {
	if s.cookie&served != 0 {
		return &e.listeners[s.cookie&^served].idle
	}
	return &e.conns.At(s.cookie).idle
}

// rest decides, when socket s was read to its end by a read of n datagrams,
// whether to wait for more by time instead of by events.
func (e *Engine) rest(s source, fd hostsock.FD, n int) {
	r := e.idleOf(s)
	if n == 0 {
		e.rouse(r, fd)
		return
	}
	if e.d.Clock == nil {
		return
	}
	now := e.d.Clock.Now()
	streams := now-r.last < restGap && n < 4*restMany
	r.last, r.run = now, min(r.run+n, restRun)
	if !streams || r.run < restRun {
		e.rouse(r, fd)
		return
	}
	r.until = now + restFor
	if n > restMany {
		r.until = now + restFor/4
	}
	if !e.d.Host.AgainAt(fd, r.until) {
		e.rouse(r, fd)
		return
	}
	if !r.resting {
		r.resting = e.d.Host.Rewatch(fd, eventloop.Err|eventloop.Edge) == 0
		e.stats.rests++
	}
}

// rouse has the socket watched for data again. What came during the rest is
// reported at once.
func (e *Engine) rouse(r *idle, fd hostsock.FD) {
	if r.resting {
		r.resting = false
		if e.d.Host.Rewatch(fd, eventloop.In|eventloop.Edge) != 0 {
			e.stats.hostErrors++
		}
	}
}

// datagrams is how many the messages just read are.
func (r *incoming) datagrams() (n int) {
	for i := range r.n {
		n++
		if size := r.size(i); size > 0 {
			n += (r.msgs[i].N - 1) / size
		}
	}
	return n
}
