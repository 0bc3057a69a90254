// Package vhostnet is a link.Endpoint over a tap interface whose frames the
// kernel's vhost-net moves: we are the driver of two rings in memory that the
// kernel reads and writes, in the place of one read or write for each frame. The
// handler notices no difference from vnet/tap.
//
// Who calls it: New before the loop runs, with a tap of tap.Open and a descriptor
// of vhostkern.Open; all else on the loop.
//
// What it trusts: the kernel moves the frames, but a process of the namespace has
// made them: headers are checked as those of a tap are, and a frame is copied by
// the kernel, so its bytes are private. What the kernel gives back on the rings is
// checked too (vring.DriverQueue).
//
// RX and TX are named as in vnet, as the namespace sees them: RX is towards it.
// The kernel's ring 0, which it calls RX, is thus our TX.
//
// From the namespace: 128 buffers of 32 KiB, merged (VIRTIO_NET_F_MRG_RXBUF), so
// that a frame of 64 KiB takes two. The kernel writes and returns them; they are
// posted again when Handler.Frames has returned. A turn takes 256 frames or 2 MiB,
// in batches of at most 64 or 256 KiB. A call is asked for when the ring is empty
// (EVENT_IDX), so while frames keep coming there are none.
//
// Towards the namespace: 128 slots, each one descriptor with room for the largest
// frame. A slot belongs to the kernel from Commit until the used ring returns it;
// it is never written before. The one returned last is taken first, so that the
// fewest pages are touched. They are published at the end of the turn, when 64 KiB
// have come together, and behind each batch from the namespace, whose sender may
// wait for an answer. When slots run out a call is asked for at half of
// those that are out, and Writable follows it.
//
// States: up from the first turn on. Down when a ring breaks: the kernel has
// signalled its error eventfd, or returned what it was never given. Then both
// rings are detached, and set up anew by the timer that looks once a second; flows
// go on. Gone for good when the interface is deleted, which the same timer finds:
// a tap under vhost-net can be watched by no event but one for every frame.
//
// Limits: link.MaxFrame bytes per frame; 128 slots per reservation; 12.1 MiB of
// memory, of which what was never used is not there; one queue pair.
//
// What it deliberately does not do: no write to the tap beside the ring, which
// would change the order of frames; no busy polling; no zero copy; no counting of
// the frames that the kernel drops, since it does not tell (the interface is down,
// it has no memory).
package vhostnet
