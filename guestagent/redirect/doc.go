// Package redirect leads sockets of a guest to vsock, and ports of vsock to sockets
// of the guest: it is `guestwire agent redirect RULE...`.
//
// # Who calls it
//
// cmd. A rule is a bridge of package bridge, with its goroutines and its loop on a
// thread of its own. On that loop a joiner chooses, flow by flow, how the bytes are
// to be moved.
//
// # Paths
//
//	sockmap   the kernel hands each buffer that arrives to the vsock; no system call
//	          per message: see package sockmap
//	splice    through a pipe, unseen: package relay
//	copy      through a buffer: package relay
//	messages  the same, message by message: framed datagrams, seqpacket (whose vsock
//	          end has a thread of its own with every signal blocked: package bridge)
//
// What fits what, the first that the kernel can do right being taken:
//
//	unix-dgram,raw  -> vsock stream     sockmap, copy
//	unix stream    <-> vsock stream     splice; path=sockmap: sockmap (towards the vsock), splice
//	tcp            <-> vsock stream     splice
//	unix-dgram     <-> vsock stream     messages, each behind its length
//	unix-seqpacket <-> vsock seqpacket  messages
//
// A path that was wanted and is not to be had is logged once for each reason, and
// counted (flows_fell_back). The counters flows_* say how many flows took which.
//
// Streams are spliced unless sockmap is asked for, by measurement: docs/performance.md.
//
// # What it trusts
//
// Rules come from the guest's administrator. Clients and the host are trusted with
// nothing: their bytes are not looked at, but for the length of a frame.
//
// # Limits
//
// Those of package bridge for each rule (1024 flows), of package relay for each
// flow, and 128 flows by sockmap in all.
//
// # What it does not do
//
// No descriptor passing (SCM_RIGHTS), no urgent data. Raw datagrams leave no trace
// of where one ended. Datagrams that were on their way when the host went are lost;
// those that come later wait in the socket.
package redirect
