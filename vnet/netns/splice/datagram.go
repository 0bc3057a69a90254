package splice

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

const (
	receiveBudget = 64
	// How long a flow may be idle, as net.netfilter.nf_conntrack_udp_timeout and
	// its _stream have it.
	unanswered = eventloop.Time(30 * time.Second)
	answered   = eventloop.Time(120 * time.Second)
)

// flowKey is what a flow is known by: its source, at a listener.
type flowKey struct {
	l   *listener
	src netip.AddrPort
}

// flow is the datagrams of one source.
type flow struct {
	key   flowKey
	to    int // socket towards the target; the relay's
	pair  *relay.Pair
	seen  [2]uint64 // Pair.Moved at the last look
	since eventloop.Time
}

// receive takes what comes from sources that have no flow, whose sockets would be
// preferred to the listener's.
func (l *listener) receive() {
	for range receiveBudget {
		n, src, err := l.s.next(l.fd)
		if err == unix.EAGAIN {
			return
		}
		if err == nil { // else an error of an earlier datagram
			l.datagram(src, l.s.buf[:n])
		}
	}
}

// next receives one datagram into buf.
func (s *Splice) next(fd int) (int, netip.AddrPort, error) {
	n, sa, err := unix.Recvfrom(fd, s.buf, unix.MSG_DONTWAIT)
	return n, addrPort(sa), err
}

// datagram sends one on, in the flow that it belongs to or begins.
func (l *listener) datagram(src netip.AddrPort, b []byte) {
	s := l.s
	f := s.flows[flowKey{l, src}] // there is one if it was queued before that had its socket
	begun := -1
	if f == nil {
		if f, begun = s.begin(flowKey{l, src}); f == nil {
			s.stats.Dropped++
			return
		}
	}
	_ = unix.Sendto(f.to, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	if begun >= 0 {
		s.start(f, begun)
	}
}

// begin makes the two sockets of a flow.
func (s *Splice) begin(k flowKey) (f *flow, from int) {
	r := &k.l.rule
	if !s.room() || len(s.flows) >= s.c.MaxPairs {
		return nil, -1
	}
	from, errno := s.from(r.Out).Listen(unix.SOCK_DGRAM, r.At)
	if errno != 0 {
		return nil, -1
	}
	fds, err := s.to(r.Out).Sockets(domainOf(r.To), unix.SOCK_DGRAM, 1)
	if err == nil {
		f = &flow{key: k, to: fds[0], since: s.loop.Now()}
		if err = unix.Connect(from, sockaddr(k.src)); err == nil {
			err = unix.Connect(f.to, sockaddr(r.To))
		}
	}
	if err != nil {
		unix.Close(from)
		closeAll(fds)
		return nil, -1
	}
	s.stats.Flows++
	s.flows[k] = f
	return f, from
}

// start has the relay join the sockets of a flow. Between bind and connect its
// socket could receive what is not the flow's.
func (s *Splice) start(f *flow, from int) {
	for range receiveBudget {
		n, src, err := s.next(from)
		if err == unix.EAGAIN {
			break
		}
		if err == nil {
			f.key.l.datagram(src, s.buf[:n])
		}
	}
	var err error
	f.pair, err = s.relay.Start(relay.Socket(from, relay.Datagram), relay.Socket(f.to, relay.Datagram),
		func(relay.Result) { delete(s.flows, f.key) })
	if err != nil {
		delete(s.flows, f.key)
		closeAll([]int{from, f.to})
		return
	}
	if t := s.loop.Timers(); !t.Armed(s.look) {
		t.Set(s.look, s.loop.Now()+lookTime)
	}
}

// age ends flows that have been idle for too long.
func (s *Splice) age() {
	now := s.loop.Now()
	for k, f := range s.flows {
		limit, moved := unanswered, f.pair.Moved()
		if moved[1] > 0 {
			limit = answered
		}
		switch {
		case moved != f.seen:
			f.seen, f.since = moved, now
		case now-f.since >= limit:
			s.stats.Expired++
			f.pair.Close() // which calls nobody
			delete(s.flows, k)
		}
	}
	if len(s.flows) > 0 {
		s.loop.Timers().Set(s.look, now+lookTime)
	}
}

// addrPort is the zero value for what is no address of IP.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
