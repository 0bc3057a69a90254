package hostsock

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted (net.core.somaxconn
// caps it).
const backlog = 4096

var noOptions Options

// Dial implements Host.
func (k *Kernel) Dial(p Proto, remote netip.AddrPort, o *Options) (FD, syscall.Errno) {
	if !remote.IsValid() {
		return None, syscall.EINVAL
	}
	if o == nil {
		o = &noOptions
	}
	v6 := remote.Addr().Unmap().Is6()
	fd, e := k.make(p, v6, false, o)
	if e != 0 {
		return None, e
	}
	if e = k.bind(fd, p, v6, o); e == 0 {
		n := k.addr.put(remote, v6, &k.zones)
		if e = sysConnect(fd, &k.addr, n); e == syscall.EINPROGRESS {
			e = 0
		}
	}
	if e != 0 {
		sysClose(fd)
		return None, e
	}
	k.adopt(fd, p, v6, false)
	return fd, 0
}

// Listen implements Host.
func (k *Kernel) Listen(p Proto, local netip.AddrPort, o *Options) (FD, syscall.Errno) {
	if !local.IsValid() {
		return None, syscall.EINVAL
	}
	if o == nil {
		o = &noOptions
	}
	// A v4-mapped address asks for an IPv4 socket; :: without V6Only is both.
	v6 := local.Addr().Unmap().Is6()
	both := v6 && !o.V6Only
	fd, e := k.make(p, v6, both, o)
	if e != 0 {
		return None, e
	}
	if p == TCP {
		// A restart must not wait for connections in TIME_WAIT; listening twice
		// on one port is refused all the same.
		setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	} else {
		receiveInfo(fd, v6)
	}
	n := k.addr.put(local, v6, &k.zones)
	if e = sysBind(fd, &k.addr, n); e == 0 && p == TCP {
		e = sysListen(fd, backlog)
	}
	if e != 0 {
		sysClose(fd)
		return None, e
	}
	k.adopt(fd, p, v6, both)
	return fd, 0
}

// make makes a socket with everything set that Dial and Listen share. both says
// that an IPv6 socket is to serve IPv4 too.
func (k *Kernel) make(p Proto, v6, both bool, o *Options) (FD, syscall.Errno) {
	if e := k.admit(); e != 0 {
		return None, e
	}
	family, typ, proto := unix.AF_INET, unix.SOCK_DGRAM, 0
	if v6 {
		family = unix.AF_INET6
	}
	switch {
	case p == TCP:
		typ = unix.SOCK_STREAM
	case p == Ping && v6:
		proto = unix.IPPROTO_ICMPV6
	case p == Ping:
		proto = unix.IPPROTO_ICMP
	}
	fd, e := sysSocket(family, typ, proto)
	if e != 0 {
		return None, k.limit(e)
	}
	if e := k.prepare(fd, p, v6, both, o); e != 0 {
		sysClose(fd)
		return None, e
	}
	return fd, 0
}

// bind gives a dialled socket its local address.
func (k *Kernel) bind(fd FD, p Proto, v6 bool, o *Options) syscall.Errno {
	local := o.Bind
	if !local.IsValid() {
		if p != Ping {
			return 0
		}
		// A ping socket has no identifier until it is bound, and the caller wants
		// to know it before the first echo.
		local = unspecified(v6, 0)
	}
	if p == TCP && local.Port() == 0 {
		// Let connect choose the port: it may then be in use towards other peers.
		setInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	n := k.addr.put(local, v6, &k.zones)
	e := sysBind(fd, &k.addr, n)
	if o.BindLoose && local.Port() != 0 && (e == syscall.EADDRINUSE || e == syscall.EACCES) {
		n = k.addr.put(netip.AddrPortFrom(local.Addr(), 0), v6, &k.zones)
		e = sysBind(fd, &k.addr, n)
	}
	return e
}

func unspecified(v6 bool, port uint16) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), port)
}

// Accept implements Host. TCP_NODELAY, SO_OOBINLINE and the peek offset are
// inherited from the listener.
func (k *Kernel) Accept(l FD) (fd FD, peer, local netip.AddrPort, e syscall.Errno) {
	s := k.sock(l)
	if s == nil {
		return None, peer, local, syscall.EBADF
	}
	v6, both := s.v6, s.both
	if e = k.admit(); e != 0 {
		return None, peer, local, e
	}
	k.alen = uint32(len(k.addr))
	fd, e = sysAccept(l, &k.addr, &k.alen)
	if e != 0 {
		return None, peer, local, k.limit(e)
	}
	peer = k.addr.get(k.alen, &k.zones)
	k.adopt(fd, TCP, v6, both)
	local, _ = k.LocalAddr(fd)
	return fd, peer, local, 0
}

// Refuse implements Host.
func (k *Kernel) Refuse(l FD) syscall.Errno {
	if k.sock(l) == nil {
		return syscall.EBADF
	}
	if k.spare != None {
		sysClose(k.spare)
	}
	k.alen = uint32(len(k.addr))
	fd, e := sysAccept(l, &k.addr, &k.alen)
	if e == 0 {
		setLinger(fd, unix.Linger{Onoff: 1})
		sysClose(fd)
		k.stats.Refused++
	}
	k.spare, _ = sysSpare() // None when somebody else was quicker; the next Refuse tries again
	return e
}

// sysSpare makes the cheapest descriptor there is.
func sysSpare() (FD, syscall.Errno) { return sysSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0) }
