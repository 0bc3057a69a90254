// Package eventloop is the one loop that drives a worker: descriptors by epoll,
// timers by a hierarchical wheel, and a mailbox for the rest of the process.
//
// # Who calls it
//
// One goroutine, locked to its thread, runs the loop and everything that the
// loop calls; only Do and Stop may be called from others. What belongs to a
// guest therefore needs no lock.
//
// # A turn
//
//	wait      sleep until an event, a letter or the next timer; not at all while
//	          Again or mail is waiting. While sleeps are short Go's scheduler is told
//	          of none of them, up to a millisecond
//	now       the clock is read once: Now is the time of the turn
//	events    Source.Ready(cookie, conditions), in the kernel's order
//	again     Source.Ready(cookie, Again), for those who asked in earlier turns, or
//	          by AgainAt for a time that has come
//	mailbox   functions handed over by Do
//	timers    Expirer.Expired(cookie), earliest first, a bounded number
//	after     AfterTurn functions, in the order of registration: devices publish
//	          their rings and notify here, once per turn; by WakeAt they bound the
//	          next wait
//
// # Lingering
//
// Putting a thread to sleep and waking it costs more than many an answer takes.
// So devices tell what they move (Worked), and after it the loop may look for more
// at once instead of sleeping (Poll): always, for a fixed time, or, by default,
// while a habit shows: small amounts have been going to and fro, each within 200 us
// of the other. A millisecond without work ends the habit, more than 8 KiB one way
// too. Every look is one epoll_pwait and one sched_yield: who has work goes first.
//
// # Tokens
//
// epoll holds (slot, generation), never a descriptor or a pointer. A slot's
// generation changes when it is freed, so events that were fetched for a
// registration that an earlier source of the same batch has removed are dropped
// (Stats.Stale), even if the same descriptor number and slot are in use again.
// Within a batch, conditions that a source no longer waits for are not delivered
// either.
//
// # Nothing spins
//
// A source that can do nothing calls Modify with 0 and is not called until it is
// armed again, whatever the state of its descriptor; whoever unblocks it does
// so. A source with more work than its budget calls Again and is served behind
// the others. A timer set for the past runs in the next millisecond. The loop
// rounds waits up, never down.
//
// # Faults
//
// Sources touch guest memory, whose file a front-end may truncate at any moment,
// and have bugs. Panics and memory faults (debug.SetPanicOnFault) are recovered
// around the whole turn: the culprit loses its registration, its Break gets a
// *Fault, and the turn goes on behind it. A second fault within ten seconds, or
// one inside Break, ends Run: a process in that state should be restarted.
//
// # What it trusts
//
// Its callers: a descriptor is removed before it is closed, and tokens come from
// Add (stale ones are harmless). Nothing here reads bytes of guest or network.
//
// # Limits
//
// 128 events per turn, 64 letters in the mailbox (ErrFull beyond), 64 sources
// that rest in AgainAt (it refuses more), 512 timers
// moved or called per turn, timers of 1 ms resolution up to 139 years ahead.
// After the tables have grown to the number of sources and timers, a turn
// allocates nothing.
//
// # What it does not do
//
// No reading or writing, no buffers, no goroutines, no signals, no priorities.
// EINTR, which Go's own preemption signal causes in a raw wait, is an empty turn.
package eventloop
