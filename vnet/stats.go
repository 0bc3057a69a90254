package vnet

import (
	"guestwire/vnet/link"
	"guestwire/vring"
)

// Counters are the device's own, beside frames and drops.
type Counters struct {
	TxBatches uint64 // calls of Handler.Frames
	RxShort   uint64 // reservations that came back short
	RxMoved   uint64 // frames copied into chains that an earlier frame left over
	Writables uint64 // calls of Handler.Writable
	Faults    uint64 // memory faults and panics that broke the rings
}

// Stats is a copy of everything the device counts. RX is towards the guest.
type Stats struct {
	link.Stats
	Counters
	Drops  [numDrops]uint64
	RX, TX vring.QueueStats // since the ring was started
}

// Stats returns the counters.
func (d *Device) Stats() Stats {
	s := Stats{Stats: d.link, Counters: d.counters, Drops: d.drops}
	if d.rx.q != nil {
		s.RX = d.rx.q.Stats()
	}
	if d.tx.q != nil {
		s.TX = d.tx.q.Stats()
	}
	return s
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("rx_frames", s.RxFrames)
	f("rx_bytes", s.RxBytes)
	f("tx_frames", s.TxFrames)
	f("tx_bytes", s.TxBytes)
	f("tx_batches", s.TxBatches)
	f("rx_short", s.RxShort)
	f("rx_moved", s.RxMoved)
	f("writables", s.Writables)
	f("faults", s.Faults)
	for d := dropNone + 1; d < numDrops; d++ {
		f("drop_"+d.String(), s.Drops[d])
	}
	eachQueue("rx_ring_", &s.RX, f)
	eachQueue("tx_ring_", &s.TX, f)
}

func eachQueue(prefix string, q *vring.QueueStats, f func(name string, value uint64)) {
	f(prefix+"pops", q.Pops)
	f(prefix+"pushes", q.Pushes)
	f(prefix+"publishes", q.Publishes)
	f(prefix+"calls", q.Calls)
	f(prefix+"calls_suppressed", q.CallsSuppressed)
	f(prefix+"calls_repeated", q.CallsRepeated)
	f(prefix+"kicks_wanted", q.KicksWanted)
}
