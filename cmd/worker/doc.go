// Package worker composes what serves one guest: loop, device, translator, the
// host's sockets.
//
// Who calls it: `guestwire net` and `guestwire run`, one Worker each; New and
// Close on the main goroutine, Run on any one goroutine, which becomes the loop.
// Stop, PrintStats may come from any goroutine: they reach the loop by its
// mailbox.
//
// What it adds to the rooms it composes is what those must not do themselves:
// reading resolv.conf, random secrets, raising the descriptor limit, logging.
package worker
