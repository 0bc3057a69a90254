// Package translate turns a guest's Ethernet frames into traffic of ordinary
// host sockets, and back (L4 translation). It needs no privileges: all it does
// on the host is what any program may do with sockets.
//
// # Theory of operation
//
// Towards the guest we are the only other station on its link: its router, its
// DHCP server, its resolver. Both ends of a guest's TCP connection to the world
// are real TCPs: the guest's own, which talks to ours (translate/tcp) over a
// link that loses next to nothing, and the host kernel's, which talks to the
// peer. So congestion control, path MTU and retransmission over the network are
// the host kernel's work, and we move bytes between the two.
//
//	link.Handler.Frames -> wire.Parse (headers copied once) -> admission of the source
//	   -> neigh (ARP, NDP) | dhcp | dns               answered here
//	   -> reasm (fragments) -> again from the start
//	   -> tcp | udp | icmp                            one host socket per flow
//	host socket readable -> tcp | udp | icmp -> link.Endpoint -> guest
//
// Every flow stands in one flow table (translate/flow) under its guest side;
// which host side it has is decided once, when it begins, by translate/forward.
//
// # Who calls it
//
// The device (vnet, vnet/stream), through link.Handler, and the event loop, for
// host sockets and timers; all on the one loop goroutine of the worker.
//
// # What it trusts
//
// Nothing from the guest: every header field is copied once, then checked, and
// only the copy is used. Nothing from the network beyond what the host kernel
// has checked. Every frame that is not acted on is counted under exactly one
// reason (Drop, or the reasons of the rooms below).
//
// # Limits
//
// One guest. The flow table holds Config.MaxFlows flows (131,072 by default); a
// flow costs less than 1 KiB of memory while idle, and one file descriptor.
//
// # What it deliberately does not do
//
// No bridge: frames between guests, multicast and protocols other than TCP, UDP
// and ICMP echo are not carried. No interpretation of what is inside TCP or UDP
// except DNS queries to its own forwarder.
package translate
