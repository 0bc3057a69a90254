// Package udp carries the guest's datagrams over host sockets and back.
//
// # Flows
//
// A flow that the guest begins has a connected host socket of its own, bound to
// the guest's source port where the host lets us. A flow that a peer begins, by
// sending to a socket that the caller handed to Serve (an inbound forward), has
// no socket: its answers leave through the served one, from the address that the
// peer had sent to.
//
//	Opening  --traffic the other way-->  Active
//	   | 30 s idle                          | 120 s idle
//	   +------------> ended <---------------+
//
// Under pressure (flow table full, EMFILE) the flow longest idle ends early,
// rather one that was never answered.
//
// # Guest to host
//
// Input only notes a datagram: the flow's list of this batch grows by an index.
// EndBatch sends flow by flow. A run of equal datagrams (a shorter last one may
// close it) leaves as one UDP_SEGMENT send straight from guest pages, the rest
// by sendmmsg; a USO super-frame of the guest leaves the same way. What the
// host's send buffer does not take is dropped and counted, as on any link.
// (hostsock sends a run singly where a route refuses segmentation.)
//
// # Host to guest
//
// A readable socket is read with UDP_GRO into scratch that all flows share, and
// cut into frames, or passed on as USO super-frames where the guest takes them.
// When the guest has no room, what was read stays in the scratch, nothing more is
// read, and the sockets that become readable meanwhile queue up: the kernel's
// buffers hold their datagrams. Writable goes on in that order. Sockets are
// watched edge-triggered, so that waiting costs nothing. A socket that streams,
// that is whose datagrams come without anything from the guest in between, rests
// for 200 us after it was read: the guest then gets batches, and one interrupt for
// each.
//
// # Errors
//
// A socket's error queue is told to the guest as ICMP errors, with the sender
// that the network saw, so that traceroute works; the TTL is kept, less the hop
// that we are.
//
// # Who calls it
//
// The translator and the event loop, on the loop's goroutine.
//
// # What it trusts
//
// wire.Packet is a private copy; payload is opaque and goes to the kernel
// unread. A GSO size comes from the guest: frames that would become more than
// 128 datagrams are dropped, as Linux does.
//
// # Limits
//
// Config.MaxFlows flows; 256 datagrams gathered at a time; runs of up to 64
// datagrams and 65487 bytes; 1 MiB of receive scratch; 64 messages read from one
// socket in a turn.
//
// # What it does not do
//
// No multicast, no broadcast. No DNS (translate/dns takes its datagrams before
// we see them). It never holds a guest's datagram beyond EndBatch.
package udp
