package vhostuser

import "guestwire/vring"

// Counters count over the life of a Server.
type Counters struct {
	Connections uint64
	Refused     uint64                 // second frontends
	Nacks       uint64                 // requests refused
	Messages    [maxRequest + 1]uint64 // by Request; [0]: unknown ones
	LastClose   string                 // why the last connection ended
}

// State is a snapshot of a Server.
type State struct {
	Connected        bool
	Features         uint64 // acknowledged by the frontend
	ProtocolFeatures uint64 // acknowledged by the frontend
	Status           uint8  // virtio device status, as SET_STATUS left it
	Regions          int    // of guest memory
	Logging          bool   // the dirty log is on
	Rings            []RingInfo
	Counters         Counters
}

// RingInfo is a snapshot of one ring.
type RingInfo struct {
	RingState
	Size      uint16
	LastAvail uint16             // avail index it has come to
	Polled    bool               // has no kick descriptor
	Broken    *vring.BrokenError // why, while Phase is Broken
	Stats     vring.QueueStats   // since the frontend connected
}

// State describes the session, for status output. It allocates.
func (s *Server) State() State {
	b := &s.backend
	st := State{
		Connected: s.conn.fd >= 0, Features: b.features, ProtocolFeatures: b.protocol, Status: b.status,
		Regions: len(b.mem.Regions()), Logging: b.activeLog() != nil,
		Rings: make([]RingInfo, len(b.rings)), Counters: s.counters,
	}
	for i := range b.rings {
		r := &b.rings[i]
		r.noticeBroken()
		st.Rings[i] = RingInfo{RingState: r.state, Size: r.size, LastAvail: r.base, Polled: r.kick < 0 && r.state.Has&HasKick != 0,
			Broken: r.broken, Stats: r.stats}
		if r.q != nil {
			st.Rings[i].LastAvail = r.q.LastAvail()
			st.Rings[i].Stats = addStats(r.stats, r.q.Stats())
		}
	}
	return st
}
