package vring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// one is what is written to an eventfd: 1, as eight bytes. A call descriptor may
// also be a pipe or a stream socket (UML), whose reader takes any number of bytes
// for one signal. SIGPIPE, for an end that is gone, the Go runtime ignores.
var one = [8]byte{1}

// signal raises fd, which nonblocking has prepared, without blocking. A full
// eventfd or pipe (EAGAIN) is signalled already. Other errors mean that the peer's
// end is gone; the frontend's disconnect follows and is handled where the
// connection is.
//
// RawSyscall: the write cannot block, so the scheduler need not know.
func signal(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}

// nonblocking makes fd safe to signal. A frontend may have left its eventfd
// blocking, and a saturated one would then stop the loop for ever.
//
// It shares the open file with us, and can do both to it later. Nothing in the
// write itself prevents that: RWF_NOWAIT of pwritev2(2) is EOPNOTSUPP for an
// eventfd (Linux 6.18), and to look before the write is a race.
func nonblocking(fd int) int {
	if fd < 0 {
		return -1
	}
	_ = unix.SetNonblock(fd, true) // fails only for a descriptor that write will refuse too
	return fd
}
