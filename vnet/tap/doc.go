// Package tap is a link.Endpoint over a tap interface of Linux (/dev/net/tun),
// whose other end is the stack of a network namespace.
//
// Every frame follows a virtio-net header (IFF_VNET_HDR, 12 bytes, little-endian:
// virtio 1.3, 5.1.6), so that frames of 64 KiB pass both ways at any MTU: the
// stack hands over TCP super-segments (TSO) and trains of datagrams (USO) uncut,
// and takes them. What the kernel can do is probed, the most first.
//
// Who calls it: Open in the namespace that shall have the interface, by whoever
// sets it up; all else on the loop. vnet/vhostnet, whose frames the kernel moves
// to and from such an interface, sets it up and reads and makes headers with what
// is here.
//
// What it trusts: the kernel wrote the header, but with what a process of the
// namespace gave it (packet sockets have vnet headers of their own), so it is
// checked against the frame all the same. The bytes of a frame are private: the
// kernel has copied them.
//
// States: up from the first turn on; gone when the interface is deleted, or its
// namespace, which is told by LinkDown, GuestGone and Config.Gone. While the
// interface is down, frames towards it are dropped and counted.
//
// From the namespace: one read per frame into one arena, in batches of at most 64
// frames or 192 KiB and one frame; a turn takes 256 frames or 2 MiB. The kernel
// keeps txqueuelen frames that wait, and drops more.
//
// Towards the namespace: slots lie in an arena of 512 KiB, header and payload in
// one piece; Commit writes them, one call per frame, which passes them through
// the namespace's stack before it returns. Only where somebody has limited the
// interface's send buffer (TUNSETSNDBUF) are frames kept: then nothing can be
// reserved until they have left, and Writable follows.
//
// Limits: link.MaxFrame bytes per frame; 256 slots per reservation; one queue.
//
// What it deliberately does not do: no addresses and no link state (vnet/netns),
// no padding, no persistent interfaces, no vhost-net (vnet/vhostnet).
package tap
