package relay

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// Kind says what an End carries.
type Kind uint8

const (
	Stream    Kind = iota // bytes
	Framed                // bytes that are messages, each behind its length (FrameHeader)
	Seqpacket             // messages, with an end
	Datagram              // messages, without an end
)

// messages says that the descriptor itself keeps message boundaries.
func (k Kind) messages() bool { return k == Seqpacket || k == Datagram }

// End is one end of a connection to be joined with another: a connected socket
// (In == Out), two pipes, or a mixture. -1 is a direction that does not exist.
// Descriptors are non-blocking, except for a Seqpacket's In, and epoll must
// take them (no regular files).
type End struct {
	In, Out int
	Kind    Kind
}

// Socket is the End of a connected socket.
func Socket(fd int, k Kind) End { return End{In: fd, Out: fd, Kind: k} }

// ErrFull is the error of Start when MaxPairs pairs are open.
var ErrFull = errors.New("relay: too many connections")

// Config sets limits. Zero values stand for the defaults.
type Config struct {
	MaxPairs   int  // pairs open at a time; 4096
	MaxMessage int  // longest message in bytes; 1 MiB
	PipeSize   int  // bytes in flight of a spliced direction; 256 KiB
	Copy       bool // never splice
}

const (
	defaultPairs   = 4096
	defaultMessage = 1 << 20
	defaultPipe    = 256 << 10
	copySize       = 128 << 10 // bytes that one read of a copied stream asks for
)

// Stats are counters over all pairs.
type Stats struct {
	Started  uint64 // pairs
	Open     uint64 // pairs now
	Failed   uint64 // pairs that ended by an error
	Full     uint64 // pairs refused
	Bytes    uint64 // written to targets
	Messages uint64 // of these, by message-wise transfers
	Reads    uint64 // system calls that move data
	Writes   uint64
	Blocked  uint64 // writes that the target did not take
	TooLong  uint64 // datagrams longer than MaxMessage or than the target takes, dropped
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("started", s.Started)
	f("open", s.Open)
	f("failed", s.Failed)
	f("full", s.Full)
	f("bytes", s.Bytes)
	f("messages", s.Messages)
	f("reads", s.Reads)
	f("writes", s.Writes)
	f("blocked", s.Blocked)
	f("drop_too_long", s.TooLong)
}

// Relay joins ends on one loop.
type Relay struct {
	c     Config
	loop  *eventloop.Loop
	pool  pool
	stats Stats
	pairs *Pair // all that are open

	lingers *Lingers // sockets of pairs that have ended
}

// New makes a Relay. Nothing is opened before the first Start.
func New(c Config, loop *eventloop.Loop) *Relay {
	c.MaxPairs = orDefault(c.MaxPairs, defaultPairs)
	c.MaxMessage = orDefault(c.MaxMessage, defaultMessage)
	c.PipeSize = orDefault(c.PipeSize, defaultPipe)
	r := &Relay{c: c, loop: loop, lingers: NewLingers(loop)}
	r.pool = pool{
		pipes: make([]pipe, 0, keep), buffers: make([][]byte, 0, keep),
		pipeSize: c.PipeSize, bufSize: FrameHeader + max(c.MaxMessage, copySize),
	}
	return r
}

func orDefault(v, d int) int {
	if v <= 0 {
		return d
	}
	return v
}

// Start joins a and b, whose descriptors belong to the relay from now on. ended
// is called once, on the loop, after they are closed; it may be nil. When Start
// returns an error nothing has changed hands.
func (r *Relay) Start(a, b End, ended func(Result)) (*Pair, error) {
	if r.stats.Open >= uint64(r.c.MaxPairs) {
		r.stats.Full++
		return nil, ErrFull
	}
	p := &Pair{r: r, ended: ended}
	if err := p.open([2]End{a, b}); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	p.next = r.pairs
	if p.next != nil {
		p.next.prev = p
	}
	r.pairs = p
	r.stats.Started++
	r.stats.Open++
	p.settle()
	return p, nil
}

func (r *Relay) unlink(p *Pair) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		r.pairs = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	r.stats.Open--
}

// Stats returns the counters.
func (r *Relay) Stats() Stats { return r.stats }

// Close ends all pairs and gives everything back. Start returns ErrFull from then
// on.
func (r *Relay) Close() {
	r.c.MaxPairs = 0
	for r.pairs != nil {
		r.pairs.Close()
	}
	r.lingers.Stop()
	r.pool.close()
}

// Result is how a pair ended.
type Result struct {
	Bytes [2]uint64  // from a to b, from b to a
	Err   unix.Errno // 0: both directions came to their end
}
