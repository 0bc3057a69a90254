package icmp

type counters struct {
	requests, answered, replies   uint64
	sessions, evicted             uint64
	errorsIn, errorsOut           uint64
	hostErrors, forbidden, faults uint64
	dropType, dropPolicy          uint64
	dropTTL, dropFlows            uint64
	dropGuestFull, dropReply      uint64
}

// Each calls f with the name and value of every counter.
func (e *Engine) Each(f func(name string, value uint64)) {
	s := &e.stats
	f("requests", s.requests)             // echo requests from the guest
	f("answered", s.answered)             // of these, by ourselves
	f("replies", s.replies)               // passed on to the guest
	f("sessions", s.sessions)             // begun
	f("evicted", s.evicted)               // ended early, for want of room
	f("errors_in", s.errorsIn)            // from error queues
	f("errors_out", s.errorsOut)          // of these, told to the guest
	f("host_errors", s.hostErrors)        // failed host calls
	f("forbidden", s.forbidden)           // sockets that the host does not allow
	f("faults", s.faults)                 // calls that met lost guest memory
	f("drop_type", s.dropType)            // not an echo request
	f("drop_policy", s.dropPolicy)        // destination not allowed
	f("drop_ttl", s.dropTTL)              // TTL ran out at the gateway
	f("drop_flows", s.dropFlows)          // flow table full
	f("drop_guest_full", s.dropGuestFull) // local answer without room at the guest
	f("drop_reply", s.dropReply)          // malformed
}
