// Package eventloop is the one loop that drives a worker: sockets and eventfds
// by epoll, timers by a hierarchical wheel, and a mailbox for other goroutines.
package eventloop
