package hostsocktest

import (
	"syscall"

	"guestwire/translate/hostsock"
)

// CanPeek implements hostsock.Host.
func (k *Kernel) CanPeek() bool { return !k.NoPeek }

// Writev implements hostsock.Host.
func (k *Kernel) Writev(fd hostsock.FD, bufs [][]byte, more bool) (int, syscall.Errno) {
	s, e := k.enter("Writev", fd)
	if e != 0 {
		return 0, e
	}
	return s.write(bufs)
}

// Readv implements hostsock.Host.
func (k *Kernel) Readv(fd hostsock.FD, bufs [][]byte) (int, syscall.Errno) {
	s, e := k.enter("Readv", fd)
	if e != 0 {
		return 0, e
	}
	return s.read(bufs, 0, false)
}

// Peekv implements hostsock.Host.
func (k *Kernel) Peekv(fd hostsock.FD, bufs [][]byte) (int, syscall.Errno) {
	s, e := k.enter("Peekv", fd)
	if e != 0 {
		return 0, e
	}
	return s.read(bufs, 0, true)
}

// SetPeekOffset implements hostsock.Host.
func (k *Kernel) SetPeekOffset(fd hostsock.FD, off int) syscall.Errno {
	s, e := k.enter("SetPeekOffset", fd)
	if e != 0 {
		return e
	}
	if k.NoPeek {
		return syscall.EOPNOTSUPP
	}
	s.peek = off
	return 0
}

// PeekOffset returns the peek offset of fd, -1 when it is off.
func (k *Kernel) PeekOffset(fd hostsock.FD) int { return k.must(fd).peek }

// Discard implements hostsock.Host.
func (k *Kernel) Discard(fd hostsock.FD, n int) (int, syscall.Errno) {
	s, e := k.enter("Discard", fd)
	if e != 0 {
		return 0, e
	}
	return s.read(nil, n, false)
}

// Shutdown implements hostsock.Host.
func (k *Kernel) Shutdown(fd hostsock.FD) syscall.Errno {
	s, e := k.enter("Shutdown", fd)
	if e != 0 {
		return e
	}
	return s.shutdown()
}

// Info implements hostsock.Host. Everything written and not yet read by the far
// end is unacknowledged; the rest is what Peer.SetInfo said.
func (k *Kernel) Info(fd hostsock.FD) (hostsock.Info, syscall.Errno) {
	s, e := k.enter("Info", fd)
	if e != 0 {
		return hostsock.Info{}, e
	}
	i := s.info
	if s.out != nil {
		i.Unacked = len(s.out.data)
		if i.SendBuffer == 0 {
			i.SendBuffer = s.out.limit
		}
	}
	return i, 0
}
