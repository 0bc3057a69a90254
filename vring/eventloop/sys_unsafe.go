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

// briskWait is how long a loop that has been busy sleeps without telling Go's
// scheduler, which would give what the thread holds to another one within 20 us,
// and have it stand in line afterwards. A collection of garbage has to wait for
// such a sleeper.
const briskWait = time.Millisecond

// wait fetches events into l.events. EINTR (a signal of the runtime's own, mostly)
// is an empty batch.
func (l *Loop) wait(d time.Duration) (n int, e syscall.Errno) {
	switch {
	case d == 0:
		n, e = l.look()
	case l.brisk && l.pwait2:
		short := d
		if d < 0 || d > briskWait {
			short = briskWait
		}
		if n, e = l.nap(short); n == 0 && e == 0 && short != d {
			l.brisk = false // the next one tells
			return 0, 0
		}
	default:
		l.stats.Waits++
		before := l.clock.Now()
		n, e = l.sleep(d)
		l.brisk = n > 0 && time.Duration(l.clock.Now()-before) < briskWait
	}
	switch e {
	case 0:
		return n, 0
	case syscall.EINTR:
		return 0, 0
	case syscall.ENOSYS, syscall.EPERM: // before Linux 5.11, or a seccomp filter that is older
		if l.pwait2 {
			l.pwait2 = false
			return l.wait(d)
		}
	}
	return 0, e
}

// look fetches what there is.
func (l *Loop) look() (int, syscall.Errno) {
	if l.fetched == 0 && l.Lingers() {
		// Who lingers has nothing to do, and lets others go first.
		syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), batch, 0, 0, 0)
	return int(n), e
}

// nap sleeps for d at most, unnoticed by the scheduler.
func (l *Loop) nap(d time.Duration) (int, syscall.Errno) {
	l.stats.Waits++
	l.timeout = unix.NsecToTimespec(int64(d))
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), batch,
		uintptr(unsafe.Pointer(&l.timeout)), 0, 0)
	return int(n), e
}

// sleep sleeps for d, for ever if negative.
func (l *Loop) sleep(d time.Duration) (int, syscall.Errno) {
	if l.pwait2 && d > 0 {
		l.timeout = unix.NsecToTimespec(int64(d))
		n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), batch,
			uintptr(unsafe.Pointer(&l.timeout)), 0, 0)
		return int(n), e
	}
	n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), batch, millis(d), 0, 0)
	return int(n), e
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
