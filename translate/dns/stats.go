package dns

// Drop says why a message went nowhere. Each is a counter.
type Drop uint8

const (
	DropShort    Drop = iota // no header
	DropLong                 // query beyond 2048 bytes, answer beyond what was read
	DropResponse             // the guest sent a response
	DropQuestion             // not one question, or a malformed name
	DropFull                 // too many young queries in flight
	DropUnknown              // answer to nothing that was asked there; mostly late ones
	DropMismatch             // answer to another question
	DropNoRoom               // the guest had no buffer for the answer
	NumDrops
)

var dropNames = [NumDrops]string{"short", "long", "response", "question", "full", "unknown", "mismatch", "no-room"}

// String is the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Stats are counters.
type Stats struct {
	Queries        uint64 // taken from the guest
	Answers        uint64 // given to it
	Retries        uint64 // asked again after a timeout
	Unreachable    uint64 // attempts that the host knew to be in vain
	ServerFailures uint64 // SERVFAIL of our own
	NotImplemented uint64 // NOTIMP of our own
	Evicted        uint64 // gave way to a newer query
	Drops          [NumDrops]uint64
}

// Stats returns the counters.
func (r *Forwarder) Stats() Stats { return r.stats }

// Each calls f with the name and value of every counter.
func (r *Forwarder) Each(f func(name string, value uint64)) {
	s := &r.stats
	f("queries", s.Queries)
	f("answers", s.Answers)
	f("retries", s.Retries)
	f("unreachable", s.Unreachable)
	f("server_failures", s.ServerFailures)
	f("not_implemented", s.NotImplemented)
	f("evicted", s.Evicted)
	f("pending", uint64(len(r.byID)))
	for d := range NumDrops {
		f("drop_"+d.String(), s.Drops[d])
	}
}

func (r *Forwarder) drop(d Drop) { r.stats.Drops[d]++ }
