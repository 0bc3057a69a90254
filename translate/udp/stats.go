package udp

type counters struct {
	toHost, toGuest            uint64
	flows, expired, evicted    uint64
	fragmented, rests          uint64
	errorsIn, errorsOut        uint64
	hostErrors, faults         uint64
	dropPort, dropGSO, dropTTL uint64
	dropPolicy, dropFlows      uint64
	dropBusy, dropHost         uint64
	dropGone, dropLong         uint64
}

// Each calls f with the name and value of every counter.
func (e *Engine) Each(f func(name string, value uint64)) {
	s := &e.stats
	f("to_host", s.toHost)         // datagrams sent for the guest
	f("to_guest", s.toGuest)       // datagrams passed to the guest
	f("flows", s.flows)            // begun
	f("expired", s.expired)        // of these, ended by idle time
	f("evicted", s.evicted)        // of these, ended early for want of room
	f("fragmented", s.fragmented)  // datagrams longer than the guest's MTU
	f("rests", s.rests)            // times a streaming socket was left alone for a moment
	f("errors_in", s.errorsIn)     // entries of error queues
	f("errors_out", s.errorsOut)   // of these, told to the guest
	f("host_errors", s.hostErrors) // failed host calls
	f("faults", s.faults)          // calls that met lost guest memory
	f("drop_port", s.dropPort)     // port 0, or no address to use
	f("drop_gso", s.dropGSO)       // USO frame of too many datagrams
	f("drop_ttl", s.dropTTL)       // TTL ran out at the gateway
	f("drop_policy", s.dropPolicy) // destination not allowed
	f("drop_flows", s.dropFlows)   // flow table full
	f("drop_busy", s.dropBusy)     // host send buffer full
	f("drop_host", s.dropHost)     // the host refused to send
	f("drop_gone", s.dropGone)     // for a flow that had ended
	f("drop_long", s.dropLong)     // does not fit the guest
}
