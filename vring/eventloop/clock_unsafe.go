package eventloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type monotonic struct{}

// Now reads CLOCK_MONOTONIC.
func (monotonic) Now() Time {
	var ts unix.Timespec
	syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return Time(ts.Nano())
}
