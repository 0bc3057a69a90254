package stream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// recv and send never block, whatever the socket's flags, and so keep clear of
// the scheduler. Neither buffer may be empty.

func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// peerLeft says whether the next read would find the end.
func peerLeft(fd int) bool {
	var b [1]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), 1, unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
	return errno == 0 && n == 0 || errno != 0 && !temporary(errno)
}
