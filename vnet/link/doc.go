// Package link is the seam between the devices that carry a guest's Ethernet
// frames (vnet, vnet/stream, later vnet/tap) and whatever gives those frames a
// meaning (translate).
//
// Who calls it: both sides run on the one loop goroutine of the worker; nothing
// here is safe for use from another goroutine.
//
// Two interfaces, one per direction:
//
//	guest -> host   device calls Handler.Frames with a batch of frames
//	host -> guest   handler calls Endpoint.Reserve, fills slots, Endpoint.Commit
//
// What it trusts: nothing that lies in guest memory. Offload and Frame.Len are
// private copies that the device has validated; the bytes behind Frame.Segs and
// Slot.Payload are shared with the guest, may change at any time, and must be
// read once (copy headers, hand payload to the kernel).
//
// Limits: a frame is at most MaxFrame bytes; at most one reservation is open on
// an Endpoint at a time.
//
// What it deliberately does not do: no addressing, no queues of its own (a frame
// that finds no room is refused at Reserve), no blocking.
package link
