package hostside

import (
	"strconv"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/packet"
)

// Dial implements vsockbridge.Host: the rule for the port if there is one, else
// ForwardCID, else the socket at UDSPath_<port>. EAGAIN says that its owner is slow to accept and
// that another attempt may succeed.
func (h *Host) Dial(guest uint64, port uint32, t packet.Type) (fd int, connecting bool, errno unix.Errno) {
	to, ours := h.target(port, t)
	switch {
	case to.Network == 0:
		h.stats.DialErrors++
		h.logf("port %d (%v): no rule connects it", port, t)
		return -1, false, unix.ECONNREFUSED
	case to.Network == Unix && ours:
		errno = socketFile(to.Path)
	}
	if errno == 0 {
		fd, connecting, errno = dial(to, t)
	}
	if errno != 0 {
		h.stats.DialErrors++
		h.logf("port %d (%v): cannot connect to %v: %s", port, t, to, obstacle(errno))
		return -1, false, errno
	}
	h.stats.Dials++
	return fd, connecting, 0
}

// target finds what serves a port, and tells whether we made its path.
func (h *Host) target(port uint32, t packet.Type) (to Address, ours bool) {
	for i := range h.c.Connect {
		if r := &h.c.Connect[i]; r.Port == port && r.Type == t {
			return r.Host, false
		}
	}
	switch {
	case h.c.ForwardCID != 0:
		return Address{Network: Vsock, CID: h.c.ForwardCID, Port: port}, false
	case h.c.UDSPath == "":
		return Address{}, false
	}
	return Address{Network: Unix, Path: h.c.UDSPath + "_" + strconv.FormatUint(uint64(port), 10)}, true
}

// socketFile checks that path is a socket itself. The guest chooses the number in
// it, and a symbolic link would make that mean something else than what lies in
// the folder.
func socketFile(path string) unix.Errno {
	if unixsock.Abstract(path) {
		return 0
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.(unix.Errno)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return 0
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENOTSOCK
}

// dial begins to connect.
func dial(to Address, t packet.Type) (fd int, connecting bool, errno unix.Errno) {
	if to.Network == Unix {
		fd, errno = unixsock.Dial(to.Path, sockType(t))
		return fd, false, errno
	}
	domain, sa := to.sockaddr()
	fd, err := unix.Socket(domain, sockType(t)|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, err.(unix.Errno)
	}
	if to.Network == TCP {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	switch err := unix.Connect(fd, sa); err {
	case nil:
		return fd, false, 0
	case unix.EINPROGRESS:
		return fd, true, 0
	default:
		unix.Close(fd)
		return -1, false, err.(unix.Errno)
	}
}

// obstacle says what an error of connect(2) means here.
func obstacle(e unix.Errno) string {
	switch e {
	case unix.ENOENT:
		return "there is no such socket"
	case unix.ECONNREFUSED:
		return "nobody listens on it"
	case unix.ELOOP:
		return "it is a symbolic link: name the socket that it leads to by a rule (vsock:PORT=unix:PATH)"
	case unix.ENOTSOCK:
		return "it is not a socket"
	case unix.EPROTOTYPE:
		return "it is a socket of another type"
	case unix.EAGAIN:
		return "its owner does not accept, and its backlog is full"
	case unix.EAFNOSUPPORT, unix.ENODEV:
		return "this host's kernel lacks the protocol or the CID"
	}
	return e.Error()
}
