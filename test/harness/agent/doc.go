// Package agent runs commands inside a guest over a serial line: Serve in the guest, Client on the host.
//
// The line carries text lines of the form `gw1 JSON`; anything else on it is ignored, so stray console output does no harm. Requests carry an id and are
// answered in any order: a command that hangs does not hold up the next. Serve says hello when it starts, which is how the host knows that a guest has
// booted, or booted again.
package agent
