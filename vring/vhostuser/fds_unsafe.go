package vhostuser

import (
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawSyscall is right here: the descriptors are non-blocking, and this is on the
// path of every kick.

// drainEvent takes what a kick left in fd. An empty one is no error: somebody
// else may have drained it. O_NONBLOCK is the open file's, and so the frontend's
// to take back at any time; RWF_NOWAIT is ours.
func drainEvent(fd int) error {
	var b [128]byte // an eventfd needs 8; a pipe may hold more
	v := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	const here = ^uintptr(0) // no offset: the file's own
	n, _, e := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&v)), 1, here, here, unix.RWF_NOWAIT)
	if e == syscall.EOPNOTSUPP { // pipes before Linux 6.4
		n, _, e = syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	}
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
