package vringtest

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Event is an eventfd.
type Event struct{ FD int }

// NewEvent makes a non-blocking eventfd that goes away with the test.
func NewEvent(tb testing.TB) *Event {
	tb.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		tb.Fatalf("eventfd: %v", err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	return &Event{FD: fd}
}

// Count returns how often the event was signalled since the last Count.
func (e *Event) Count() uint64 {
	var b [8]byte
	if n, err := unix.Read(e.FD, b[:]); n != len(b) || err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// Wait waits up to d for a signal and takes it.
func (e *Event) Wait(d time.Duration) bool {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		p := []unix.PollFd{{Fd: int32(e.FD), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(max(left, 0).Milliseconds()))
		if n == 1 && err == nil && e.Count() > 0 {
			return true
		}
		if left <= 0 {
			return false
		}
	}
}

// Socket is a call descriptor as User Mode Linux has it: one end of a pair of
// stream sockets.
type Socket struct{ FD, end int }

// NewSocket makes a non-blocking pair that goes away with the test.
func NewSocket(tb testing.TB) *Socket {
	tb.Helper()
	fd, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatalf("socketpair: %v", err)
	}
	tb.Cleanup(func() { unix.Close(fd[0]); unix.Close(fd[1]) })
	return &Socket{fd[0], fd[1]}
}

// Count returns how often the socket was signalled since the last Count.
func (s *Socket) Count() uint64 {
	var b [4096]byte
	n, err := unix.Read(s.end, b[:])
	if err != nil {
		return 0
	}
	return uint64(n) / 8
}
