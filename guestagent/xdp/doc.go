// Package xdp moves frames between a guest's network card and user space by
// AF_XDP sockets: with the card's own buffers (zero copy) where driver and host
// allow it, copied by the kernel elsewhere.
//
// # Who calls it
//
// `guestwire agent xdp`. A Socket and its rings belong to one goroutine. Attach
// and Open may be called from any goroutine that is in the card's network
// namespace, whose thread must be locked to it if that is not the process's.
//
// # Parts
//
//	ring       one of a socket's four rings, shared with the kernel (linux/if_xdp.h)
//	Socket     UMEM and rings of one queue of a card; Open says whether zero copy
//	           was had as the kernel answers (XDP_OPTIONS), and fails if it was
//	           asked for and cannot be had
//	Program    leads the frames of a UDP port to sockets; all others go their way
//	Probe      the conditions of zero copy, by name, with what to change
//	Sender, Receiver   the loops over a socket, or over system calls to compare with
//
// # A frame's way
//
//	free --Frame--> filled --Queue, Flush--> TX ring --card--> completion ring --> free
//	fill ring --card--> RX ring --Receive--> the caller's --Release--> fill ring
//
// Half of the UMEM is for each way, so that neither starves the other; a socket
// that only sends has no RX ring and all of it.
//
// # What it trusts
//
// The kernel, with the contents of rings; indices and addresses are checked
// against their size even so, since a wrong one would be a fault in our process.
// Frames of the wire are data: headers are checked before they are believed.
//
// # Limits
//
//	frames          4,096 of 2,048 bytes (8 MiB of locked memory) by default
//	rings           2,048 entries
//	batch           64 frames for one wake-up of the kernel
//	frame           what the chunk leaves behind its headroom: 1,766 bytes of MTU in
//	                2,048 bytes; one frame is one chunk (no XDP_USE_SG: virtio-net
//	                has no multi-buffer frames in zero copy)
//
// # What it deliberately does not do
//
// No busy polling: SO_PREFER_BUSY_POLL keeps virtio-net's transmission from ever
// starting (its TX NAPI is not the one that is polled). No shared UMEM, no
// unaligned chunks, no metadata.
package xdp
