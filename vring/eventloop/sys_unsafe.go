package eventloop

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollEvent is struct epoll_event; x/sys knows its padding per architecture.
type epollEvent unix.EpollEvent

// token returns the datum: slot in the low word, generation in the high one.
func (e *epollEvent) token() Token   { return Token(uint32(e.Fd)) | Token(uint32(e.Pad))<<32 }
func (e *epollEvent) events() Events { return Events(e.Events) }

const (
	ctlAdd = unix.EPOLL_CTL_ADD
	ctlMod = unix.EPOLL_CTL_MOD
	ctlDel = unix.EPOLL_CTL_DEL
)

func epollCreate() (int, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC, 0, 0)
	return int(fd), e
}

func eventfd() (int, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_EVENTFD2, 0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK, 0)
	return int(fd), e
}

func epollCtl(epfd, op, fd int, ev Events, t Token) syscall.Errno {
	e := epollEvent{Events: uint32(ev), Fd: int32(uint32(t)), Pad: int32(uint32(t >> 32))}
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&e)), 0, 0)
	return errno
}

// wait fetches events into l.events. Only a wait that may sleep goes through
// Syscall6, which tells the scheduler; looking costs no more than the system
// call. EINTR (a signal of the runtime's own, mostly) is an empty batch.
func (l *Loop) wait(d time.Duration) (int, syscall.Errno) {
	for {
		n, e := l.epoll(d)
		switch {
		case e == syscall.EINTR:
			return 0, 0
		case (e == syscall.ENOSYS || e == syscall.EPERM) && l.pwait2:
			l.pwait2 = false // before Linux 5.11, or a seccomp filter that is older
			continue
		}
		return n, e
	}
}

func (l *Loop) epoll(d time.Duration) (int, syscall.Errno) {
	var n uintptr
	var e syscall.Errno
	buf := uintptr(unsafe.Pointer(&l.events[0]))
	switch {
	case d == 0:
		if l.fetched == 0 && l.Lingers() {
			// Who lingers has nothing to do, and lets others go first.
			syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		n, _, e = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), buf, batch, 0, 0, 0)
	case l.pwait2 && d > 0:
		l.stats.Waits++
		l.timeout = unix.NsecToTimespec(int64(d))
		n, _, e = syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epfd), buf, batch,
			uintptr(unsafe.Pointer(&l.timeout)), 0, 0)
	default:
		l.stats.Waits++
		n, _, e = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), buf, batch, millis(d), 0, 0)
	}
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// millis rounds up, so that a wait does not end before its timer and spin out
// the rest; negative is for ever.
func millis(d time.Duration) uintptr {
	if d < 0 {
		return ^uintptr(0)
	}
	return uintptr(min((d+time.Millisecond-1)/time.Millisecond, 1<<31-1))
}

// signal adds 1 to an eventfd. EAGAIN, a full counter, is as good.
func signal(fd int) {
	one := uint64(1)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// clearFD sets an eventfd to 0.
func clearFD(fd int) {
	var n uint64
	syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), 8)
}

func closeFD(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }
