package hostsock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of sendmmsg(2); Go pads it as C does.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

func sysSocket(family, typ, proto int) (FD, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), uintptr(proto))
	if e != 0 {
		return None, e
	}
	return FD(fd), 0
}

func sysClose(fd FD) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func sysBind(fd FD, sa *sockaddr, n uint32) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(n))
	return e
}

func sysConnect(fd FD, sa *sockaddr, n uint32) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(n))
	return e
}

func sysListen(fd FD, backlog int) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_LISTEN, uintptr(fd), uintptr(backlog), 0)
	return e
}

func sysAccept(l FD, sa *sockaddr, n *uint32) (FD, syscall.Errno) {
	fd, _, e := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(l), uintptr(unsafe.Pointer(sa)), uintptr(unsafe.Pointer(n)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return None, e
	}
	return FD(fd), 0
}

func sysGetsockname(fd FD, sa *sockaddr, n *uint32) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(unsafe.Pointer(n)))
	return e
}

func sysShutdown(fd FD, how int) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)
	return e
}

func setInt(fd FD, level, opt, value int) syscall.Errno {
	v := int32(value)
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&v)), 4, 0)
	return e
}

func setString(fd FD, level, opt int, value string) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(unsafe.StringData(value))), uintptr(len(value)), 0)
	return e
}

func setLinger(fd FD, l unix.Linger) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&l)), unsafe.Sizeof(l), 0)
	return e
}

func getInt(fd FD, level, opt int) (int, syscall.Errno) {
	var v int32
	n := uint32(4)
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0)
	return int(v), e
}

// getTCPInfo returns how many bytes of info the kernel filled.
func getTCPInfo(fd FD, info *unix.TCPInfo) (int, syscall.Errno) {
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	return int(n), e
}

// sndWndEnd is how much of struct tcp_info must be there for tcpi_snd_wnd
// (Linux 5.4).
const sndWndEnd = int(unsafe.Offsetof(unix.TCPInfo{}.Snd_wnd) + 4)

func ioctlInt(fd FD, req uint) (int, syscall.Errno) {
	var v int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(&v)))
	return int(v), e
}

func sysSendmsg(fd FD, m *unix.Msghdr, flags int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), uintptr(flags))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysRecvmsg(fd FD, m *unix.Msghdr, flags int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), uintptr(flags))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysSendmmsg(fd FD, m []mmsghdr, flags int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(flags), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysRecvmmsg(fd FD, m []mmsghdr, flags int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(flags), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// sysDiscard receives n bytes to nowhere.
func sysDiscard(fd FD, n int) (int, syscall.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// interfaceIndex asks for the number of an interface, 0 if there is none.
func interfaceIndex(name string) uint32 {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0
	}
	fd, e := sysSocket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if e != 0 {
		return 0
	}
	defer sysClose(fd)
	if unix.IoctlIfreq(int(fd), unix.SIOCGIFINDEX, req) != nil {
		return 0
	}
	return req.Uint32()
}
