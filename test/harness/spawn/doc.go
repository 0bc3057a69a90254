// Package spawn runs the child processes of the tests: daemons under test, virtual machines, peers.
//
// Every child ends with the test process, however that ends: children are started from one OS thread that lives as long as the process, with the
// parent-death signal set (the signal is tied to the thread that forked, so an ordinary goroutine's thread would not do). What a child prints goes to a
// log file that a failing test can show. Callers may use a Process from any goroutine.
package spawn
