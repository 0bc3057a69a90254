// Package guest is the guest as translation knows it: one Port per guest, with
// its addresses and ours, its link, and the header building that every room
// shares towards it.
//
// Who calls it: the translation rooms, on the worker's loop. The translator sets
// the fields (LinkUp, learned MAC, leased addresses); the others read them.
//
// What it trusts: its callers. It reads nothing that the guest wrote.
//
// Limits: SendL4 and SendUDP send packets of up to 65535 bytes, cut into
// fragments that fit Caps.MTU. They send all fragments or none;
// the Partly variants send what there is room for and go on later.
//
// What it deliberately does not do: no flows, no retransmission, no queue. When
// the guest has no room it says so and the caller decides.
package guest
