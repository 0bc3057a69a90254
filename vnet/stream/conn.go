package stream

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// Cookies of the loop's registrations.
const (
	cookieListen uint32 = iota
	cookieConn
)

// conn is the connection to the peer.
type conn struct {
	fd      int // -1: none
	token   eventloop.Token
	up      bool // the handler knows
	wantOut bool // the socket is full: wait for Out
	dead    bool // a write failed: to be dropped in the next turn
}

// Ready implements eventloop.Source.
func (e *Endpoint) Ready(cookie uint32, ev eventloop.Events) {
	if cookie == cookieListen {
		e.acceptable()
		return
	}
	if e.conn.dead {
		e.lost("does not read any more")
		return
	}
	if !e.conn.up {
		e.conn.up = true
		e.h.LinkUp(e, true)
	}
	if ev&(eventloop.Out|eventloop.Again) != 0 {
		e.write()
		e.drained()
	}
	if e.conn.fd >= 0 && ev&^(eventloop.Out|eventloop.Again) != 0 {
		e.readable()
	}
}

// connected begins a session on fd, which it owns from now on. The handler
// learns of it in the next turn, when whoever made the Endpoint has it.
func (e *Endpoint) connected(fd int) error {
	// Room for a turn's worth of frames, as far as the host allows: a peer that is
	// woken once for many frames costs both sides less.
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, outSize)
	t, err := e.loop.Add(fd, eventloop.In, e, cookieConn)
	if err != nil {
		unix.Close(fd)
		return err
	}
	e.conn = conn{fd: fd, token: t}
	e.in.from, e.in.to = 0, 0
	e.out.reset()
	e.stats.Connects++
	e.loop.Again(t)
	return nil
}

// drop ends the session.
func (e *Endpoint) drop() {
	if e.conn.fd < 0 {
		return
	}
	up := e.conn.up
	e.loop.Remove(e.conn.token)
	unix.Close(e.conn.fd)
	e.conn = conn{fd: -1}
	e.out.reset()
	if up {
		e.h.LinkDown()
		e.h.GuestGone()
	}
}

// lost ends the session because the peer did, and waits for the next.
func (e *Endpoint) lost(why string) {
	if e.conn.fd < 0 {
		return
	}
	e.c.Log("stream: peer %s", why)
	e.drop()
	e.next()
}

// read reads once. It reports false when there is nothing to go on with.
func (e *Endpoint) read(b []byte) (int, bool) {
	e.stats.Reads++
	n, errno := recv(e.conn.fd, b)
	switch {
	case errno == 0 && n > 0:
		return n, true
	case errno == 0:
		e.lost("has left")
	case !temporary(errno):
		e.lost("is gone: " + errno.Error())
	}
	return 0, false
}

// write writes once, as much as the socket takes, and reports whether that was
// anything.
func (e *Endpoint) write() bool {
	o := &e.out
	if e.conn.fd < 0 || e.conn.dead || o.empty() {
		return false
	}
	e.stats.Writes++
	n, errno := send(e.conn.fd, o.buf[o.from:o.to])
	switch {
	case errno == 0:
		o.from += n
	case !temporary(errno):
		// The handler may be in the middle of its work: tell it in a turn of our
		// own.
		e.conn.dead = true
		e.loop.Again(e.conn.token)
		return false
	}
	e.waitOut(!o.empty())
	return errno == 0
}

// waitOut has the loop watch for room in the socket, or not.
func (e *Endpoint) waitOut(on bool) {
	if on == e.conn.wantOut {
		return
	}
	ev := eventloop.In
	if on {
		ev |= eventloop.Out
	}
	if e.loop.Modify(e.conn.token, ev) == nil {
		e.conn.wantOut = on
	}
}

func temporary(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ENOBUFS
}
