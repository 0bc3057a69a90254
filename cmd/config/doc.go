// Package config turns what a user typed, or wrote into a file, into one immutable
// configuration of guests.
//
// Who calls it: the subcommands, once, at start, on the main goroutine; the daemon
// again when its file is read again. All validation lives here; whatever it returns
// is complete and consistent, so nothing further down has to ask again.
//
// Options (a NIC) and VsockOptions (a vsock device) are what was written, Net and
// Vsock what follows from it, a Guest is both. An option has one name everywhere, in
// the tag of its field: as a flag, as a key of a file, in a --vm list.
//
// What it trusts: nothing. Every error is an *Error that says which option was
// wrong, with which value, and what would be right; in a file a *FileError adds the
// line and column, and all that is wrong is told at once: keys first, and when these
// are right, values. What two guests both claim (a CID, a socket, a port of the
// host) is an error of the later one.
//
// What it reads beside its arguments: the range of ports that the host gives to
// its own connections, and, with `--address host`, the host's addresses and
// routes (hostnet.go). Both are read once, at start.
//
// Limits: a file of 4 MiB with 1024 guests. What it deliberately does not do: open
// or bind anything; YAML's anchors, aliases, tags and further documents.
package config
