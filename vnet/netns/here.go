package netns

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Here makes sockets in the namespace that the process is in.
type Here struct{}

// Sockets makes n sockets, at most 64.
func (Here) Sockets(domain, typ, n int) (fds []int, err error) {
	for range min(n, maxFDs) {
		fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// backlog is how many connections wait to be accepted, as far as somaxconn lets it.
const backlog = 4096

// Listen makes a socket that is bound to addr and, if a stream, listens; one of IPv6
// takes no IPv4.
func (Here) Listen(typ int, addr netip.AddrPort) (int, unix.Errno) {
	domain, sa := sockaddr(addr)
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err.(unix.Errno)
	}
	if domain == unix.AF_INET6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	// Behind connections that are in TIME-WAIT a server may listen anew; for UDP it
	// lets the sockets of flows share the port.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = unix.Bind(fd, sa); err == nil && typ == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err.(unix.Errno)
	}
	return fd, 0
}

func sockaddr(a netip.AddrPort) (int, unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
