// Package icmp carries the guest's echo requests over the host's ping sockets,
// and tells the guest by ICMP and ICMPv6 errors why a packet of any protocol did
// not get on.
//
// # Echo
//
// Every identifier and destination is a flow with a ping socket of its own
// (SOCK_DGRAM, IPPROTO_ICMP): the host kernel chooses the identifier on the
// network, and the guest's is put back into the replies. Sequence number,
// payload and TTL are kept, so that ping and traceroute -I work. Echo requests
// to the gateway's own addresses are answered here. A flow ends after 60 s
// without traffic.
//
// A host may forbid ping sockets (net.ipv4.ping_group_range is empty by
// default): this is said once in the log, counted, and told to the guest as
// "administratively prohibited".
//
// # Errors
//
// Unreachable, TooBig and Hop quote a packet that is at hand; Report and Relay
// make the quote up from what is known, when the guest's frame is long gone. All
// rooms share one rate limit (guest.Port.Errors). What is never sent: errors
// about errors, about multicasts and broadcasts, and redirects.
//
// # Who calls it
//
// The translator and the other L4 rooms, on the worker's loop.
//
// # What it trusts
//
// Payload that passes through is opaque. ICMP errors from the network come by
// way of the host kernel's error queue, which has matched them with our socket;
// of the guest's ICMP only echo requests are acted on, so no error or redirect
// of its own changes anything.
//
// # Limits
//
// Quotes: 548 bytes on IPv4, 1232 on IPv6. Echo flows: Config.MaxFlows (1024);
// the one longest idle gives way. Echo payload: what one datagram carries, sent
// to the guest in fragments beyond its MTU.
//
// # What it does not do
//
// No ICMP other than echo is carried. No timestamps, no router discovery
// (translate/neigh).
package icmp
