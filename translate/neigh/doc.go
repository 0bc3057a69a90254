// Package neigh is what the guest finds at the other end of its Ethernet link:
// it answers ARP and IPv6 neighbour discovery, advertises itself as the IPv6
// router, and looks for the guest when the link comes up.
//
// Who calls it: the translator, on the worker's loop. Input gets every ARP packet
// and every ICMPv6 message of types 133 to 137 that wire.Parse accepted.
//
// What it trusts: nothing in the packets. Lengths come first, options are walked
// with a counter that always advances, the hop limit must be 255 (RFC 4861 6.1,
// 7.1), and the link-layer address inside a message must be that of its frame.
//
// Answers are stateless: every address of the link is ours to answer for, except
// the guest's own, because behind us is everything else. Conflict detection
// (RFC 5227 probes, RFC 4862 DAD) is answered only for addresses that we really
// hold; a guest may take any other. A claim of one of ours is counted and
// otherwise ignored. Router advertisements and redirects from the guest are
// dropped: it is a host here.
//
// What it learns: the guest's MAC and addresses, into guest.Port, from valid
// messages only and only while the fields are unset; a leased address that shows
// up replaces another one.
//
// Timers: router advertisements follow RFC 4861 6.2.4 (three soon after link up,
// then every 200 to 600 s); probes for a guest that has not been heard go out at
// link up and then with doubling intervals from 1 s to 60 s until it has.
//
// Limits: 256 answers at once and 256 per second, further ones are dropped and
// counted; messages of up to 1500 bytes; 8 name servers and as much of the search
// list as fits in 1280 bytes of advertisement. No memory beyond the struct.
//
// What it deliberately does not do: no neighbour cache (there is one neighbour,
// and guest.Port has its address), no DHCP, no multicast listener discovery, no
// SEND.
package neigh
