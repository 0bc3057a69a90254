// Package serve is the control end of the agent: it answers the host's requests,
// and serves the host with what it has exposed. The protocol is
// guestagent/proto/SPEC.md.
//
// # Who calls it
//
// `guestwire agent serve`. Run blocks; each client has a goroutine, and the
// connections to exposed services are on one loop (vsockbridge/relay), which has a
// thread of its own once the first service is exposed.
//
// # What it trusts
//
// The host, to decide about its guest: whoever is CID 2 may ask for everything
// that is here. That is what a hypervisor can do anyway. Nobody else is listened
// to: neither other guests nor processes of this one. What the host sends is
// checked all the same (guestagent/proto), since a mistake there must not end
// anything here.
//
// # What can be asked
//
// ping, info, expose, time, setup. Nothing runs a command, reads a file or writes
// one that the host names.
//
// # An exposed service
//
//	listening --stop--> its connections go on --the last ends--> gone
//
// # Limits
//
// 8 clients at a time, 60 s between their requests, 5 s for a request to come and
// an answer to go. 16 exposed services with 1024 connections together, 5 s to
// connect to a service. A listener that fails (descriptors have run out) rests for
// 200 ms. 5 s for a network card to appear when the host sets up one.
//
// # What it deliberately does not do
//
// No shell, no files, no events that nobody asked for. Exposed services are
// forgotten when the agent ends: `guestwire agent redirect` has permanent ones.
package serve
