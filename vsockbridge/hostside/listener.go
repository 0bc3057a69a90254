package hostside

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/packet"
)

const (
	backlog        = 4096 // connections that wait to be accepted, per listener
	acceptsPerTurn = 16
	maxPending     = 64 // clients that wait for the guest's answer, per listener
	restTime       = 100 * eventloop.Time(time.Millisecond)
)

// listener is one listening socket.
type listener struct {
	h     *Host
	sock  unixsock.Listener
	where Address
	typ   packet.Type
	file  File

	hybrid bool          // clients begin with a CONNECT line
	port   uint32        // of the guest, unless hybrid
	wait   time.Duration // to try again while the guest refuses

	token   eventloop.Token
	timer   eventloop.TimerID
	pending int  // clients that have not been handed over
	resting bool // out of descriptors or memory, until the timer
}

// listen opens a listener and puts it to work.
func (h *Host) listen(l *listener) error {
	l.h = h
	if err := l.open(); err != nil {
		return err
	}
	l.timer = h.loop.Timers().New(l, 0)
	h.listeners = append(h.listeners, l)
	var err error
	l.token, err = h.loop.Add(l.sock.FD, eventloop.In, l, 0)
	return err
}

func (l *listener) open() (err error) {
	if l.where.Network == Unix {
		l.sock, err = unixsock.Listen(l.where.Path, unixsock.Options{Type: sockType(l.typ), Backlog: backlog,
			Mode: l.file.Mode, UID: l.file.UID, GID: l.file.GID})
		return err
	}
	domain, sa := l.where.sockaddr()
	fd, err := unix.Socket(domain, sockType(l.typ)|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot listen on %v: %w", l.where, meaning(err))
	}
	l.sock = unixsock.Listener{FD: fd}
	if err = bind(fd, domain, sa); err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		l.sock.Close()
		return fmt.Errorf("cannot listen on %v: %w", l.where, meaning(err))
	}
	l.where = bound(fd, l.where)
	return nil
}

func bind(fd, domain int, sa unix.Sockaddr) error {
	if domain != unix.AF_VSOCK {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if domain == unix.AF_INET6 { // :: is what it says, not IPv4 as well
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, sa)
}

// bound is where with the port that the kernel chose for TCP's port 0.
func bound(fd int, where Address) Address {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return where
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		where.TCP = netip.AddrPortFrom(where.TCP.Addr(), uint16(sa.Port))
	case *unix.SockaddrInet6:
		where.TCP = netip.AddrPortFrom(where.TCP.Addr(), uint16(sa.Port))
	}
	return where
}

// meaning says what an error of bind(2) or socket(2) means here.
func meaning(err error) error {
	switch err {
	case unix.EADDRINUSE:
		return errors.New("the port is in use: choose another, or end who has it")
	case unix.EACCES, unix.EPERM:
		return errors.New("we may not have this port: choose one from 1024 on, or run with CAP_NET_BIND_SERVICE")
	case unix.EADDRNOTAVAIL:
		return errors.New("it is no address of this host")
	case unix.EAFNOSUPPORT:
		return errors.New("this host's kernel lacks the protocol (for vsock: modprobe vhost_vsock or vsock_loopback)")
	}
	return err
}

func sockType(t packet.Type) int {
	if t == packet.SeqPacket {
		return unix.SOCK_SEQPACKET
	}
	return unix.SOCK_STREAM
}

// Ready implements eventloop.Source: clients are waiting.
func (l *listener) Ready(uint32, eventloop.Events) {
	for range acceptsPerTurn {
		if l.pending == maxPending {
			l.arm()
			return
		}
		fd, _, err := unix.Accept4(l.sock.FD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.h.begin(l, fd)
		case unix.ECONNABORTED, unix.EPROTO, unix.EINTR: // it has gone again
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE:
			l.turnAway()
			l.rest(err)
			return
		default: // ENOBUFS, ENOMEM, or something that time may mend
			l.rest(err)
			return
		}
	}
}

// arm has the loop call as long as there is room for another client.
func (l *listener) arm() {
	ev := eventloop.In
	if l.resting || l.pending == maxPending {
		ev = 0
	}
	l.h.loop.Modify(l.token, ev)
}

// rest leaves the listener alone for a while: what waits keeps it readable, and
// would wake us for ever.
func (l *listener) rest(why error) {
	l.h.stats.Pauses++
	l.h.logf("cannot accept on %v: %v", l.where, why)
	l.resting = true
	l.arm()
	l.h.loop.Timers().Set(l.timer, l.h.loop.Now()+restTime)
}

// Expired implements eventloop.Expirer: the rest is over.
func (l *listener) Expired(uint32) {
	l.resting = false
	l.h.refill()
	l.arm()
}

// turnAway closes, by means of the descriptor kept for it, the connections that
// wait: their clients should learn it now and not in their own good time.
func (l *listener) turnAway() {
	h := l.h
	for range acceptsPerTurn {
		if h.reserve < 0 {
			return
		}
		unix.Close(h.reserve)
		h.reserve = -1
		fd, _, err := unix.Accept4(l.sock.FD, unix.SOCK_CLOEXEC)
		if err == nil {
			unix.Close(fd)
			h.stats.TurnedAway++
		}
		h.refill()
		if err != nil {
			return
		}
	}
}

// refill opens the descriptor kept for turning clients away.
func (h *Host) refill() {
	if h.reserve >= 0 {
		return
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		h.reserve = fd
	}
}

func (l *listener) close() {
	l.h.loop.Remove(l.token)
	l.h.loop.Timers().Free(l.timer)
	l.sock.Close()
}
