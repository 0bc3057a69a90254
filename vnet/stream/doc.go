// Package stream is a link.Endpoint over QEMU's `-netdev stream` framing: a
// UNIX stream socket on which every Ethernet frame follows its length, a
// big-endian uint32.
//
// It is the transport for frontends without vhost-user. There is no virtio
// header on this socket, so no offload either: Caps has none, checksums are
// complete and frames keep to the MTU, both ways.
//
// Who calls it: all methods on the loop. The Endpoint registers its sockets on
// the loop and Flush behind every turn.
//
// What it trusts: nothing the peer sends. A length of 0 or beyond link.MaxFrame
// means that framing is lost, and closes the connection.
//
// States: listening (or waiting to connect again), connected. Every connection is
// a guest that has started anew: LinkUp(fresh). One peer at a time; a second one
// is closed at once. In client mode, and only there, a lost or refused
// connection is tried again every 500 ms.
//
// From the guest: one read of up to 256 KiB per turn, frames handed on in place,
// in batches of at most 64. Frames below 14 bytes are dropped and counted.
//
// Towards the guest: frames are laid out in one buffer of 512 KiB as they are
// reserved, padded to 60 bytes, and written by one call at the end of the turn
// (or earlier when the buffer is full). While the peer does not read, Reserve
// returns what still fits; Writable follows when half the buffer is free again.
// Frames that have been committed when the peer leaves are lost with it.
//
// What it deliberately does not do: no datagram variant, no TCP, no file
// descriptor passing, no more than one peer.
package stream
