// Package flow is the one flow table of a guest: every TCP connection, UDP flow
// and echo session that crosses the translator has one entry here, whatever its
// protocol, so that limits, ageing and pressure are decided in one place.
//
// # Two sides
//
// A flow has a guest side and a host side. Key is the flow as the guest sees
// it: the guest's address and port, and the remote address and port that the
// guest talks to (or is talked to by). Host and HostLocal are the two ends of
// the host socket that carries it. Initiator says which side began. Nothing
// else has a direction.
//
// # Life cycle
//
//	        Insert            Advance(Active)           Advance(Closing)
//	free  ---------> Opening ----------------> Active ------------------> Closing
//	 ^                  |                        |                          |
//	 +------ Remove ----+------- Remove ---------+-------- Remove ----------+
//
// Opening: the entry exists and answers Lookup; the other side has not agreed
// yet (a connect in flight, a SYN to the guest not answered). Active: both sides
// agreed. Closing: one side is done and only the rest is being delivered; the
// entry still answers Lookup. Opening may go straight to Closing. States never
// go back; a protocol that starts over removes and inserts.
//
// # Names of flows
//
// A flow is addressed by its index. An index is reused after Remove; whoever
// keeps one across turns keeps a Handle (index and generation) instead and asks
// Get. Index 0 is never a flow, so that the zero value of a field means none.
//
// # Who calls it
//
// The translators of one guest, on that guest's loop goroutine. Time comes from
// the caller; nothing here reads a clock, calls back later or starts anything.
//
// # What it trusts
//
// Keys hold addresses and ports that a guest or a peer chose; the hash is
// SipHash-1-3 under a secret of the process, so neither can aim at one bucket.
//
// # Limits
//
// At most max flows in all (at most MaxFlows) and, where SetLimit was called, so
// many of one protocol. A full table refuses Insert; whether to evict is the
// caller's decision (OldestIdle). An idle table holds a few KiB; entries come in
// chunks of 64 and the hash index costs 8 to 16 bytes per flow.
//
// # What it does not do
//
// No protocol state (Slot points into the protocol's own Slab), no timers, no
// sockets, no half-open limit (tcp's; Count gives it the number).
package flow
