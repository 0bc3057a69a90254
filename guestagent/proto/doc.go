// Package proto is the language between a guest's agent and its host: framed
// messages, one JSON object each. SPEC.md in this folder is the protocol; this is
// its codec, and the calling end. A leaf.
//
// # Who calls it
//
// guestagent/serve answers requests, `guestwire ctl agent` makes them; cmd/worker
// writes the configuration that guestagent/setup reads. A Conn belongs to one
// goroutine at a time. Append and Decode are pure.
//
// # What it trusts
//
// Nothing that it reads, whichever side it is on: a host must survive any agent,
// since an agent is as trustworthy as its guest. A length beyond MaxFrame, another
// version, reserved bits, an unknown kind, an answer to something else, nesting
// beyond MaxDepth, values outside of what Check of the message allows, and text
// that could do anything to a terminal are errors, and end the connection. What
// has been checked is still data: nobody runs it or opens it as a path.
//
// # Limits
//
// 1 MiB per frame, which is read as it comes: a length alone reserves nothing
// (64 KiB at a time). 8 levels of nesting. The limits of each message stand at its
// type. Times are the caller's.
//
// # What it deliberately does not do
//
// No requests in parallel on one connection, no streams, no compression, no
// negotiation: a version is spoken or it is not.
package proto
