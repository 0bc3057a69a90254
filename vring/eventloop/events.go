package eventloop

import "golang.org/x/sys/unix"

// Events is a set of readiness conditions, with the bit values of epoll(7).
type Events uint32

const (
	In    Events = unix.EPOLLIN
	Out   Events = unix.EPOLLOUT
	RDHup Events = unix.EPOLLRDHUP
	HUP   Events = unix.EPOLLHUP // always reported, need not be asked for
	Err   Events = unix.EPOLLERR // always reported, need not be asked for
	Edge  Events = 1 << 31       // EPOLLET: report changes, not states

	// Again is not the kernel's: it marks a call that Loop.Again asked for.
	Again Events = 1 << 24
)

// Source is what the loop calls when something has happened to a descriptor.
type Source interface {
	Ready(cookie uint32, ev Events)
}

// Breaker is a Source that is told when one of its calls panicked or faulted
// and was taken off the loop's hands. Its token is removed by then.
type Breaker interface {
	Break(err error)
}
