package vhostuser

import (
	"io"
	"syscall"
	"unsafe"
)

// RawSyscall is right here: the descriptors are non-blocking, and this is on the
// path of every kick.

// drainEvent takes what a kick left in fd. An empty one is no error: somebody
// else may have drained it.
func drainEvent(fd int) error {
	var b [128]byte // an eventfd needs 8; a pipe may hold more
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	switch {
	case e == syscall.EAGAIN || e == syscall.EINTR:
		return nil
	case e != 0:
		return e
	case n == 0:
		return io.EOF
	}
	return nil
}

// signalEvent signals fd. One that cannot take it is signalled already, or
// nobody listens any more; both are the other side's affair.
func signalEvent(fd int) {
	one := uint64(1)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}
