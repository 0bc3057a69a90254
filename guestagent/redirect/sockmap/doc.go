// Package sockmap has the kernel move what arrives at a UNIX socket to a vsock
// stream, without the agent: a BPF program in a sock map hands each buffer over.
//
// # Who calls it
//
// Package redirect. A Kernel is opened once and lends slots to the Tables of all
// loops; it has goroutines of its own that make slots (milliseconds each) and wait
// for grace periods. A Table and its flows belong to one loop.
//
// # A slot
//
// Two sock maps of one entry, input and output; a page with a counter that the
// program and the agent share; the program, which has the two maps built in, as its
// context does not say which socket a buffer has reached; and an iterator over each
// map, the only way for user space to learn the length of the kernel's queues.
// Where things are in its structures is read from its BTF.
//
// # The way out
//
//	copying --all sent, all read--> redirecting --end--> draining --empty--> finishing
//	     \--the same, but something has come since--> lagging --moved--/
//
// The sockets enter their maps when the agent has sent all that it has read, and has
// read whole buffers: one that was read in part would be sent whole. What lies in
// the queue at that moment goes out in front of what comes, as each buffer that
// arrives pushes the oldest out: nothing is lost, doubled or out of order. But the
// last ones are stuck for as long as no more arrive (lagging). When the sender has
// stopped since it may have no more under way, or nothing came for half a second,
// the agent peeks at them, sends them, and takes them only then: until it does, a
// sender that has stopped cannot go on. Should one that rested send within the some
// hundred microseconds that this takes, then bytes may have gone twice; that is
// seen, and ends the flow (Torn) rather than going unnoticed.
//
// At the source's end (EPOLLRDHUP) the vsock may not be shut down before its queue
// of redirected buffers is empty, or they are lost. A buffer leaves it when it has
// been sent. What is left in the source's own queue is the agent's to move.
//
// The program never leaves a buffer to the agent (SK_PASS), for two reasons that
// were found by test: such a buffer is not charged to its sender any more, so that
// a saturating sender never rests; and when the sender of a stream calls shutdown
// the kernel takes the socket out of the map and frees what the agent has not read.
//
// # The way back
//
// Copied. A socket in a sock map does not say that its stream has ended: recv goes
// on with EAGAIN, while epoll says RDHUP.
//
// # What it trusts
//
// Kernels from 6.16 on, or 6.12.35: earlier ones lose or repeat bytes when the
// vsock's peer is slow. Nothing of the peers.
//
// # Limits
//
// DefaultSlots flows (128), the rest is copied. A stream takes a slot after 256 KiB.
// While the kernel moves the bytes the sender is charged for them: a reader that
// never reads costs no more than its sender's buffer, and the vsock's (8 MiB, without
// which the kernel would wait a tick for each 64 KiB).
//
// # What it does not do
//
// No vsock to UNIX: the kernel would return the credit at once, and queue without
// limit. No seqpacket, no framing. Descriptors that a client passes, and urgent
// data, are dropped by the kernel.
package sockmap
