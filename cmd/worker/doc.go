// Package worker composes what serves one guest: loop, network card, vsock
// device, and behind them translator and host sockets. The guests of one vsock
// sibling group share a Worker, since what passes between them stays on one loop;
// every other guest has a Worker, and a process, of its own.
//
// Who calls it: `guestwire net`, `vsock`, `run` and the worker processes of
// `guestwire daemon`, one Worker each; New and Close on the main goroutine, Run on
// any one goroutine, which becomes the loop. Stop, PrintStats may come from any
// goroutine: they reach the loop by its mailbox.
//
// What it adds to the rooms it composes is what those must not do themselves:
// reading resolv.conf, random secrets, raising the descriptor limit, logging.
//
// States: open (New has returned), running, stopped, closed. What cannot be opened
// fails New, and everything opened before is closed again: there is no half of a
// Worker.
package worker
