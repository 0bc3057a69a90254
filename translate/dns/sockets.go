package dns

import (
	"net/netip"
	"syscall"
	"time"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

const (
	maxSocks    = 16
	perUpstream = 4
	sockUses    = 128
	sockAge     = 60 * eventloop.Time(time.Second)
	idleTime    = 10 * eventloop.Time(time.Second)
)

// sock is one socket connected to one upstream, from a port of the kernel's
// choice.
type sock struct {
	fd         hostsock.FD
	gen        uint32 // of the slot
	to         netip.AddrPort
	born, used eventloop.Time
	uses       int
}

func (s *sock) closeAt() eventloop.Time { return s.used + idleTime }

// fresh says that the socket's port has not been seen for long.
func (s *sock) fresh(now eventloop.Time) bool { return s.uses < sockUses && now-s.born < sockAge }

// socket returns a socket for to, or -1. Each upstream has up to perUpstream
// fresh ones, of which any may be taken; worn out ones are left until nothing
// comes any more, or used on when there is no room for more.
func (r *Forwarder) socket(to netip.AddrPort) int {
	now := r.now()
	var fresh, all, empty [maxSocks]int
	nFresh, nAll, nEmpty := 0, 0, 0
	for i := range r.socks {
		switch s := &r.socks[i]; {
		case s.fd == hostsock.None:
			empty[nEmpty] = i
			nEmpty++
		case s.to == to:
			all[nAll] = i
			nAll++
			if s.fresh(now) {
				fresh[nFresh] = i
				nFresh++
			}
		}
	}
	pick := -1
	switch {
	case nFresh >= perUpstream:
		pick = fresh[r.d.Rand()%uint32(nFresh)]
	case nEmpty > 0 && r.open(empty[0], to):
		pick = empty[0]
	case nAll > 0:
		pick = all[r.d.Rand()%uint32(nAll)]
	case nEmpty == 0:
		// Full of sockets to others, which the resolver may not even name any
		// more.
		victim := r.leastUsed()
		r.close(victim)
		if r.open(victim, to) {
			pick = victim
		}
	}
	if pick >= 0 {
		r.socks[pick].uses++
		r.socks[pick].used = now
		r.armFor(r.socks[pick].closeAt())
	}
	return pick
}

// leastUsed is the socket that has rested longest.
func (r *Forwarder) leastUsed() int {
	best := 0
	for i := range r.socks {
		if r.socks[i].used < r.socks[best].used {
			best = i
		}
	}
	return best
}

func (r *Forwarder) open(i int, to netip.AddrPort) bool {
	fd, e := r.d.Host.Dial(hostsock.UDP, to, &hostsock.Options{})
	if e != 0 {
		return false
	}
	if e := r.d.Host.Watch(fd, eventloop.In, r, uint32(i)); e != 0 {
		r.d.Host.Close(fd, false)
		return false
	}
	s := &r.socks[i]
	*s = sock{fd: fd, gen: s.gen + 1, to: to, born: r.now(), used: r.now()}
	return true
}

func (r *Forwarder) close(i int) {
	s := &r.socks[i]
	if s.fd == hostsock.None {
		return
	}
	r.d.Host.Close(s.fd, false)
	*s = sock{fd: hostsock.None, gen: s.gen + 1}
}

func (r *Forwarder) closeIdle(now eventloop.Time) {
	for i := range r.socks {
		if s := &r.socks[i]; s.fd != hostsock.None && now >= s.closeAt() {
			r.close(i)
		}
	}
}

// Ready implements eventloop.Source for the upstream sockets. They are watched
// level-triggered, so what the budget leaves comes again.
func (r *Forwarder) Ready(cookie uint32, ev eventloop.Events) {
	i := int(cookie)
	if i >= len(r.socks) || r.socks[i].fd == hostsock.None {
		return
	}
	if r.recv == nil {
		r.recv = make([]byte, 65536)
	}
	for range recvBudget {
		r.bufs[0] = r.recv
		r.msg[0] = hostsock.Message{Bufs: r.bufs[:]}
		n, e := r.d.Host.Recv(r.socks[i].fd, r.msg[:])
		if e == syscall.EAGAIN || e == 0 && n == 0 {
			break
		}
		if e != 0 { // what ICMP reported
			r.unreachable(i)
			break
		}
		r.received(i, &r.msg[0])
		if r.socks[i].fd == hostsock.None {
			return
		}
	}
	if ev&(eventloop.Err|eventloop.HUP) != 0 {
		r.unreachable(i)
	}
}

// received splits what may be a run of equal datagrams (UDP_GRO).
func (r *Forwarder) received(i int, m *hostsock.Message) {
	if m.Trunc {
		r.drop(DropLong)
		return
	}
	b, size := r.recv[:min(m.N, len(r.recv))], m.SegSize
	if size <= 0 || size > len(b) {
		size = len(b)
	}
	for {
		r.answer(i, b[:size])
		if b = b[size:]; len(b) == 0 {
			return
		}
		size = min(size, len(b))
	}
}

// unreachable clears the errors of socket i, and moves on the queries that wait
// there: their upstream is not listening.
func (r *Forwarder) unreachable(i int) {
	fd := r.socks[i].fd
	var quote [headerLen]byte
	for range recvBudget {
		if _, e := r.d.Host.Errors(fd, quote[:]); e != 0 {
			break
		}
	}
	r.d.Host.SocketError(fd)
	gen := r.socks[i].gen
	for n := range r.queries {
		q := &r.queries[n]
		if !q.live {
			continue
		}
		if a := q.last(); a.sock == i && a.gen == gen && !a.hard {
			a.hard = true
			r.stats.Unreachable++
			r.attempt(int32(n))
		}
	}
}
