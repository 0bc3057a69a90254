package splice

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// Side makes sockets in one of the two namespaces, non-blocking.
type Side interface {
	Sockets(domain, typ, n int) ([]int, error)
	// Listen makes a socket that is bound, and listens if it is a stream.
	Listen(typ int, at netip.AddrPort) (int, unix.Errno)
}

// Rule is one listener: what comes to At on one side goes to To on the other.
type Rule struct {
	Out    bool // from the namespace to the host
	Type   int  // unix.SOCK_STREAM or SOCK_DGRAM
	At, To netip.AddrPort
}

// Config says which the two sides are.
type Config struct {
	Host, Inside Side
	MaxPairs     int                           // 0: 4096
	Log          func(format string, a ...any) // nil: silent
}

const (
	defaultPairs = 4096
	poolSize     = 16
	maxDatagram  = 64 << 10
	pipeSize     = 1 << 20 // a third less processor time per byte than with 256 KiB (0.20 s/GiB)
	retryTime    = 100 * eventloop.Time(time.Millisecond)
	lookTime     = 10 * eventloop.Time(time.Second)
)

// Stats are counters.
type Stats struct {
	Accepted uint64 // connections taken by listeners, or given to Take
	Failed   uint64 // of these, which could not be connected on
	Flows    uint64 // UDP flows begun
	Expired  uint64 // UDP flows ended for being idle
	Dropped  uint64 // datagrams of new sources that found no room
	Pauses   uint64 // times that a listener had to wait for room
}

// Splice joins two sides on one loop.
type Splice struct {
	c         Config
	loop      *eventloop.Loop
	relay     *relay.Relay
	listeners map[Rule]*listener
	paused    []*listener
	retry     eventloop.TimerID
	look      eventloop.TimerID
	dials     map[*dial]struct{} // connections that are not made yet
	flows     map[flowKey]*flow
	pools     [2][2][]int // by out, by IPv6: stream sockets to connect with
	buf       []byte      // one datagram
	stats     Stats
}

// Cookies of the timers.
const (
	timerRetry uint32 = iota
	timerLook
)

// New makes a Splice without listeners.
func New(c Config, loop *eventloop.Loop) *Splice {
	if c.MaxPairs == 0 {
		c.MaxPairs = defaultPairs
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	s := &Splice{
		c: c, loop: loop, relay: relay.New(relay.Config{MaxPairs: c.MaxPairs, MaxMessage: maxDatagram, PipeSize: pipeSize}, loop),
		listeners: map[Rule]*listener{}, dials: map[*dial]struct{}{}, flows: map[flowKey]*flow{}, buf: make([]byte, maxDatagram),
	}
	s.retry, s.look = loop.Timers().New(s, timerRetry), loop.Timers().New(s, timerLook)
	return s
}

// Shut ends everything.
func (s *Splice) Shut() {
	for r := range s.listeners {
		s.Close(r)
	}
	for d := range s.dials {
		d.end()
		unix.Close(d.from)
	}
	s.relay.Close()
	for i := range s.pools {
		for j := range s.pools[i] {
			closeAll(s.pools[i][j])
			s.pools[i][j] = nil
		}
	}
	s.loop.Timers().Free(s.retry)
	s.loop.Timers().Free(s.look)
}

// Each calls f with the name and value of every counter.
func (s *Splice) Each(f func(name string, value uint64)) {
	f("listeners", uint64(len(s.listeners)))
	f("accepted", s.stats.Accepted)
	f("failed", s.stats.Failed)
	f("flows", s.stats.Flows)
	f("expired", s.stats.Expired)
	f("dropped", s.stats.Dropped)
	f("pauses", s.stats.Pauses)
	r := s.relay.Stats()
	r.Each(func(name string, v uint64) { f("relay_"+name, v) })
}

// from is the side that listens, to the other.
func (s *Splice) from(out bool) Side {
	if out {
		return s.c.Inside
	}
	return s.c.Host
}

func (s *Splice) to(out bool) Side { return s.from(!out) }

// room says whether one more pair may begin.
func (s *Splice) room() bool {
	return int(s.relay.Stats().Open)+len(s.dials) < s.c.MaxPairs
}

// Expired implements eventloop.Expirer.
func (s *Splice) Expired(cookie uint32) {
	if cookie == timerLook {
		s.age()
		return
	}
	waiting := s.paused
	s.paused = nil
	for _, l := range waiting {
		l.resume()
	}
}

func domainOf(a netip.AddrPort) int {
	if a.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
