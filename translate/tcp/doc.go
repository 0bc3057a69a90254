// Package tcp carries the TCP connections of one guest: it ends the guest's TCP
// here and maps each connection to a socket of the host, whose kernel does TCP
// with the target. Two connections, one stream; neither TCP sees the other's
// segments.
//
// # Who calls it
//
// The guest's loop alone. The translator gives it segments (Input, then EndBatch
// before the frames' memory goes back to the guest) and room (Writable), the
// listeners give it accepted sockets (Inbound), the loop gives it socket events
// (Ready) and timers (Expired). It calls the host (hostsock.Host), the guest's
// endpoint, the flow table and the timer wheel.
//
// # What it trusts
//
// Nothing that the guest says: a wire.Packet is a private copy that was checked
// for lengths, everything else is checked here. Payload stays where it is, in
// guest memory, and goes to the kernel as it is at that moment. Targets are
// behind the kernel's TCP and can only send bytes, end, and reset.
//
// # Sequence variables
//
// Names are those of RFC 9293 3.3.1, for our end of the connection to the guest.
//
//	guest -> host
//
//	  wrNxt            rcvNxt                       edge
//	----|----------------|----------------------------|---------> guest's bytes
//	    |     staged     |  window, and in it what    |
//	    |  (inBuf)       |  came out of order (inBuf) |
//
// Below wrNxt the kernel has the bytes. What an ACK covers (rcvNxt) the kernel
// has accepted or is staged. edge is the most that the guest was ever told; what
// lies before it is taken.
//
//	host -> guest
//
//	  base   una               nxt      max
//	----|-----|-----------------|--------|----------------------> target's bytes
//	    |     |   in flight     | sent,  | unread, in the kernel
//	    |     |                 | to be  |
//	    ACKed, not consumed yet | sent again
//
// With SO_PEEK_OFF (Linux 6.9) everything from base on stays in the kernel's
// receive queue: new bytes are peeked straight into guest memory, old ones are
// peeked again, and Discard consumes what the guest has ACKed. Nothing is kept
// here. Without it bytes are read by way of outBuf, which keeps them until the
// ACK. nxt is below max after a timeout, or when the guest took back a part of
// its window.
//
// # From the guest to the host (send.go, window.go, ooo.go)
//
// Payload that is next in order is gathered by reference while a batch is read;
// at its end, or at 256 KiB, one Writev per connection takes it. What the kernel
// does not take is copied to chunks of a pool, written on the next Out edge, and
// written before anything newer. So writes go beyond the free space of the send
// buffer, which is what makes the kernel's autotuning enlarge it.
//
// No byte inside the window is ever dropped: the window is what may be staged,
// the connection's allowance less what is staged now. No system call is needed
// to know it. The allowance starts at 64 KiB and is kept at 4 times what comes in
// one batch, at most Config.WindowMax, while the target keeps up; it is halved,
// not below 128 KiB, when the target was slow. When half of the pool is in use
// edges move on by 16 KiB at most.
//
// Segments ahead of rcvNxt are copied to the same chunks at their place: 64
// ranges and Config.OutOfOrder bytes of them. What was there first stays. They
// are reported with SACK.
//
// An ACK goes out at the end of the batch, at once and one per connection: with
// data if there is any to go, else alone. When segments came out of order there
// are as many duplicates as such segments, for guests that count them. Only on a
// connection whose target has been answering at once does the ACK of a small
// segment wait, for 200 us, to go with the next answer (delay.go).
//
// # From the host to the guest (output.go, source.go)
//
// Events are edges, for the whole life of a socket, so nothing is ever disarmed.
// An In edge sets fHostReady. While it is set and the guest's window has room,
// frames are reserved and one Peekv fills the payload of all; a read that returns
// less than it was offered has emptied the socket, and the next byte brings an
// edge. (Only a target's urgent mark cuts a read short as well; the bytes behind
// it then wait for the next edge.) How much to reserve is guessed from the last
// read. With TSO a frame is as many whole segments as fit an IP packet; without,
// one segment. One connection sends 512 KiB per turn and then asks for another
// turn.
//
// RDHup says that the end is in sight: then one more read finds it, so that the
// FIN goes with the last bytes. An error of the socket is told to the guest as a
// RST, behind the bytes that were readable before it.
//
// When the guest has no room for frames the connection waits in a queue;
// Writable goes round it.
//
// # States
//
// step is the state machine, pure, with side effects left to perform. Flushed
// means that the guest has closed and the kernel has all of its bytes; in closing
// and last-ack the event fin-acked waits for it, in time-wait the event
// time-over. What is not listed changes nothing.
//
//	connecting    host-up           syn-received   send-synack
//	connecting    host-refused      aborted        send-reset close-host linger
//	connecting    host-unreachable  closed         report close-host free
//	connecting    host-silent       closed         close-host free
//	connecting    host-error        aborted        send-reset abort-host linger
//	connecting    guest-reset       closed         abort-host free
//	connecting    give-up           closed         abort-host free
//	syn-received  guest-ack         established    open
//	syn-sent      guest-synack      established    send-ack open
//	syn-sent      guest-syn         aborted        send-reset abort-host linger
//	established   guest-fin         close-wait     send-ack
//	established   host-eof          fin-wait-1     queue-fin
//	close-wait    flushed           close-wait     shutdown
//	close-wait    host-eof          last-ack       queue-fin
//	fin-wait-1    fin-acked         fin-wait-2     -
//	fin-wait-1    guest-fin         closing        send-ack
//	fin-wait-2    guest-fin         time-wait      send-ack linger
//	closing       flushed           closing        shutdown
//	closing       fin-acked         time-wait      close-host linger
//	last-ack      flushed           last-ack       shutdown
//	last-ack      fin-acked         closed         close-host free
//	time-wait     flushed           time-wait      close-host
//	time-wait     time-over         closed         close-host free
//	time-wait     host-error        closed         abort-host free
//	time-wait     guest-reset       closed         abort-host free
//	time-wait     give-up           closed         abort-host free
//	aborted       guest-reset       closed         free
//	aborted       give-up           closed         free
//	aborted       reset-sent        closed         free
//	aborted       renewed           closed         free
//
// and, in syn-received, syn-sent, established, close-wait, fin-wait-1,
// fin-wait-2, closing and last-ack alike (renewed in connecting and time-wait,
// too):
//
//	any           host-error        aborted        send-reset abort-host linger
//	any           give-up           aborted        send-reset abort-host linger
//	any           guest-reset       closed         abort-host free
//	any           renewed           closed         abort-host free
//
// A simultaneous open (guest-syn) is reset: the guest's port was asked for by the
// host at the moment when the guest used it to ask the host, and neither has a
// listener there. Segments of no connection are answered with a RST (RFC 9293
// 3.10.7.1), so that what an earlier backend left behind ends.
//
// # Timers (timers.go, acked.go)
//
// One wheel timer per connection serves two deadlines. The first is the
// handshake's (SYN and SYN-ACK repeated 6 times from 1 s on, doubling; connect
// 60 s), the retransmission timeout (RFC 6298, from 200 ms, at most 60 s, 12
// times, about 5 minutes), or the window probe while the window is closed. The
// second is keepalive (2 h of silence; 2 min once one side has closed; then 9
// probes), time-wait (1 s: the link to the guest is short) and the end of aborted
// (10 min). A half-closed connection, or one with a closed window, that makes no
// progress is given up after 4 h even if the guest answers.
//
// Loss on the way to the guest is rare, but happens. Three duplicate ACKs, or
// SACK blocks that say as much, have the holes sent again, each once (RFC 6582,
// RFC 6675). A timeout goes back to una with a window of two segments that
// doubles with every round trip. There is no other congestion control: the ring
// pushes back.
//
// # Limits
//
//	half-open connections            2,048, the oldest evicted when 200 ms old
//	new connections of the guest     10,000 per second
//	connections                      the flow table's; TIME-WAIT, then half-open are evicted
//	user-space buffers               64 MiB in all, in chunks of 16 KiB
//	window                           64 KiB to 1 MiB, scale 5
//	out of order                     64 ranges, 512 KiB per connection
//	kept without SO_PEEK_OFF         512 KiB per connection
//	challenge ACKs                   100 per second
//	idle connection                  about 300 bytes here, and no buffer
//
// If the guest has more than 64 MiB inside windows at once that no target takes
// (it takes 64 connections with windows grown to the full that all stall at the
// same time), segments are dropped as drop_in-window and not acknowledged, so
// that the guest sends them again; otherwise that counter stays 0.
//
// # Options
//
//	MSS               sent; taken, clamped to [256, link]
//	window scale      sent; taken, clamped to 14; off unless both have it
//	SACK permitted    answered, offered to guests; blocks sent and used
//	D-SACK            neither sent nor used
//	timestamps, PAWS  no
//	ECN               no
//	urgent pointer    ignored, bytes are in band (T15)
//	fast open         data on a SYN is not taken (T18)
//
// # What it does not do
//
// It opens no listeners (forward), knows no policy (Deps.Outbound), looks at no
// payload, and keeps no counters per connection.
package tcp
