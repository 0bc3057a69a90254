// Package vsockbridge is the virtio-vsock device (virtio 1.3, 5.10): it connects
// a guest's AF_VSOCK sockets, stream and seqpacket, with sockets of the host, and
// with those of sibling guests.
//
// Towards the frontend a Device is a vhostuser.Device. The host's side it meets
// at two small interfaces: a Host opens the socket for a connection that the guest
// asks for, an Initiator asks for one to the guest. Which sockets those are, the
// room hostside knows. Payload is not moved by the device: the kernel reads it
// from guest memory and writes it there (sendmsg, recvmsg), many packets at once.
//
// Who calls it: everything runs on the loop. The vhost-user server calls for
// messages and kicks; the loop for host sockets (hostSide), deadlines, turns that
// were asked for, and the end of every turn (Flush).
//
// RX and TX are named as the guest's driver sees them: RX is towards the guest.
//
// # What is trusted
//
// Of the driver nothing. Headers are copied once, from however many descriptors
// they lie in, and judged: CIDs, length, type, operation, counters. What is wrong
// with a chain costs that chain (Drop); what is wrong with a packet of a
// connection ends the connection (RST, Violations); what is wrong with a ring
// breaks the device until it is set up anew, and ends all connections. An RST is
// never answered. Host sockets are trusted to be what Dial and Accepted say:
// connected or connecting, non-blocking, of the type that was asked for; what
// their peers do is not.
//
// # A turn
//
// From the guest: up to 64 packets are popped with one look at avail.idx. Those
// with payload for one stream are put together, header by header, and go to its
// socket in one sendmsg; anything else first sends what was put together. What a
// socket does not take is copied to wait for EPOLLOUT (stage); later packets of
// that connection queue up behind it. The guest's credit comes back only for what
// the socket took. The ring is always drained, except as told under Siblings.
//
// Towards the guest: whoever has something for it, bytes in the socket or an
// answer owed, is in the run queue. At the end of the turn (Flush) they are
// served in order, up to 256 KiB each: answers first, then one recvmsg over as
// many chains as the last one needed and twice that, whose headers are filled in
// afterwards; chains not needed go back. Every packet tells of credit; one is
// sent for that alone only when a quarter of the window that the guest really has
// was given back. One publish and at most one call per ring end the turn. The
// call for returned transmit chains, which only a full ring waits for, is put off
// by up to a millisecond.
//
// Host sockets are watched edge-triggered: what cannot go on is remembered, and
// costs neither calls nor turns until something changes. An empty transmit ring
// is looked at for 20 us before a kick is asked for, if the driver has shown that
// it comes back so soon; receive buffers only when there is something for them.
//
// # A connection
//
//	          REQUEST, connect under way      connected: RESPONSE
//	(none) ------------------------> dialing ------------------+
//	   |   REQUEST, connected: RESPONSE                        v
//	   +---------------------------------------------------> open
//	   |   Connect: REQUEST                  RESPONSE          ^
//	   +-----------------------------> asked ------------------+
//
//	open    SHUTDOWN both, bytes wait   -> leaving, which flushes them
//	        SHUTDOWN both               -> ended
//	leaving flushed                     -> ended
//	        RST                         -> orphan, which flushes them unseen
//	ended   the RST is sent             -> (none)
//	any     RST of the guest            -> (none)
//	        a packet that cannot be, a deadline -> ended
//
// Within open the directions end one by one. EOF of the host socket is SHUTDOWN
// of sending; a write that fails, of receiving; a peer that hung up, of both. The
// guest's SHUTDOWN of sending is shutdown(SHUT_WR) behind what it sent before, of
// receiving shutdown(SHUT_RD). state.go is the table.
//
// What a connection owes the guest are flags in it, not entries of a queue. A
// guest that posts no receive buffers can make neither grow.
//
// # Credit
//
// credit.go. Counters that cannot be end the connection; they wrap, and what is
// free never becomes negative. Towards the guest there is a second bound, in
// packets: Linux guests of 2026 reset a connection with more than buf_alloc/576
// unread packets, however short. A host socket that waits for credit has the
// guest asked for it once: at once for want of packets, else after 250 ms.
//
// # Seqpacket
//
// Messages stay whole. Of the guest's, one in a single packet goes out from guest
// memory, one in several is put together first. Of the host's, whose length
// MSG_PEEK tells, none is begun before the guest has credit for all of it; one
// that there are too few chains for is read into memory of ours. One longer than
// the guest's buf_alloc, or than the host's socket can send, ends the connection.
// Empty messages, which vsock does not have, are left out.
//
// # Siblings
//
// Guests that share a Group, and a loop, may connect to each other. Their packets
// pass through with their credit unchanged, so each sees what a direct peer would
// do; the device keeps both ends, checks who they are and what they may send, and
// resets both when one goes. Packets wait in the receiver's inbox for its end of
// turn. With more than 1 MiB there, those who send to it are left alone in their
// rings, and with them whatever else they send, unless it is left alone itself:
// then up to 8 MiB may wait, beyond which connections are reset. To a guest that
// is paused no more than the 1 MiB is kept.
//
// # Another guest
//
// Connections last through a pause, and a change of memory; they end when the
// guest turns out to be another: after Reset or Disconnected, with other features,
// or with rings elsewhere than where they stopped. A guest that had another device
// before is sent TRANSPORT_RESET, if the frontend gives us the event queue. QEMU
// keeps that: there such a guest hears RST with the next packet that it sends.
//
// # Limits
//
//	connections         4096, at most 32768 (Config.MaxConns)
//	credit of one       1 MiB (Config.BufAlloc); less when there are many, at least 64 KiB:
//	                    together 256 MiB, or 64 KiB times MaxConns if that is more
//	bytes that wait     the credit, of memory at most three times that (short messages)
//	credit used         64 MiB of what a guest offers
//	payload of a packet 64 KiB either way
//	resets for nobody   256 wait, more are lost (counted)
//	dialing             30 s
//	asked               5 s
//	leaving, and open with both directions ended by the host: 10 s
//	orphan              60 s
//	closed TCP sockets  linger (relay.Lingers): 256, each 5 s and 4 MiB
//	host ports          16384..65535, for connections that the host asked for
//	turn                256 chains or 4 MiB from the guest, 512 or 2 MiB towards it
//
// # What it deliberately does not do
//
// No datagrams, no packed rings, no migration of connections, no descriptors
// passed over UNIX sockets (they are dropped, their bytes pass), no urgent data.
package vsockbridge
