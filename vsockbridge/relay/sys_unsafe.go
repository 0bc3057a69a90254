package relay

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// None of these calls may block: descriptors are non-blocking or the call says
// so, which is why they bypass the scheduler.

// recv reads from a socket. With MSG_TRUNC in flags n is the length of the
// message, even if b is shorter.
func recv(fd int, b []byte, flags int) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
	return result(r, errno)
}

// send writes to a socket, without the signal for a peer that has gone.
func send(fd int, b []byte) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return result(r, errno)
}

func read(fd int, b []byte) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(r, errno)
}

func write(fd int, b []byte) (n int, errno unix.Errno) {
	r, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(r, errno)
}

// splice moves up to n bytes between descriptors of which one is a pipe.
func splice(from, to, n int) (int, unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n),
		unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return result(r, errno)
}

// queued returns how many bytes wait to be read from a socket.
func queued(fd int) int {
	var n int32
	unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}

func result(r uintptr, errno unix.Errno) (int, unix.Errno) {
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
