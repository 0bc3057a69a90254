package vhostuser

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

const (
	// stallTime is how long a message may take from its first byte to its last,
	// and how long a reply may wait for the frontend to read.
	stallTime = eventloop.Time(5e9)
	// messagesPerTurn bounds what one readiness event gets done; epoll is
	// level-triggered, so the rest comes next turn, behind others.
	messagesPerTurn = 32
)

// conn is one connection: it cuts the byte stream into messages, with the
// descriptors that belong to each, and sends the replies. It is reused for the
// next one. A silent connection costs nothing but its descriptor.
type conn struct {
	s     *Server
	fd    int // -1: no frontend
	token eventloop.Token
	stall eventloop.TimerID

	in   [headerSize + maxPayload]byte
	have int // bytes of in
	need int // bytes of in that the message has, as far as is known
	fds  []int
	oob  []byte

	out   []byte // a reply that the socket did not take; while there is one, nothing is read
	reply [headerSize + configHead + maxConfig]byte
}

func (c *conn) init(s *Server) {
	c.s, c.fd = s, -1
	c.oob = make([]byte, oobSize)
	c.fds = make([]int, 0, maxFDs)
	c.stall = s.loop.Timers().New(c, 0)
}

// open starts a session on fd, which is non-blocking and now ours.
func (c *conn) open(fd int) error {
	t, err := c.s.loop.Add(fd, eventloop.In|eventloop.RDHup, c, 0)
	if err != nil {
		unix.Close(fd)
		return err
	}
	c.fd, c.token = fd, t
	c.have, c.need = 0, headerSize
	return nil
}

// close ends the session. The socket goes last: when the frontend sees it gone,
// its rings are at rest and its memory is unmapped.
func (c *conn) close(why error) {
	if c.fd < 0 {
		return
	}
	c.s.loop.Remove(c.token)
	c.s.loop.Timers().Stop(c.stall)
	c.dropFDs()
	c.out = c.out[:0]
	c.s.backend.disconnect()
	unix.Close(c.fd)
	c.fd, c.token = -1, 0
	c.s.disconnected(why)
}

// Ready implements eventloop.Source.
func (c *conn) Ready(_ uint32, ev eventloop.Events) {
	if len(c.out) != 0 && !c.flush() {
		return
	}
	for n := 0; n < messagesPerTurn && c.fd >= 0 && len(c.out) == 0; n++ {
		done, err := c.read()
		switch {
		case err != nil:
			c.close(err)
			return
		case !done:
			c.watch()
			return
		}
		c.handle()
	}
	if c.fd >= 0 && len(c.out) == 0 {
		c.watch()
	}
}

// watch sets the deadline of a message that has begun.
func (c *conn) watch() {
	w := c.s.loop.Timers()
	switch begun := c.have != 0; {
	case !begun:
		w.Stop(c.stall)
	case !w.Armed(c.stall):
		w.Set(c.stall, c.s.loop.Now()+stallTime)
	}
}

// Expired implements eventloop.Expirer.
func (c *conn) Expired(uint32) {
	if len(c.out) != 0 {
		c.close(fmt.Errorf("frontend does not read its replies"))
		return
	}
	c.close(fmt.Errorf("message stalled after %d bytes", c.have))
}

// Break implements eventloop.Breaker.
func (c *conn) Break(err error) {
	c.s.backend.fault(err)
	c.close(fmt.Errorf("device failed"))
}

// read goes on with the present message and tells whether it is complete.
func (c *conn) read() (done bool, err error) {
	for {
		var n int
		n, c.fds, err = receive(c.fd, c.in[c.have:c.need], c.oob, c.fds)
		switch {
		case err == errWouldBlock:
			return false, nil
		case err != nil:
			return false, err
		case len(c.fds) > maxFDs: // little by little
			return false, errTruncated
		}
		if c.have += n; c.have < c.need {
			continue
		}
		if c.have == headerSize {
			h := parseHeader(c.in[:])
			if err := h.check(); err != nil {
				return false, err
			}
			c.need += int(h.Size)
		}
		if c.have == c.need {
			return true, nil
		}
	}
}

// handle serves the complete message in c.in.
func (c *conn) handle() {
	b := &c.s.backend
	m := message{Header: parseHeader(c.in[:]), payload: c.in[headerSize:c.need], fds: c.fds,
		reply: c.reply[headerSize:headerSize]}
	c.s.loop.Timers().Stop(c.stall)
	c.s.count(m.Request)
	err := b.dispatch(&m)
	c.dropFDs()
	c.have, c.need = 0, headerSize

	ack := b.wantsAck(&m)
	if err != nil {
		_, isHostile := err.(hostile)
		_, isMalformed := err.(malformed)
		replies := requestFor(m.Request) != nil && requestFor(m.Request).replies
		if isHostile || (isMalformed || replies) && !ack {
			c.close(fmt.Errorf("%v: %w", m.Request, err))
			return
		}
		c.s.nacked(m.Request, err)
	}
	if m.replied {
		c.send(m.Request, m.reply)
	} else if ack {
		v := uint64(0)
		if err != nil {
			v = 1
		}
		c.send(m.Request, order.AppendUint64(m.reply[:0], v))
	}
}

// send sends a reply, whose payload is in its place behind the header in
// c.reply. What the socket does not take now is kept, and reading stops until it
// has gone: at most one reply is ever pending.
func (c *conn) send(r Request, payload []byte) {
	h := Header{Request: r, Flags: version | flagReply, Size: uint32(len(payload))}
	h.Append(c.reply[:0])
	c.out = append(c.out[:0], c.reply[:headerSize+len(payload)]...)
	if c.flush() || c.fd < 0 {
		return
	}
	c.s.loop.Modify(c.token, eventloop.Out)
	c.s.loop.Timers().Set(c.stall, c.s.loop.Now()+stallTime)
}

// flush sends what is pending and tells whether all of it has gone.
func (c *conn) flush() bool {
	n, err := unix.SendmsgN(c.fd, c.out, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case err != nil:
		c.close(err)
		return false
	case n < len(c.out):
		c.out = append(c.out[:0], c.out[n:]...)
		return false
	}
	c.out = c.out[:0]
	c.s.loop.Timers().Stop(c.stall)
	c.s.loop.Modify(c.token, eventloop.In|eventloop.RDHup)
	return true
}

func (c *conn) dropFDs() {
	closeFDs(c.fds)
	c.fds = c.fds[:0]
}

// peerGone tells whether the frontend has closed its end. It may have sent more
// before, which nobody waits for any more.
func (c *conn) peerGone() bool {
	p := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
