package tcp

import (
	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// flags are facts about a connection that are not its state.
type flags uint32

const (
	fV6         flags = 1 << iota
	fSACK             // SACK was agreed
	fInbound          // the host side began
	fHostReady        // the host socket may have bytes that were not read
	fHostEnd          // the target's FIN is behind the unread bytes
	fHostFailed       // the host socket has an error, which the guest gets behind the unread bytes
	fHostFull         // the host socket took less than offered: wait for Out
	fPeerSeq          // irs is known
	fFinAhead         // the guest's FIN came out of order; finAt is valid
	fFinIn            // the guest's FIN came in order
	fFlushed          // and the kernel has every byte before it
	fFinQueued        // the target's end was read; finSeq is valid
	fFinAcked         // the guest has ACKed our FIN
	fAckOwed          // an ACK has to go out
	fAckHeld          // but waits for an answer of the target to go with
	fAckAlone         // one for data has gone alone
	fResetOwed        // so has a RST
	fSynOwed          // so has our SYN or SYN-ACK
	fRtxOwed          // so has the first unacknowledged segment
	fTiming           // a round trip is being measured
	fRecover          // loss recovery until recover is ACKed
	fPersist          // rtxAt is a window probe
	fKeepHost         // SO_KEEPALIVE is on
)

// conn is one connection. It is in a slab, addressed by slot; a pointer to it
// stays good until free. Sequence variables have the names of RFC 9293 3.3.1;
// doc.go draws them.
type conn struct {
	state   State
	shift   uint8 // of windows that the guest advertises
	rshift  uint8 // of windows that we advertise
	dups    uint8 // duplicate ACKs in a row
	retries uint8 // of the retransmission timer, without an ACK in between
	probes  uint8 // keepalive and window probes without an answer
	answers uint8 // answers of the target that came at once, up to ackAnswers
	why     Why   // of Report
	mss     uint16

	flags flags
	slot  uint32
	flow  uint32
	fd    hostsock.FD
	batch int32 // 1 + index in Engine.batch, 0: not touched in this batch

	// Guest to host.
	irs    wire.Seq
	rcvNxt wire.Seq // next byte expected of the guest
	edge   wire.Seq // right edge of the window, as the guest knows it; never goes back
	finAt  wire.Seq // number of the guest's FIN
	wrNxt  wire.Seq // next byte for the kernel; [wrNxt, wrNxt+staged) is in inBuf
	staged uint32
	allow  uint32 // allowance: the window of an unblocked connection
	inBuf  uint32 // slab index of staged and out-of-order bytes, 0: none

	// Host to guest.
	iss    wire.Seq
	una    wire.Seq
	nxt    wire.Seq
	max    wire.Seq // highest nxt ever
	wnd    uint32   // as the guest advertised last
	maxWnd uint32
	wl1    wire.Seq
	wl2    wire.Seq
	finSeq wire.Seq // number of our FIN
	base   wire.Seq // number of the first byte in the kernel's receive queue (or in outBuf)
	peek   uint32   // the kernel's peek offset, from base
	known  wire.Seq // without SO_PEEK_OFF: end of what is in outBuf
	hint   uint32   // bytes to offer the next read
	outBuf uint32   // slab index of unacknowledged bytes, without SO_PEEK_OFF

	// Loss recovery.
	recover wire.Seq
	rtxNxt  wire.Seq // holes below were retransmitted
	cwnd    uint32   // after a timeout, 0: no limit
	board   uint32   // slab index of the guest's SACK blocks
	rttSeq  wire.Seq
	srtt    uint32 // microseconds
	rttvar  uint32

	timer   eventloop.TimerID
	timerAt eventloop.Time // when the wheel will call, 0: not armed
	rtxAt   eventloop.Time // retransmission, probe or handshake timer, 0: off
	idleAt  eventloop.Time // keepalive or linger timer, 0: off
	rttAt   eventloop.Time
	heard   eventloop.Time // last segment of the guest
	moved   eventloop.Time // last progress of data, either way
	fullAt  eventloop.Time // since when fHostFull

	queue place // in waiting
	age   place // in halfOpen or lingering
}

func (c *conn) has(f flags) bool { return c.flags&f != 0 }
func (c *conn) set(f flags)      { c.flags |= f }
func (c *conn) clear(f flags)    { c.flags &^= f }

// hosted says whether the connection exists and has a host socket: any call
// that writes or reads may have ended it.
func (c *conn) hosted() bool { return c.state != Closed && c.fd != hostsock.None }

// inFlight is how much of what was sent the guest has not ACKed.
func (c *conn) inFlight() int { return int(c.max.Diff(c.una)) }

// lookup finds the connection of a segment. Segments of one flow come in runs.
func (e *Engine) lookup(p *wire.Packet) *conn {
	k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, RemotePort: p.DstPort, Proto: wire.ProtoTCP}
	if e.hot != nil && e.hotKey == k {
		return e.hot
	}
	i, ok := e.flows.Lookup(&k)
	if !ok {
		return nil
	}
	e.hot, e.hotKey = e.conns.At(e.flows.At(i).Slot), k
	return e.hot
}
