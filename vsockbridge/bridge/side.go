package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/relay"
)

// opened is one side of a connection, ready for the relay.
type opened struct {
	relay.End
	// done tidies up once the relay has closed the End; it may take some seconds.
	// nil: nothing to tidy up.
	done func()
}

// side is where opened ends come from.
type side interface {
	// open accepts the next client, or connects.
	open(ctx context.Context) (opened, error)
	// where says how to reach it.
	where() string
	close()
}

// newSide opens what listens. What connects is only opened for a client.
func newSide(a Address) (side, error) {
	switch a.kind.name {
	case "unix-listen", "tcp-listen", "vsock-listen":
		return newListener(a)
	case "unix-recv":
		return newReceiver(a)
	case "stdio":
		return &stdio{a}, nil
	case "exec":
		return &command{a}, nil
	}
	return &dialer{a}, nil
}

// listener is a side where clients connect to.
type listener struct {
	a    Address
	l    net.Listener
	file unixsock.Listener
}

const backlog = 4096 // which the kernel cuts to net.core.somaxconn

func newListener(a Address) (side, error) {
	l := &listener{a: a, file: unixsock.Listener{FD: -1}}
	var err error
	switch a.kind.name {
	case "unix-listen":
		err = l.listenUnix()
	case "tcp-listen":
		l.l, err = net.Listen("tcp", a.HostPort)
	case "vsock-listen":
		l.l, err = listenVsock(&a)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) listenUnix() (err error) {
	o := unixsock.Options{Type: l.a.Type, Mode: l.a.Mode, UID: l.a.UID, GID: l.a.GID, Backlog: backlog}
	if l.file, err = unixsock.Listen(l.a.Path, o); err != nil {
		return err
	}
	f, err := dup(l.file.FD)
	if err == nil {
		defer f.Close() // FileListener has its own
		l.l, err = net.FileListener(f)
	}
	if err != nil {
		l.file.Close()
	}
	return err
}

// dup returns a second descriptor for the same socket.
func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), "socket"), nil
}

func (l *listener) open(ctx context.Context) (opened, error) {
	stop := context.AfterFunc(ctx, func() { l.l.Close() })
	defer stop()
	c, err := l.l.Accept()
	if err != nil {
		return opened{}, err
	}
	return end(c, &l.a)
}

func (l *listener) where() string {
	if l.a.kind.name == "tcp-listen" {
		return "tcp-listen:" + l.l.Addr().String() // port 0 has become one
	}
	return l.a.String()
}

func (l *listener) close() {
	l.l.Close()
	l.file.Close()
}

// receiver is a side where datagrams come in. It is a client from when one is
// there until the pair that takes them ends.
type receiver struct {
	a    Address
	file unixsock.Listener
}

func newReceiver(a Address) (side, error) {
	file, err := unixsock.Listen(a.Path, unixsock.Options{Type: a.Type, Mode: a.Mode, UID: a.UID, GID: a.GID})
	if err != nil {
		return nil, err
	}
	return &receiver{a, file}, nil
}

// open waits for a datagram, unless told not to, and leaves it in the socket.
func (r *receiver) open(ctx context.Context) (opened, error) {
	f, err := dup(r.file.FD)
	if err != nil {
		return opened{}, err
	}
	defer f.Close() // Go's poller need not watch while the relay does
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return opened{}, err
	}
	err = raw.Read(func(fd uintptr) bool {
		if r.a.Eager {
			return true
		}
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
	if err != nil {
		return opened{}, err
	}
	fd, err := takeFD(f)
	return opened{End: relay.End{In: fd, Out: -1, Kind: relay.Datagram}}, err
}

func (r *receiver) where() string { return r.a.String() }
func (r *receiver) close()        { r.file.Close() }

// end hands a connection over from Go's poller to the relay.
func end(c net.Conn, a *Address) (opened, error) {
	defer c.Close()
	sc, ok := c.(syscall.Conn)
	if !ok {
		return opened{}, fmt.Errorf("%T has no descriptor", c)
	}
	fd, err := takeFD(sc)
	if err != nil {
		return opened{}, err
	}
	if a.Buffer > 0 {
		if err := setBuffer(fd, a.Buffer); err != nil {
			unix.Close(fd)
			return opened{}, fmt.Errorf("buffer=%d: %w", a.Buffer, err)
		}
	}
	if a.isVsock() && a.Type == unix.SOCK_SEQPACKET {
		return wholeMessages(fd)
	}
	return opened{End: relay.Socket(fd, a.carries())}, nil
}

// takeFD returns a descriptor of our own for a socket that Go has opened.
func takeFD(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(cerr, err)
}
