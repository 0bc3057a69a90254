// Package config turns what a user typed into one immutable configuration.
//
// Who calls it: the subcommands, once, at start, on the main goroutine. All
// validation of flags lives here; whatever it returns is complete and
// consistent, so nothing further down has to ask again.
//
// What it trusts: nothing. Every error is an *Error that says which option was
// wrong, with which value, and what would be right.
//
// What it reads beside its arguments: with `--address host` the host's own
// addresses and routes (hostnet.go), which it is handed as a value, so that the
// rest stays pure and testable.
package config
