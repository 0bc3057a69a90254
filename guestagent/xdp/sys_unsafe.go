package xdp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setOption and getOption pass a structure of linux/if_xdp.h. getOption returns
// how many bytes the kernel has of it: older ones know less.
func setOption[T any](fd, option int, v *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(v)), unsafe.Sizeof(*v), 0)
	return asError(errno)
}

func getOption[T any](fd, option int, v *T) (int, error) {
	n := uint32(unsafe.Sizeof(*v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&n)), 0)
	return int(n), asError(errno)
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// wakeTX has the kernel look at the TX ring. It does not sleep, which is why it
// bypasses the scheduler; the driver's work is done in it.
func wakeTX(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// wakeRX has the kernel look at the fill ring.
func wakeRX(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// wait sleeps until the socket has one of events, or for milliseconds.
func wait(fd int, events int16, milliseconds int) unix.Errno {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	_, _, errno := unix.Syscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(milliseconds))
	return errno
}

// sendOne and receiveOne are one system call for one datagram of a connected or
// bound UDP socket, which is what AF_XDP is compared with.
func sendOne(fd int, b []byte) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return errno
}

func receiveOne(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

const offsetsSize = int(unsafe.Sizeof(unix.XDPMmapOffsets{}))

func entrySize[T entry]() int {
	var one T
	return int(unsafe.Sizeof(one))
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
