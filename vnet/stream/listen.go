package stream

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// retry is how long to wait before connecting again, or accepting again after
// the process has run out of descriptors.
const retry = eventloop.Time(500_000_000)

const (
	socketType = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	backlog    = 1
)

// listener is how the next peer comes.
type listener struct {
	fd    int // listening socket, -1: none
	token eventloop.Token
	timer eventloop.TimerID
	path  string // socket file that is ours to remove
	dev   uint64
	ino   uint64
	quiet bool // the reason why no connection is had has been logged
}

// open begins to wait for a peer.
func (e *Endpoint) open() error {
	e.listener.timer = e.loop.Timers().New(e, 0)
	switch {
	case e.c.Client:
		e.dial()
		return nil
	case e.c.Path != "":
		fd, err := e.bind()
		if err != nil {
			return fmt.Errorf("stream: listen on %s: %w", e.c.Path, err)
		}
		return e.listen(fd)
	}
	return e.take(e.c.FD)
}

// take uses a socket that we were started with.
func (e *Endpoint) take(fd int) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return fmt.Errorf("stream: descriptor %d is not a stream socket", fd)
	}
	unix.CloseOnExec(fd)
	if on, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); on != 0 {
		return e.listen(fd)
	}
	if err := e.connected(fd); err != nil {
		return fmt.Errorf("stream: descriptor %d: %w", fd, err)
	}
	return nil
}

func (e *Endpoint) listen(fd int) (err error) {
	e.listener.fd = fd
	if err = unix.SetNonblock(fd, true); err == nil {
		e.listener.token, err = e.loop.Add(fd, eventloop.In, e, cookieListen)
	}
	if err != nil {
		return fmt.Errorf("stream: listening socket: %w", err)
	}
	return nil
}

// bind makes the listening socket at c.Path. A socket file there that nobody
// listens on is left over from a process that died, and is replaced; anything
// else is not ours to remove.
func (e *Endpoint) bind() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, socketType, 0)
	if err != nil {
		return -1, err
	}
	addr := &unix.SockaddrUnix{Name: e.c.Path}
	err = unix.Bind(fd, addr)
	if errors.Is(err, unix.EADDRINUSE) {
		if err = removeStale(e.c.Path); err == nil {
			err = unix.Bind(fd, addr)
		}
	}
	if err == nil {
		err = e.own(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// own sets the file's mode before anyone can connect, and remembers the file.
func (e *Endpoint) own(fd int) error {
	var st unix.Stat_t
	if err := unix.Lstat(e.c.Path, &st); err != nil {
		return err
	}
	l := &e.listener
	l.path, l.dev, l.ino = e.c.Path, st.Dev, st.Ino
	mode := e.c.Mode.Perm()
	if mode == 0 {
		mode = 0o600
	}
	if err := unix.Chmod(e.c.Path, uint32(mode)); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

func removeStale(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errors.New("the file exists and is not a socket")
	}
	fd, err := unix.Socket(unix.AF_UNIX, socketType, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// EAGAIN is a listener whose backlog is full.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.ECONNREFUSED) {
		return errors.New("another process listens there")
	}
	return unix.Unlink(path)
}

func (e *Endpoint) closeListener() {
	l := &e.listener
	e.loop.Timers().Free(l.timer)
	if l.fd >= 0 {
		e.loop.Remove(l.token)
		unix.Close(l.fd)
	}
	var st unix.Stat_t
	if l.path != "" && unix.Lstat(l.path, &st) == nil && st.Dev == l.dev && st.Ino == l.ino {
		unix.Unlink(l.path)
	}
	*l = listener{fd: -1}
}

// acceptable takes the next peer. A second one is told at once, by being closed,
// that it is one too many.
func (e *Endpoint) acceptable() {
	fd, _, err := unix.Accept4(e.listener.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		// The connection stays pending and the socket readable: look away.
		e.c.Log("stream: accept: %v", err)
		e.loop.Modify(e.listener.token, 0)
		e.sleep()
	case err != nil: // it went away again
	case e.conn.fd >= 0 && !e.left():
		e.stats.Refused++
		e.c.Log("stream: second peer refused")
		unix.Close(fd)
	default:
		if err := e.connected(fd); err != nil {
			e.c.Log("stream: %v", err)
		}
	}
}

// left ends the session if the peer has left and the loop is yet to say so: a
// process that asks whether anybody listens here comes and goes at once, and
// must not stand in the way of the next.
func (e *Endpoint) left() bool {
	if !peerLeft(e.conn.fd) {
		return false
	}
	e.lost("has left")
	return true
}

// next waits for another peer after one has been lost.
func (e *Endpoint) next() {
	switch {
	case e.c.Client:
		e.sleep()
	case e.listener.fd < 0 && e.c.Gone != nil:
		e.c.Gone()
	}
}

func (e *Endpoint) sleep() {
	e.loop.Timers().Set(e.listener.timer, e.loop.Now()+retry)
}

// Expired implements eventloop.Expirer: time to try again.
func (e *Endpoint) Expired(uint32) {
	if e.c.Client {
		e.dial()
		return
	}
	e.loop.Modify(e.listener.token, eventloop.In)
}

// dial connects to the peer's socket. UNIX sockets connect at once or not at
// all.
func (e *Endpoint) dial() {
	fd, err := unix.Socket(unix.AF_UNIX, socketType, 0)
	if err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: e.c.Path}); err != nil {
			unix.Close(fd)
		} else {
			err = e.connected(fd)
		}
	}
	if err != nil {
		if !e.listener.quiet {
			e.c.Log("stream: connect to %s: %v; trying again", e.c.Path, err)
		}
		e.sleep()
	}
	e.listener.quiet = err != nil
}
