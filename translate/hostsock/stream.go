package hostsock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sendmsg and recvmsg move stream data. What exceeds 1024 buffers is left for
// the next call: the result is a short write or read.
func (k *Kernel) sendmsg(fd FD, bufs [][]byte, flags int) (int, syscall.Errno) {
	iov := k.vector(bufs)
	n, e := sysSendmsg(fd, &k.hdr, flags)
	clear(iov)
	return n, e
}

func (k *Kernel) recvmsg(fd FD, bufs [][]byte, flags int) (int, syscall.Errno) {
	iov := k.vector(bufs)
	n, e := sysRecvmsg(fd, &k.hdr, flags)
	clear(iov)
	return n, e
}

// vector points the header at bufs. The vectors are cleared after the call:
// guest memory may be unmapped later, and no Go variable should hold an address
// that may then become somebody else's.
func (k *Kernel) vector(bufs [][]byte) []unix.Iovec {
	n := fill(k.iov[:], bufs)
	k.hdr = unix.Msghdr{Iov: &k.iov[0]}
	k.hdr.SetIovlen(n)
	return k.iov[:n]
}

// fill puts bufs into iov, leaving empty ones out, and returns how many vectors
// it used.
func fill(iov []unix.Iovec, bufs [][]byte) (n int) {
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if n == len(iov) {
			return n
		}
		iov[n].Base = &b[0]
		iov[n].SetLen(len(b))
		n++
	}
	return n
}

// Writev implements Host.
func (k *Kernel) Writev(fd FD, bufs [][]byte, more bool) (int, syscall.Errno) {
	flags := unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	if more {
		flags |= unix.MSG_MORE
	}
	return k.sendmsg(fd, bufs, flags)
}

// Readv implements Host.
func (k *Kernel) Readv(fd FD, bufs [][]byte) (int, syscall.Errno) {
	return k.recvmsg(fd, bufs, unix.MSG_DONTWAIT)
}

// Peekv implements Host.
func (k *Kernel) Peekv(fd FD, bufs [][]byte) (int, syscall.Errno) {
	return k.recvmsg(fd, bufs, unix.MSG_PEEK|unix.MSG_DONTWAIT)
}

// SetPeekOffset implements Host.
func (k *Kernel) SetPeekOffset(fd FD, off int) syscall.Errno {
	return setInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, off)
}

// Discard implements Host.
func (k *Kernel) Discard(fd FD, n int) (int, syscall.Errno) { return sysDiscard(fd, n) }

// Shutdown implements Host.
func (k *Kernel) Shutdown(fd FD) syscall.Errno { return sysShutdown(fd, unix.SHUT_WR) }
