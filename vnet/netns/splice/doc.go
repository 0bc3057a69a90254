// Package splice joins the loopbacks of two network namespaces, the host's and the
// one that we serve: what a listener on one takes goes to a port of the other
// between two sockets of the kernel, without frames and without our own TCP.
//
// # Who calls it
//
// The worker of a namespace, all on its loop. Open and Close a listener by its Rule;
// Take joins a connection that somebody else has accepted.
//
// # TCP
//
// A connection is accepted, a socket made on the other side and connected, and the
// two are given to vsockbridge/relay, which passes bytes, ends, resets and fullness
// on. A connection that cannot be made resets the one that waits for it. Sockets of
// the other side are made 16 at a time, since the process inside has to be asked.
//
// # UDP
//
// A datagram from a new source begins a flow: a socket on the listener's side, bound
// as the listener is and connected to the source, and one on the other side,
// connected to the target. The relay joins these too. A flow without an answer ends
// after 30 s without a datagram, one with an answer after 120 s (as conntrack does),
// give or take the 10 s between two looks.
//
// # Limits
//
// 4,096 connections and flows at a time; beyond, listeners pause and are tried again
// every 100 ms, and datagrams of new sources are dropped. 16 connections and 64
// datagrams of new sources per listener and turn. Datagrams of at most 64 KiB.
//
// # What it trusts
//
// The peers are programs of this machine. What they send is not looked at.
//
// # What it deliberately does not do
//
// No addresses but loopback's on the host, and no source address: the server sees
// that of its own loopback. No ICMP errors for datagrams.
package splice
