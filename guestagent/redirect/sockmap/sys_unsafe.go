package sockmap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

func counterAt(page []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(page)))
}

// Commands of membarrier(2).
const (
	membarrierQuery  = 0
	membarrierGlobal = 1
)

func checkBarrier() error {
	n, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0)
	if errno != 0 || n&membarrierGlobal == 0 {
		return fmt.Errorf("membarrier is not to be had (a kernel booted with nohz_full refuses it): %w", errno)
	}
	return nil
}

// membarrier returns when every run of a program that had begun has ended: the
// kernel waits for a grace period, of some ten milliseconds. No loop calls it.
func membarrier() { _, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0) }

// recv reads from a socket. With MSG_TRUNC in flags n is the length of a
// datagram, even if b is shorter. None of these calls may block, which is why
// they bypass the scheduler.
func recv(fd int, b []byte, flags int) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// send writes to a socket, without the signal for a peer that has gone.
func send(fd int, b []byte) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
