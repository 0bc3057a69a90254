package tcp

// Drop says why a segment of the guest was not taken. Every segment is either
// counted as Accepted or under exactly one Drop.
type Drop uint8

const (
	DropAddr        Drop = iota // port 0, or an address no flow can have (T26)
	DropFlags                   // a combination of control bits that means nothing (T17)
	DropNoFlow                  // no such connection; answered with a RST
	DropRefused                 // SYN to where the policy does not let the guest go; answered with a RST
	DropSynRate                 // SYN above the rate of new connections
	DropSynLimit                // SYN above the limit of half-open connections
	DropFlowLimit               // SYN while the flow table is full
	DropSynRepeat               // SYN seen before, or while the first is being worked on
	DropSyn                     // SYN on an established connection; answered with a challenge ACK
	DropReset                   // RST outside the window
	DropResetInside             // RST in the window but not at its start; answered with a challenge ACK
	DropOld                     // nothing new in it; answered with an ACK
	DropWindow                  // beyond the window that was advertised; answered with an ACK
	DropAckOld                  // ACK older than the window; answered with a challenge ACK
	DropAckAhead                // ACK of what was never sent; answered with an ACK
	DropHandshake               // does not fit the handshake; answered with a RST
	DropOutOfOrder              // beyond the bounds of the out-of-order queue; answered with an ACK
	DropInWindow                // no buffer for it although it was in the window
	DropAfterFin                // data behind the guest's FIN
	NumDrops
)

var dropNames = [NumDrops]string{
	"addr", "flags", "no-flow", "refused", "syn-rate", "syn-limit", "flow-limit", "syn-repeat",
	"syn", "rst", "rst-inside", "old", "window", "ack-old", "ack-ahead", "handshake", "ooo-full", "in-window", "after-fin",
}

// String is the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Stats are the counters of an Engine, and a few sizes of the moment.
type Stats struct {
	SegmentsIn uint64 // from the guest
	Accepted   uint64
	Drops      [NumDrops]uint64

	SegmentsOut   uint64 // to the guest, super-frames counted once
	AcksOut       uint64 // of them without data, SYN, FIN or RST
	AcksHeld      uint64 // ACKs that waited for an answer of the target
	ResetsOut     uint64
	Retransmits   uint64 // data, FIN, SYN sent once more
	Timeouts      uint64 // retransmission timer ran out
	Probes        uint64 // zero-window and keepalive probes
	Challenges    uint64 // challenge ACKs (RFC 5961)
	ChallengesCut uint64 // not sent, rate limit
	OutOfOrder    uint64 // segments that were put into an out-of-order queue
	BytesToHost   uint64 // accepted by the kernel
	BytesStaged   uint64 // of them by way of a staging buffer
	BytesToGuest  uint64 // sent for the first time
	ShortWrites   uint64 // the kernel took less than it was offered
	NoRoom        uint64 // a frame had to wait for guest buffers

	Outbound, Inbound uint64 // connections begun
	Established       uint64
	ConnectErrors     uint64
	InboundRefused    uint64 // accepted connections that could not be brought to the guest
	Evicted           uint64
	GaveUp            uint64
	Aborted           uint64 // RST to the guest because of the host side

	Flows, HalfOpen, Waiting int // now
	BufferBytes              int // user-space buffers in use now
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Flows = e.conns.Len()
	s.HalfOpen = e.lists[halfOpen].n
	s.Waiting = e.lists[waiting].n
	s.BufferBytes = e.pool.used * chunkSize
	return s
}

// Each calls f with the name and value of every counter.
func (e *Engine) Each(f func(name string, value uint64)) {
	s := e.Stats()
	f("segments_in", s.SegmentsIn)
	f("accepted", s.Accepted)
	f("segments_out", s.SegmentsOut)
	f("acks_out", s.AcksOut)
	f("acks_held", s.AcksHeld)
	f("resets_out", s.ResetsOut)
	f("retransmits", s.Retransmits)
	f("timeouts", s.Timeouts)
	f("probes", s.Probes)
	f("challenges", s.Challenges)
	f("challenges_cut", s.ChallengesCut)
	f("out_of_order", s.OutOfOrder)
	f("bytes_to_host", s.BytesToHost)
	f("bytes_staged", s.BytesStaged)
	f("bytes_to_guest", s.BytesToGuest)
	f("short_writes", s.ShortWrites)
	f("no_room", s.NoRoom)
	f("outbound", s.Outbound)
	f("inbound", s.Inbound)
	f("inbound_refused", s.InboundRefused)
	f("established", s.Established)
	f("connect_errors", s.ConnectErrors)
	f("evicted", s.Evicted)
	f("gave_up", s.GaveUp)
	f("aborted", s.Aborted)
	for d, n := range s.Drops {
		f("drop_"+Drop(d).String(), n)
	}
	f("flows", uint64(s.Flows))
	f("half_open", uint64(s.HalfOpen))
	f("waiting", uint64(s.Waiting))
	f("buffer_bytes", uint64(s.BufferBytes))
}

func (e *Engine) drop(d Drop) { e.stats.Drops[d]++ }
