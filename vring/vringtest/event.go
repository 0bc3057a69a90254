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
