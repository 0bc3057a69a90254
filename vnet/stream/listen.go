package stream

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
)

// retry is how long to wait before connecting again, or accepting again after
// the process has run out of descriptors.
const retry = eventloop.Time(500_000_000)

const backlog = 1

// listener is how the next peer comes.
type listener struct {
	sock  unixsock.Listener // FD -1: none
	token eventloop.Token
	timer eventloop.TimerID
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
		l, err := unixsock.Listen(e.c.Path, unixsock.Options{Mode: e.c.Mode, Backlog: backlog})
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		return e.listen(l)
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
		return e.listen(unixsock.Listener{FD: fd})
	}
	if err := e.connected(fd); err != nil {
		return fmt.Errorf("stream: descriptor %d: %w", fd, err)
	}
	return nil
}

func (e *Endpoint) listen(l unixsock.Listener) (err error) {
	e.listener.sock = l
	if err = unix.SetNonblock(l.FD, true); err == nil {
		e.listener.token, err = e.loop.Add(l.FD, eventloop.In, e, cookieListen)
	}
	if err != nil {
		return fmt.Errorf("stream: listening socket: %w", err)
	}
	return nil
}

func (e *Endpoint) closeListener() {
	l := &e.listener
	e.loop.Timers().Free(l.timer)
	e.loop.Remove(l.token)
	l.sock.Close()
	*l = listener{sock: unixsock.Listener{FD: -1}}
}

// acceptable takes the next peer. A second one is told at once, by being closed,
// that it is one too many.
func (e *Endpoint) acceptable() {
	fd, _, err := unix.Accept4(e.listener.sock.FD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
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
	case e.listener.sock.FD < 0 && e.c.Gone != nil:
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
	if e.loop.Modify(e.listener.token, eventloop.In) != nil { // not even the memory to be woken
		e.sleep()
	}
}

// dial connects to the peer's socket. UNIX sockets connect at once or not at
// all.
func (e *Endpoint) dial() {
	fd, errno := unixsock.Dial(e.c.Path, unix.SOCK_STREAM)
	err := error(errno)
	if errno == 0 {
		err = e.connected(fd)
	}
	if err != nil {
		if !e.listener.quiet {
			e.c.Log("stream: connect to %s: %v; trying again", e.c.Path, err)
		}
		e.sleep()
	}
	e.listener.quiet = err != nil
}
