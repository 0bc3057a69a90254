package dns

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// query is one query in flight.
type query struct {
	live        bool
	id, guestID uint16
	guest, ours wire.Addr
	guestPort   uint16
	msg         []byte // as the guest sent it
	end         int    // of its question

	start, due eventloop.Time // of the query; of the attempt at hand
	attempts   int
	tried      [maxAttempts]attempt
}

// attempt is one upstream that was asked.
type attempt struct {
	to   netip.AddrPort
	sock int    // index and generation of the socket
	gen  uint32 //
	hard bool   // known to have failed
}

func (q *query) last() *attempt { return &q.tried[q.attempts-1] }

// take returns a free entry, or -1.
func (r *Forwarder) take() int32 {
	switch n := len(r.free); {
	case n > 0:
		i := r.free[n-1]
		r.free = r.free[:n-1]
		r.queries[i] = query{live: true, msg: r.queries[i].msg}
		return i
	case len(r.queries) < r.c.MaxPending:
		r.queries = append(r.queries, query{live: true})
		return int32(len(r.queries) - 1)
	}
	oldest := int32(0)
	for i := range r.queries {
		if r.queries[i].start < r.queries[oldest].start {
			oldest = int32(i)
		}
	}
	// Only what waits on a slow or dead upstream gives way: this bounds how fast
	// a flood goes out.
	if r.now()-r.queries[oldest].start < evictableAge {
		return -1
	}
	r.stats.Evicted++
	r.release(oldest)
	return r.take()
}

func (r *Forwarder) release(i int32) {
	q := &r.queries[i]
	delete(r.byID, q.id)
	q.live = false
	r.free = append(r.free, i)
}

// newID returns an id that no query in flight has; MaxPending leaves half of them
// free.
func (r *Forwarder) newID() uint16 {
	for id := uint16(r.d.Rand()); ; id++ {
		if _, taken := r.byID[id]; !taken {
			return id
		}
	}
}

// attempt asks the next upstream, and the one after that where the host knows at
// once that it cannot. With nobody left to ask the query fails, unless somebody
// who was asked may still answer.
func (r *Forwarder) attempt(i int32) {
	q := &r.queries[i]
	for q.attempts < maxAttempts {
		to, ok := r.choose(q)
		if !ok {
			break
		}
		a := &q.tried[q.attempts]
		*a = attempt{to: to, sock: -1}
		q.attempts++
		if s := r.socket(to); s >= 0 {
			a.sock, a.gen = s, r.socks[s].gen
			if e := r.send(s, q); e == 0 || e == syscall.EAGAIN {
				q.due = r.now() + attemptTime
				r.armFor(q.due)
				return
			}
		}
		a.hard = true
		r.stats.Unreachable++
	}
	for _, a := range q.tried[:q.attempts] {
		if !a.hard {
			q.due = q.start + maxAttempts*attemptTime
			r.armFor(q.due)
			return
		}
	}
	r.fail(i)
}

// send sends q under its own id through socket s.
func (r *Forwarder) send(s int, q *query) syscall.Errno {
	binary.BigEndian.PutUint16(q.msg, q.id)
	r.bufs[0] = q.msg
	r.msg[0] = hostsock.Message{Bufs: r.bufs[:]}
	n, e := r.d.Host.Send(r.socks[s].fd, r.msg[:])
	if n == 1 {
		return 0
	}
	return e
}

// fail answers SERVFAIL.
func (r *Forwarder) fail(i int32) {
	q := &r.queries[i]
	r.outage(q)
	r.stats.ServerFailures++
	binary.BigEndian.PutUint16(q.msg, q.guestID)
	r.toGuest(q.ours, q.guest, q.guestPort, refusal(q.msg, q.end, rcodeServerFailure))
	r.release(i)
}

// outage says once, until somebody answers again, that nobody does. One name that
// nobody can resolve is no outage.
func (r *Forwarder) outage(q *query) {
	if r.failing {
		return
	}
	if len(r.d.Resolver.Upstreams()) == 0 {
		r.failing = true
		r.logf("no name server is known, the guest's queries fail; --dns-host ADDR would name one")
		return
	}
	for n := range q.tried[:q.attempts] {
		if a := &q.tried[n]; !a.hard && !r.dead(a.to) {
			return
		}
	}
	r.failing = true
	r.logf("no name server answers, the guest's queries fail")
}

// answer takes a message that came to socket s.
func (r *Forwarder) answer(s int, msg []byte) {
	if len(msg) < headerLen {
		r.drop(DropShort)
		return
	}
	h := parseHeader(msg)
	i, ok := r.byID[h.id]
	if !h.response || !ok {
		r.drop(DropUnknown)
		return
	}
	q := &r.queries[i]
	a := q.asked(s, &r.socks[s])
	switch {
	case a == nil:
		r.drop(DropUnknown)
	case sameQuestion(msg, q.msg[headerLen:q.end]):
		r.answered(a.to)
		r.stats.Answers++
		binary.BigEndian.PutUint16(msg, q.guestID)
		r.toGuest(q.ours, q.guest, q.guestPort, msg)
		r.release(i)
	case h.questions == 0 && h.rcode != 0 && !a.hard:
		// A server that did not understand even the question (RFC 1035 4.1.1 lets
		// it answer with a bare header).
		a.hard = true
		if a == q.last() {
			r.attempt(i)
		}
	default:
		r.drop(DropMismatch)
	}
}

// asked returns the attempt that went out through socket s, if one did.
func (q *query) asked(s int, k *sock) *attempt {
	for n := range q.tried[:q.attempts] {
		if a := &q.tried[n]; a.sock == s && a.gen == k.gen {
			return a
		}
	}
	return nil
}
