package forward

import (
	"net/netip"
	"syscall"
	"time"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// TCPInbound takes accepted connections; tcp.Engine is one.
type TCPInbound interface {
	// Inbound owns fd from here on.
	Inbound(fd hostsock.FD, peer, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16, src wire.Addr)
}

// UDPInbound serves bound UDP sockets; udp.Engine is one.
type UDPInbound interface {
	// Serve watches fd, a receiving socket bound to local, and leads its
	// datagrams to guestPort of guestAddr, the guest's own address where that is
	// zero. fd stays open until Unserve.
	Serve(fd hostsock.FD, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16) syscall.Errno
	// Unserve stops watching fd; the caller closes it.
	Unserve(fd hostsock.FD)
}

// ListenConfig is what Listen needs.
type ListenConfig struct {
	IPv4, IPv6 bool // IP versions in use
	Freebind   bool // bind to addresses that the host does not have (yet)
	MaxSockets int  // 0: DefaultMaxSockets
	Host       hostsock.Host
	Timers     *eventloop.Wheel
	Port       *guest.Port // the guest's observed addresses
	Lease4     wire.Addr   // where the guest is while it has not been heard
	Lease6     wire.Addr
	Policy     *Policy
	TCP        TCPInbound
	UDP        UDPInbound
	Admit      func() bool                   // may one more flow begin? nil: always
	Log        func(format string, a ...any) // nil: silent
	// Local takes over connections whose client is on the host's loopback, which
	// have a shorter way to port of a guest that is a namespace. It reports false
	// when they go the usual one. nil: all do.
	Local func(fd hostsock.FD, v4 bool, port uint16) bool
}

// Bound is one socket that listens.
type Bound struct {
	Proto hostsock.Proto
	Local netip.AddrPort // with the port that the kernel chose for port 0
	To    netip.AddrPort // invalid address: the guest's own
}

// DefaultMaxSockets bounds the listening sockets of one guest.
const DefaultMaxSockets = 16384

const (
	acceptBudget = 16
	retryTime    = 100 * eventloop.Time(time.Millisecond)
	patience     = 10 // retries until what waits is reset
)

// socket is one listening socket.
type socket struct {
	fd      hostsock.FD // None: free
	rule    int32       // index in Listeners.rules
	local   netip.AddrPort
	paused  bool
	retries uint8 // since it was paused
}

// Listeners are the open sockets of all inbound forwards.
type Listeners struct {
	c      ListenConfig
	rules  []Rule
	socks  []socket
	paused []uint32 // indices in socks
	holes  []uint32 // indices in socks that are free
	spare  []int32  // indices in rules that are free
	full   bool     // a weak rule ran into a limit
	timer  eventloop.TimerID
	stats  ListenStats
}

// ListenStats are counters.
type ListenStats struct {
	Accepted  uint64 // connections handed on
	Reset     uint64 // connections reset because there was no room for long
	Pauses    uint64 // times that a socket had to wait for room
	Errors    uint64 // accept(2) failed for a reason of the network's
	Local     uint64 // connections that ListenConfig.Local has taken over
	Unmatched uint64 // connections whose IP version the guest does not have
}

// Bound returns every open socket, for the ready line.
func (l *Listeners) Bound() []Bound {
	b := make([]Bound, 0, len(l.socks))
	for i := range l.socks {
		s := &l.socks[i]
		if s.fd == hostsock.None {
			continue
		}
		r := &l.rules[s.rule]
		b = append(b, Bound{r.Proto, s.local, netip.AddrPortFrom(r.ToAddr, l.target(s))})
	}
	return b
}

// Each calls f with the name and value of every counter.
func (l *Listeners) Each(f func(name string, value uint64)) {
	f("sockets", uint64(len(l.socks)-len(l.holes)))
	f("paused", uint64(len(l.paused)))
	f("accepted", l.stats.Accepted)
	f("reset", l.stats.Reset)
	f("pauses", l.stats.Pauses)
	f("accept_errors", l.stats.Errors)
	f("unmatched", l.stats.Unmatched)
	f("local", l.stats.Local)
}

// Close closes all sockets.
func (l *Listeners) Close() {
	for i := range l.socks {
		l.closeSocket(&l.socks[i])
	}
	l.socks, l.paused, l.holes = nil, nil, nil
	if l.timer != 0 {
		l.c.Timers.Free(l.timer)
		l.timer = 0
	}
}

func (l *Listeners) closeSocket(s *socket) {
	if s.fd == hostsock.None {
		return
	}
	if l.rules[s.rule].Proto == hostsock.UDP {
		l.c.UDP.Unserve(s.fd)
	}
	l.c.Host.Close(s.fd, false)
	s.fd = hostsock.None
}

// target is the guest port that a socket leads to.
func (l *Listeners) target(s *socket) uint16 {
	r := &l.rules[s.rule]
	if r.First == 0 {
		return r.ToFirst
	}
	return r.Target(s.local.Port())
}

// Ready implements eventloop.Source for the TCP sockets. They are watched
// level-triggered, so what the budget leaves comes again.
func (l *Listeners) Ready(cookie uint32, ev eventloop.Events) {
	if int(cookie) >= len(l.socks) || l.socks[cookie].paused || l.socks[cookie].fd == hostsock.None {
		return
	}
	s := &l.socks[cookie]
	for range acceptBudget {
		if !l.admit() {
			l.pause(cookie)
			return
		}
		fd, peer, local, e := l.c.Host.Accept(s.fd)
		switch {
		case e == 0:
			s.retries = 0
			l.inbound(s, fd, peer, local)
		case e == syscall.EAGAIN:
			s.retries = 0
			return
		case ofConnection(e):
			l.stats.Errors++
		default: // EMFILE, ENFILE, ENOBUFS, ENOMEM, or something that time may mend
			l.pause(cookie)
			return
		}
	}
}

func (l *Listeners) admit() bool { return l.c.Admit == nil || l.c.Admit() }

// ofConnection says that accept(2) failed because of the connection it took, not
// because of us: "treat them like EAGAIN by retrying".
func ofConnection(e syscall.Errno) bool {
	switch e {
	case syscall.ECONNABORTED, syscall.EINTR, syscall.EPERM, syscall.ENETDOWN, syscall.EPROTO, syscall.ENOPROTOOPT,
		syscall.EHOSTDOWN, syscall.ENONET, syscall.EHOSTUNREACH, syscall.EOPNOTSUPP, syscall.ENETUNREACH, syscall.ETIMEDOUT:
		return true
	}
	return false
}

// inbound hands a connection on.
func (l *Listeners) inbound(s *socket, fd hostsock.FD, peer, local netip.AddrPort) {
	to := wire.FromNetip(l.rules[s.rule].ToAddr)
	if a := peer.Addr().Unmap(); l.c.Local != nil && to.IsZero() && a.IsLoopback() && l.c.Local(fd, a.Is4(), l.target(s)) {
		l.stats.Local++
		l.c.Host.Close(fd, false) // it has a descriptor of its own
		return
	}
	if to.IsZero() {
		to = l.guestAddr(peer.Addr().Unmap().Is4())
	}
	src := l.c.Policy.InboundSource(peer)
	if to.IsZero() || src.IsZero() || to.Is4() != src.Is4() {
		l.stats.Unmatched++
		l.c.Host.Close(fd, true)
		return
	}
	l.stats.Accepted++
	l.c.TCP.Inbound(fd, peer, local, to, l.target(s), src)
}

// guestAddr is where the guest was seen, or else where it will be.
func (l *Listeners) guestAddr(v4 bool) wire.Addr {
	seen, lease := l.c.Port.Addr6, l.c.Lease6
	if v4 {
		seen, lease = l.c.Port.Addr4, l.c.Lease4
	}
	if seen.IsZero() {
		return lease
	}
	return seen
}

// pause takes a socket off the loop until the timer runs out. Clients that have
// waited for long are told that there is no room.
func (l *Listeners) pause(cookie uint32) {
	s := &l.socks[cookie]
	if s.retries >= patience {
		s.retries = 0
		l.reset(s)
	}
	s.paused = true
	l.stats.Pauses++
	l.c.Host.Rewatch(s.fd, 0)
	l.paused = append(l.paused, cookie)
	if !l.c.Timers.Armed(l.timer) {
		l.c.Timers.Set(l.timer, l.c.Timers.Now()+retryTime)
	}
}

// reset turns away what waits at a socket, within the budget of a turn.
func (l *Listeners) reset(s *socket) {
	for range acceptBudget {
		if l.c.Host.Refuse(s.fd) != 0 {
			return
		}
		l.stats.Reset++
	}
}

// Expired implements eventloop.Expirer: paused sockets get another chance, unless
// the host has not even the memory to watch them.
func (l *Listeners) Expired(uint32) {
	left := l.paused[:0]
	for _, cookie := range l.paused {
		s := &l.socks[cookie]
		if !s.paused {
			continue // closed meanwhile
		}
		s.retries++
		s.paused = l.c.Host.Rewatch(s.fd, eventloop.In) != 0
		if s.paused {
			left = append(left, cookie)
		}
	}
	if l.paused = left; len(left) > 0 {
		l.c.Timers.Set(l.timer, l.c.Timers.Now()+retryTime)
	}
}
