package stream

import (
	"errors"
	"fmt"
	"os"

	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
)

// Config says where the peer is met: exactly one of Path and FD.
type Config struct {
	Path   string      // UNIX socket to listen on, or with Client to connect to
	FD     int         // -1, or a socket we were started with: listening or connected
	Client bool        // connect to Path, again and again, instead of listening
	Mode   os.FileMode // of the listening socket's file; 0 means 0600
	MTU    int         // largest L3 packet towards the guest; 0: 1500

	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
	// Gone is called when a connected FD has been used up: its peer has left
	// and no other can come. nil: nobody cares.
	Gone func()
}

const (
	defaultMTU = 1500
	minMTU     = 68
	maxMTU     = 65535
)

// Stats are counters. RX is towards the guest.
type Stats struct {
	link.Stats
	Connects    uint64 // connections made or accepted
	Refused     uint64 // second peers
	LostFraming uint64 // connections closed for a length that cannot be
	Short       uint64 // frames from the guest below 14 bytes, dropped
	RxShort     uint64 // reservations that came back short
	RxMoved     uint64 // frames moved up behind one shorter than reserved
	Reads       uint64
	Writes      uint64
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("rx_frames", s.RxFrames)
	f("rx_bytes", s.RxBytes)
	f("tx_frames", s.TxFrames)
	f("tx_bytes", s.TxBytes)
	f("connects", s.Connects)
	f("refused", s.Refused)
	f("lost_framing", s.LostFraming)
	f("drop_short", s.Short)
	f("rx_short", s.RxShort)
	f("rx_moved", s.RxMoved)
	f("reads", s.Reads)
	f("writes", s.Writes)
}

// Endpoint is the link to one guest over one stream socket.
type Endpoint struct {
	c     Config
	h     link.Handler
	loop  *eventloop.Loop
	stats Stats

	listener listener
	conn     conn
	in       input
	out      output
}

var (
	_ link.Endpoint     = (*Endpoint)(nil)
	_ eventloop.Breaker = (*Endpoint)(nil)
)

// New listens, connects or takes over c.FD, and registers on loop. h's own
// AfterTurn work must be registered before, so that what it commits is written
// in the same turn.
func New(c Config, h link.Handler, loop *eventloop.Loop) (*Endpoint, error) {
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	switch {
	case c.MTU < minMTU || c.MTU > maxMTU:
		return nil, fmt.Errorf("stream: MTU %d is outside %d..%d", c.MTU, minMTU, maxMTU)
	case (c.Path == "") == (c.FD < 0):
		return nil, errors.New("stream: need a socket path or a descriptor, one of them")
	case c.Client && c.Path == "":
		return nil, errors.New("stream: client mode needs a socket path")
	}
	e := &Endpoint{c: c, h: h, loop: loop, conn: conn{fd: -1}, listener: listener{sock: unixsock.Listener{FD: -1}}}
	e.in.buf = make([]byte, inSize)
	e.out.buf = make([]byte, outSize)
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	loop.AfterTurnOf(e, e.Flush)
	return e, nil
}

// Close leaves the peer, and removes the socket that New made.
func (e *Endpoint) Close() {
	e.drop()
	e.closeListener()
}

// Caps implements link.Endpoint.
func (e *Endpoint) Caps() link.Caps { return link.Caps{MTU: e.c.MTU, Stats: &e.stats.Stats} }

// Stats returns the counters.
func (e *Endpoint) Stats() Stats { return e.stats }

// Connected says whether there is a peer.
func (e *Endpoint) Connected() bool { return e.conn.fd >= 0 }

// Break implements eventloop.Breaker: the handler panicked under our feet. The
// peer is dropped, and another may come.
func (e *Endpoint) Break(err error) {
	e.c.Log("stream: %v", err)
	e.lost("broken")
}
