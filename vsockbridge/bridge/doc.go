// Package bridge joins sockets of two addresses: it is `guestwire bridge FROM TO`.
//
// FROM is where clients come from, TO is opened for each of them. Addresses that
// listen serve one client after another, many at a time; the others (stdio, a
// command, a connection) are one client.
//
// # Who calls it
//
// cmd, and the guest's agent. This room is the kernel's side of vsockbridge: it
// opens ordinary sockets, AF_VSOCK among them, with Go's own network poller, and
// has goroutines for that: one accepts, one per client dials, waits and tidies up.
// No byte of a connection passes through them: connected descriptors go to
// package relay, on one loop on one thread.
//
//	accept -> dial TO, again and again for wait= -> hand both to the loop -> wait for the end
//
// # What it trusts
//
// Addresses come from the administrator. Clients and servers are trusted with
// nothing: the line that answers CONNECT is limited in length and time, and all
// else is payload.
//
// # Limits
//
// 1024 clients at a time (MaxConnections); more wait in the listener's backlog.
// 10 s for an attempt to connect and for the answer to CONNECT; attempts are
// repeated for wait=, from every 20 ms to every second. A seqpacket AF_VSOCK
// socket has a thread of its own, see sender.go. A command gets SIGTERM when its
// connection has ended, and SIGKILL 5 s later.
//
// # What it does not do
//
// No time-out for a connection that is idle. No descriptor passing. No TLS. No
// reconnecting within a connection. unix-recv has one server at a time, dialled
// when a datagram comes.
package bridge
