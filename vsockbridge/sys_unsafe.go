package vsockbridge

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIov is how many pieces one system call takes (IOV_MAX).
const maxIov = 1024

// vector is the scatter list of one system call.
type vector struct {
	hdr   unix.Msghdr
	iov   [maxIov]unix.Iovec
	n     int
	bytes int
}

// add appends b, which must not be empty. It reports false when the list is full.
func (v *vector) add(b []byte) bool {
	if v.n == maxIov {
		return false
	}
	v.iov[v.n].Base = unsafe.SliceData(b)
	v.iov[v.n].SetLen(len(b))
	v.n++
	v.bytes += len(b)
	return true
}

// piece returns the i-th buffer.
func (v *vector) piece(i int) []byte { return unsafe.Slice(v.iov[i].Base, int(v.iov[i].Len)) }

// reset empties the list. Guest memory may be unmapped later, and no Go variable
// should hold an address that may then be somebody else's.
func (v *vector) reset() {
	clear(v.iov[:v.n])
	v.n, v.bytes = 0, 0
}

// The calls below cannot block: raw, so that the scheduler need not know.

func (v *vector) message() uintptr {
	v.hdr.Iov = &v.iov[0]
	v.hdr.SetIovlen(v.n)
	v.hdr.Flags = 0
	return uintptr(unsafe.Pointer(&v.hdr))
}

// send writes the list to a socket and returns how many bytes that took.
func (v *vector) send(fd int) (int, unix.Errno) {
	return result(unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), v.message(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL))
}

// recv fills the list from a socket. rest says that the call may have left bytes
// in the socket that had room: a message that carries descriptors, which are not
// taken, ends the read.
func (v *vector) recv(fd int) (n int, rest bool, errno unix.Errno) {
	n, errno = result(unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), v.message(), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC))
	return n, v.hdr.Flags&unix.MSG_CTRUNC != 0, errno
}

// peek returns the length of the next message of a socket.
func (v *vector) peek(fd int) (int, unix.Errno) {
	v.reset()
	return result(unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), v.message(), unix.MSG_DONTWAIT|unix.MSG_PEEK|unix.MSG_TRUNC))
}

func result(n, _ uintptr, e unix.Errno) (int, unix.Errno) {
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func shutdown(fd, how int) { unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0) }

func closeFD(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// option reads an integer option of the socket level, -1 when it cannot be had.
func sockOption(fd, name int) int {
	var value int32
	size := uint32(unsafe.Sizeof(value))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, uintptr(name),
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return -1
	}
	return int(value)
}

// hungUp says whether the peer of a socket sends no more.
func hungUp(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	var none unix.Timespec
	unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	return p.Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
