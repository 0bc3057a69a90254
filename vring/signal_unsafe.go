package vring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// one is what is written to an eventfd: 1, as eight bytes. A call descriptor may
// also be a pipe or a stream socket (UML), whose reader takes any number of bytes
// for one signal. SIGPIPE, for an end that is gone, the Go runtime ignores.
var one = [8]byte{1}

// signal raises fd without ever blocking. A full eventfd or pipe (EAGAIN) is
// signalled already. Other errors mean that the peer's end is gone; the
// frontend's disconnect follows and is handled where the connection is.
//
// RawSyscall: the write cannot block, so the scheduler need not know.
func signal(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}

// nonblocking makes fd safe to signal. A frontend may have left its eventfd
// blocking, and a saturated one would then stop the loop for ever.
func nonblocking(fd int) int {
	if fd < 0 {
		return -1
	}
	_ = unix.SetNonblock(fd, true) // fails only for a descriptor that write will refuse too
	return fd
}
