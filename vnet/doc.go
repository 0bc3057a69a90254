// Package vnet is the virtio-net device (virtio 1.3, 5.1) with one queue pair.
//
// Towards the frontend a Device is a vhostuser.Device, towards translation a
// link.Endpoint; it calls a link.Handler. It strips and makes virtio headers,
// turns chains into frames and slots, and moves no payload: the handler's system
// calls read from and write to guest memory itself, up to 64 KiB with one header.
//
// Who calls it: all methods on the loop. The vhost-user server calls it for
// messages and kicks, the handler for frames towards the guest, the loop for
// turns it asked for, and at the end of every turn (Flush).
//
// RX and TX are named as the guest's driver sees them: RX is towards the guest.
//
// # What is trusted
//
// Of the driver nothing. vring hands out chains that are inside guest memory;
// what is in them is checked here: the virtio header is copied once, from
// however many descriptors it lies in, and judged against the length of the frame
// and the features negotiated. Payload is not looked at. What is wrong with one
// chain costs that frame: the chain goes back, a counter by reason goes up
// (Drop). What is wrong with the ring breaks the queue (vring.BrokenError), which
// takes the link down until the ring is set up anew.
//
// # States
//
// The link is up while both rings run, enabled and unbroken; LinkUp and LinkDown
// follow that. Frames from the guest wait in the ring until it is up, unless the
// ring is disabled: then they are discarded (vhost-user, "Ring states").
//
// LinkUp is fresh, so that the handler resets the flows of the guest that was,
// when there is none yet, after Reset and Disconnected, when a driver has
// negotiated other features, and when a ring starts elsewhere than where it was
// stopped. A ring that goes on where it was stopped belongs to a guest that was
// paused, or whose memory was moved. (A frontend without RESET_DEVICE sends the
// same messages for both.)
//
// # A turn
//
// From the guest: up to 64 chains are popped with one look at avail.idx, given to
// the handler as one batch, and pushed. A turn takes 256 chains or 2 MiB, then
// the device queues itself behind the other sources. What a turn has pushed in
// either direction is published at its end, with at most one call per ring;
// earlier only when much has come together, so that the driver can go on.
//
// An empty ring is looked at again in the following turns for up to 20 us when
// the driver has shown that it comes back so soon, and as long as the loop lingers;
// only then a kick is asked for. One that was asked for is revoked when frames
// towards the guest make the loop linger.
// A driver that streams frames without waiting for any of ours (pace) is not
// asked for kicks at all: we look every 100 us, as long as that finds something,
// and call it for returned chains once in 32. One whose few frames are being
// answered at once (hold) is called for the answer; the call for its own chains
// waits up to 200 us for that, and 1 ms more, for the driver to find them itself.
//
// Towards the guest: a slot takes the chains that come next, as few as hold it.
// Commit completes them in ring order and puts the rest back. Kicks on this ring
// are asked for only when a reservation came back short; Handler.Writable follows
// the kick.
//
// # Limits
//
//	queue pairs          1 (MQ is not offered)
//	slots                256 per reservation
//	frame                link.MaxFrame bytes; towards the guest padded to 60
//	MTU                  68..65535
//	GSO over merged RX   only in rings of at least 128 entries
//
// # What it deliberately does not do
//
// No control queue (QEMU has its own; none of its features is offered), no UFO,
// no hashes, no software checksums and no segmentation: the handler reads Caps
// and sends what the driver takes. A frame that the driver did not agree to take
// is dropped and counted, never sent.
package vnet
