// Package relay joins two descriptors: what comes out of the one goes into the
// other, both ways. Bridges, the guest's agent and forwards between namespaces
// share it.
//
// # Who calls it
//
// Everything runs on the loop. The owner hands over connected descriptors with
// Start, and learns of the end by one call, on the loop, after they are closed.
//
// # A direction
//
//	open --the source ends--> what is held is delivered --> its end is passed on
//	  \---the target is gone--> the source is told
//
// The end of a source is passed on as shutdown(SHUT_WR), or by closing where the
// target is a pipe; the other direction goes on for as long as it likes. A target
// that takes nothing any more (EPIPE, or EPOLLHUP while idle) ends its direction
// alone, and shutdown(SHUT_RD) or close tells who writes to the source. The pair
// ends when both directions have. Any other error ends both at once, and a TCP
// socket is then reset, so that the part does not look like the whole; bytes that
// were held for its target are delivered before.
//
// A TCP socket of a pair that has ended without error lingers (Lingers): what its
// peer still sends is read and forgotten until the peer ends too, since closing
// with that unread would reset the connection and cut what the peer has not read.
//
// A datagram socket has no end. A pair that writes to one ends when the stream
// does; a pair that only reads from one ends when its target has gone.
//
// # How bytes are moved
//
// Between streams: spliced through a pipe, unseen. Between others: message by
// message through a buffer. Message boundaries are kept between Seqpacket,
// Datagram and Framed ends, the last being a stream on which every message is
// behind its length (FrameHeader). A plain stream has no boundaries: what one
// read returns becomes one message, and messages become bytes.
//
// Splicing was chosen by measurement (BenchmarkStream; processor time of the
// relay's thread, ns per KiB, Linux 6.18, two virtual CPUs):
//
//	                 unix 4 KiB  64 KiB  1 MiB    tcp 4 KiB  64 KiB  1 MiB
//	copy, 128 KiB        541      169     175        378      290     284
//	pipe of 64 KiB       281      119     119        416      385     454
//	pipe of 256 KiB      281      105     100        327      289     244
//	pipe of 1 MiB        275      101     103        532      239     206
//
// A round trip of one byte costs the same either way (30 us of processor time).
// Copying remains for a process that is out of descriptors, and for sources that
// cannot be spliced.
//
// # Back-pressure
//
// A direction reads only when it holds nothing. While its target is full it holds
// one pipe or one buffer and waits for EPOLLOUT; its source is not watched, so
// nothing spins. Whatever else is on its way waits in the kernel's buffers.
//
// # Limits
//
// MaxPairs pairs (4096). Each direction holds at most one pipe of PipeSize (256
// KiB) or one buffer of MaxMessage (1 MiB), and that only while its target does
// not take what is in it, or half a frame has come: idle pairs hold two
// descriptors and some 300 bytes. 16 pipes and 16 buffers are kept for the next
// that need one. At most 256 sockets linger, each for at most 5 s and 4 MiB; Close
// of the relay, or the end of the process, cuts that short. 16 reads per direction and turn. Transfers allocate nothing.
//
// # What it trusts
//
// Nothing of the peers. Payload is not looked at, but for the length of a frame:
// one beyond MaxMessage, or an end within a message, ends the pair. A datagram
// that is too long is dropped and counted.
//
// # What it does not do
//
// No connecting, no time-outs (an idle pair stays), no ancillary data (descriptors
// that a peer passes are closed by the kernel), no urgent data. Empty messages
// vanish towards a plain stream, and right before the end of a seqpacket socket.
//
// A non-blocking send to an AF_VSOCK seqpacket socket may take a part of a message
// and say EAGAIN (a defect of the kernel): such a socket must not be an Out.
// Package bridge shows what to do instead.
package relay
