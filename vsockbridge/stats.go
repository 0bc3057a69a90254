package vsockbridge

import "guestwire/vring"

// Counters are the device's own, beside drops. RX is towards the guest.
type Counters struct {
	RxPackets, RxBytes uint64 // bytes of payload
	TxPackets, TxBytes uint64
	Reads              uint64 // system calls that read from host sockets
	Writes             uint64 // and that write to them
	Kicks              uint64 // that the loop heard of; several at once are one

	GuestOpened    uint64 // connections that the guest requested and the host serves
	HostOpened     uint64 // connections that the host requested and the guest accepted
	SiblingOpened  uint64 // connections that the guest requested and a sibling was asked for
	SiblingPackets uint64 // packets of the guest that were passed to siblings
	InboxFull      uint64 // connections reset because too much waited for a sibling

	DialsFailed uint64 // requests of the guest that no host socket serves
	Full        uint64 // connections that were one too many
	TimedOut    uint64 // phases that should be short and were not
	Violations  uint64 // connections reset over packets that cannot be
	TooLong     uint64 // connections reset over a host message that the guest can never take

	Resets         uint64 // packets sent, by operation
	CreditUpdates  uint64
	CreditRequests uint64
	ResetsLost     uint64 // resets for which there was no room
	Staged         uint64 // times that bytes of the guest had to be copied to wait for a host socket
	Blocked        uint64 // times that a host socket had to wait for the guest's credit
	RxStarved      uint64 // times that the receive ring was empty
	Faults         uint64 // memory faults and panics that broke the rings
}

// Stats is a copy of everything the device counts.
type Stats struct {
	Counters
	Drops       [numDrops]uint64
	Connections uint64           // now
	StagedBytes uint64           // memory that waiting bytes have now
	RX, TX      vring.QueueStats // since the ring was started
}

// Stats returns the counters.
func (d *Device) Stats() Stats {
	s := Stats{Counters: d.counters, Drops: d.drops,
		Connections: uint64(d.conns.used), StagedBytes: uint64(d.pool.out) * chunkSize}
	if q := d.rings[rxQueue]; q != nil {
		s.RX = q.Stats()
	}
	if q := d.rings[txQueue]; q != nil {
		s.TX = q.Stats()
	}
	return s
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("rx_packets", s.RxPackets)
	f("rx_bytes", s.RxBytes)
	f("tx_packets", s.TxPackets)
	f("tx_bytes", s.TxBytes)
	f("reads", s.Reads)
	f("writes", s.Writes)
	f("kicks", s.Kicks)
	f("connections", s.Connections)
	f("guest_opened", s.GuestOpened)
	f("host_opened", s.HostOpened)
	f("sibling_opened", s.SiblingOpened)
	f("sibling_packets", s.SiblingPackets)
	f("inbox_full", s.InboxFull)
	f("dials_failed", s.DialsFailed)
	f("full", s.Full)
	f("timed_out", s.TimedOut)
	f("violations", s.Violations)
	f("too_long", s.TooLong)
	f("resets", s.Resets)
	f("resets_lost", s.ResetsLost)
	f("credit_updates", s.CreditUpdates)
	f("credit_requests", s.CreditRequests)
	f("staged", s.Staged)
	f("staged_bytes", s.StagedBytes)
	f("blocked", s.Blocked)
	f("rx_starved", s.RxStarved)
	f("faults", s.Faults)
	for r := dropNone + 1; r < numDrops; r++ {
		f("drop_"+r.String(), s.Drops[r])
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
