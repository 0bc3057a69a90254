// Package forward decides where flows go. It has three parts:
//
//   - Policy: which destinations the guest may reach, where they lie on the host
//     side, and under which address the world appears to the guest;
//   - ParseSpec: the grammar of -t and -u, and its rules;
//   - Listeners: the listening sockets of inbound forwards.
//
// Who calls it: cmd parses specifications before there is a loop. The rest runs on
// the worker's loop: the translator and its engines ask Policy once per new flow,
// sockets and the timer call Listeners.
//
// What it trusts: the command line is the administrator's, so specifications are
// checked for mistakes (and fuzzed), not for malice. Destinations come from the
// guest: they are judged by address alone, mappings before refusals. Connections
// come from anybody: they are accepted within budgets.
//
// Policy, in this order: port 0 and IP versions that are off are refused; name
// service on the --dns-forward addresses goes to the first upstream; the
// --map-host-loopback addresses go to 127.0.0.1 and ::1; loopback, unspecified,
// our own, multicast, metadata and link-local addresses are refused; the rest goes
// where it says. The first refusal of each kind is logged with the flag that would
// allow it.
//
// States of a listening socket: armed; paused when there is no room for another
// flow or no descriptor (connections then wait in its backlog, and the socket is
// tried again every 100 ms); after 1 s of that, what waits is reset, so that
// clients learn it. Nothing spins: a paused socket is off the loop.
//
// Limits: 16 connections accepted per socket and turn; 16,384 listening sockets
// (ListenConfig.MaxSockets); 1,024 ranges and 16 KiB per specification.
//
// What it deliberately does not do: no rewriting of what flows carry, no names, no
// watching of other processes' ports (passt's "auto"; cmd/worker does it for namespaces).
package forward
