// Package packet is the wire format of virtio-vsock (virtio 1.3, 5.10.6): the
// header that every packet begins with, its operations, types and flags, and the
// context identifiers (CIDs) that name guests.
//
// Who calls it: the device and whoever makes or reads packets in tests. Nothing
// here has state, allocates or blocks.
//
// What it trusts: nothing needs to be trusted. Every 44 bytes are some header;
// what its fields may be is for the reader to judge.
//
// What it deliberately does not do: no datagrams, which no mainline kernel has
// over virtio.
package packet
