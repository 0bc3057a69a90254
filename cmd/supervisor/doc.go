// Package supervisor keeps worker processes alive: one process a job, started
// again when it dies, stopped in order when it is no longer wanted.
//
// Who calls it: `guestwire daemon`, from its main goroutine. Every job has a
// goroutine of its own, its keeper, which shares nothing with the others: a worker
// that dies, hangs or never starts is no concern of the rest.
//
// What passes between supervisor and worker: the worker reads one line, the job's
// input, from its standard input and writes one line to its standard output when
// it is ready. Its standard input stays open as long as the supervisor lives: a
// worker that reads its end stops, so none is left behind by a supervisor that was
// killed. Standard error is shared. Signals of a terminal do not reach workers:
// they have process groups of their own.
//
// States of a job: starting, ready, waiting (it has died and is started again
// after a pause), stopping. The pause doubles from 100 ms to 10 s; a worker that
// was ready for 30 s or more starts the next series at 100 ms. A worker has 30 s to
// become ready and 5 s to end after SIGTERM; then it is killed.
//
// What it trusts: its own binary. What a worker prints is cut to one line of
// 4 KiB and only logged.
//
// What it deliberately does not do: pass descriptors. Workers bind their sockets
// themselves, at the same paths each time, so that a VMM finds its backend again.
package supervisor
