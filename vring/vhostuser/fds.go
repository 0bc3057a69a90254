package vhostuser

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

var (
	errTruncated  = errors.New("more descriptors than any message carries")
	errWouldBlock = errors.New("would block")
	errEOF        = errors.New("closed by the frontend")
)

// oobSize is control room for the descriptors of one message. The kernel
// installs as many as fit and drops the rest with MSG_CTRUNC.
var oobSize = unix.CmsgSpace(maxFDs * 4)

// receive reads at most len(p) bytes and appends the descriptors that came with
// them to fds, which stay with the caller also when there is an error. It reads
// no further than the caller asks, so that descriptors, which the kernel
// delivers with the first byte they were sent with, come with their own message.
func receive(fd int, p, oob []byte, fds []int) (int, []int, error) {
	n, on, flags, _, err := unix.Recvmsg(fd, p, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, fds, errWouldBlock
	case err != nil:
		return 0, fds, err
	}
	if on > 0 {
		got, err := parseRights(oob[:on])
		fds = append(fds, got...)
		if err != nil {
			return n, fds, err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return n, fds, errTruncated
	}
	if n == 0 {
		return 0, fds, errEOF
	}
	return n, fds, nil
}

func parseRights(oob []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue // credentials and the like own nothing
		}
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// closeFDs closes what has not been taken.
func closeFDs(fds []int) {
	for i, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
			fds[i] = -1
		}
	}
}

// direction is what we want of an event descriptor.
type direction bool

const (
	toRead  direction = false
	toWrite direction = true
)

// prepareEvent judges a kick, call or err descriptor and makes it non-blocking:
// a write to a saturated blocking eventfd would stop the loop for ever, and so
// would a read of one that somebody else has drained. It must be an eventfd or a
// pipe; for a call also a stream socket, since what user mode Linux calls a pipe
// is one end of a socket pair.
func prepareEvent(fd int, d direction) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch t := st.Mode & unix.S_IFMT; {
	case t == unix.S_IFSOCK && d == toWrite:
		return prepareSocket(fd)
	case t != 0 && t != unix.S_IFIFO: // an eventfd has no file type
		return errors.New("neither an eventfd nor a pipe")
	}
	fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if d == toWrite && fl&unix.O_ACCMODE == unix.O_RDONLY {
		return errors.New("open for reading only")
	}
	if fl&unix.O_NONBLOCK == 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, fl|unix.O_NONBLOCK); err != nil {
			return err
		}
	}
	// Whatever is not an event counter (an epoll, the wrong end of a pipe) fails
	// here, not later in every turn. To add 0 to a counter signals nobody.
	switch {
	case d == toRead:
		err = drainEvent(fd)
	case st.Mode&unix.S_IFMT == 0:
		if _, err = unix.Write(fd, make([]byte, 8)); err == unix.EAGAIN {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("not an event descriptor: %w", err)
	}
	return nil
}

// prepareSocket judges a descriptor that should be one end of a local stream.
func prepareSocket(fd int) error {
	for opt, want := range map[int]int{unix.SO_DOMAIN: unix.AF_UNIX, unix.SO_TYPE: unix.SOCK_STREAM, unix.SO_ACCEPTCONN: 0} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt); err != nil || got != want {
			return errors.New("not a local stream socket")
		}
	}
	return unix.SetNonblock(fd, true)
}

// isEventfd says whether fd is an event counter, every write to which is an edge
// of its own. Without /proc nobody knows.
func isEventfd(fd int) bool {
	var b [64]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), b[:])
	return err == nil && string(b[:n]) == "anon_inode:[eventfd]"
}
