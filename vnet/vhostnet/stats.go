package vhostnet

import (
	"guestwire/vnet/link"
	"guestwire/vring"
)

// Stats are counters. RX is towards the namespace.
type Stats struct {
	link.Stats
	Batches         uint64 // calls of Handler.Frames
	Header          uint64 // frames from the namespace with a header that cannot be, or too short or long; dropped
	RxShort         uint64 // reservations that came back short
	RxOffload       uint64 // frames towards the namespace that ask for what cannot be done; dropped
	Kicks           uint64 // of both rings
	KicksSuppressed uint64 // publishes for which the kernel wanted none
	Broken          uint64 // times that the rings were set up anew
}

// add adds the counters of a ring.
func (s *Stats) add(q *vring.DriverQueue) {
	if q != nil {
		n := q.Stats()
		s.Kicks += n.Kicks
		s.KicksSuppressed += n.KicksSuppressed
	}
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	s := e.stats
	s.add(e.in.q)
	s.add(e.out.q)
	return s
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("rx_frames", s.RxFrames)
	f("rx_bytes", s.RxBytes)
	f("tx_frames", s.TxFrames)
	f("tx_bytes", s.TxBytes)
	f("tx_batches", s.Batches)
	f("rx_short", s.RxShort)
	f("vhost_kicks", s.Kicks)
	f("vhost_kicks_suppressed", s.KicksSuppressed)
	f("vhost_broken", s.Broken)
	f("drop_header", s.Header)
	f("drop_rx_offload", s.RxOffload)
}
