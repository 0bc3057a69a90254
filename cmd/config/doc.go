// Package config turns what a user typed into one immutable configuration.
//
// Who calls it: the subcommands, once, at start, on the main goroutine. All
// validation of flags lives here; whatever it returns is complete and
// consistent, so nothing further down has to ask again.
//
// What it trusts: nothing. Every error is an *Error that says which option was
// wrong, with which value, and what would be right.
//
// What it reads beside its arguments: the range of ports that the host gives to
// its own connections, and, with `--address host`, the host's addresses and
// routes (hostnet.go). Both are read once, at start.
package config
