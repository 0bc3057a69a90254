package hostside

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/packet"
)

const (
	lineTime = 2 * eventloop.Time(time.Second)       // for the whole CONNECT line
	retryMin = 20 * eventloop.Time(time.Millisecond) // between attempts, doubling
	retryMax = 500 * eventloop.Time(time.Millisecond)
)

// state of a client. Its end is to be handed over or to be closed.
type state uint8

const (
	reading  state = iota // its CONNECT line is not complete
	asking                // the device has asked the guest
	retrying              // the guest has refused, and is asked again when the timer runs out
)

// client is a connection that has not been handed over.
type client struct {
	h      *Host
	from   *listener
	cookie uint32 // index in Host.clients
	fd     int
	token  eventloop.Token
	timer  eventloop.TimerID // of the line, then of the next attempt
	state  state

	line [maxLine]byte
	have int // bytes of line

	port     uint32         // of the guest
	hostPort uint32         // while asking
	until    eventloop.Time // attempts begin no later
	pause    eventloop.Time // until the next
}

// begin takes a new client in.
func (h *Host) begin(l *listener, fd int) {
	h.stats.Clients++
	c := &client{h: h, from: l, fd: fd, port: l.port, pause: retryMin}
	ev := eventloop.HUP
	if l.hybrid {
		ev = eventloop.In
	}
	var err error
	if c.token, err = h.loop.Add(fd, ev, c, 0); err != nil {
		h.logf("cannot serve a client of %v: %v", l.where, err)
		unix.Close(fd)
		return
	}
	c.timer = h.loop.Timers().New(c, 0)
	c.cookie = h.seat(c)
	l.pending++
	if l.where.Network == TCP {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if l.hybrid {
		h.loop.Timers().Set(c.timer, h.loop.Now()+lineTime)
		return
	}
	c.start()
}

// seat finds a cookie.
func (h *Host) seat(c *client) uint32 {
	if n := len(h.free); n > 0 {
		cookie := h.free[n-1]
		h.free = h.free[:n-1]
		h.clients[cookie] = c
		return cookie
	}
	h.clients = append(h.clients, c)
	return uint32(len(h.clients) - 1)
}

// Ready implements eventloop.Source.
func (c *client) Ready(uint32, eventloop.Events) {
	switch {
	case c.state == reading:
		c.read()
	case c.unread():
		// It wrote and left, which is its right: the guest shall have it.
		c.h.loop.Modify(c.token, 0)
	default:
		c.h.stats.LeftEarly++
		c.leave()
	}
}

// read takes as much of the CONNECT line as there is, and nothing behind it:
// that belongs to the guest.
func (c *client) read() {
	rest := c.line[c.have:]
	n, _, err := unix.Recvfrom(c.fd, rest, unix.MSG_PEEK|unix.MSG_TRUNC)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil || n <= 0:
		c.bad("it left before the end of its line")
		return
	case n > len(rest): // MSG_TRUNC: the length of a message, however much of it fits
		c.bad("its first message is no CONNECT line")
		return
	}
	end := bytes.IndexByte(rest[:n], '\n')
	take := n
	if end >= 0 {
		take = end + 1
	}
	if take < n && c.from.typ == packet.SeqPacket {
		c.bad("its first message goes on behind the CONNECT line")
		return
	}
	if _, _, err := unix.Recvfrom(c.fd, rest[:take], 0); err != nil {
		c.bad("it left before the end of its line")
		return
	}
	c.have += take
	switch {
	case end >= 0:
		c.parse()
	case c.have == maxLine:
		c.bad("its first line is no CONNECT line")
	}
}

func (c *client) parse() {
	port, ok := parseConnect(c.line[:c.have])
	if !ok {
		c.bad("its first line is no CONNECT line")
		return
	}
	c.port = port
	c.h.loop.Timers().Stop(c.timer)
	c.h.loop.Modify(c.token, eventloop.HUP)
	c.start()
}

func (c *client) bad(why string) {
	c.h.stats.BadLines++
	c.h.logf("client of %v closed: %s (expected: CONNECT PORT and a newline, %d bytes at most)", c.from.where, why, maxLine)
	c.leave()
}

// start begins with the attempts.
func (c *client) start() {
	c.until = c.h.loop.Now() + eventloop.Time(c.from.wait)
	c.ask()
}

func (c *client) ask() {
	errno := unix.ENOTCONN
	if c.h.device != nil {
		c.state = asking
		c.hostPort, errno = c.h.device.Connect(c.port, c.from.typ, c.h, c.cookie)
	}
	if errno != 0 {
		c.refused(errno)
	}
}

// Accepted implements vsockbridge.Initiator: the client is handed over.
func (h *Host) Accepted(cookie uint32, hostPort uint32) (fd int, ok bool) {
	c := h.clients[cookie]
	if c.from.hybrid && !c.greet(hostPort) {
		h.stats.LeftEarly++
		c.end()
		unix.Close(c.fd)
		return -1, false
	}
	h.stats.Connected++
	c.end()
	return c.fd, true
}

// greet sends the OK line, and reports whether there is anybody to serve: a
// client that does not read any more may still have written. The socket is new,
// so that the line goes in whole or not at all.
func (c *client) greet(hostPort uint32) bool {
	line := c.h.c.OKLine.text(hostPort)
	if len(line) == 0 {
		return true
	}
	n, err := unix.SendmsgN(c.fd, line, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	return err == nil && n == len(line) || c.unread()
}

// unread tells whether the client has written what nobody has read.
func (c *client) unread() bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}

// Refused implements vsockbridge.Initiator.
func (h *Host) Refused(cookie uint32, why unix.Errno) { h.clients[cookie].refused(why) }

// refused arranges for another attempt, or closes the client, without a word, as
// the protocol has it.
func (c *client) refused(why unix.Errno) {
	c.state = retrying
	now := c.h.loop.Now()
	if now >= c.until {
		c.h.stats.Refused++
		c.h.logf("client of %v closed: port %d: %s", c.from.where, c.port, refusal(why))
		c.leave()
		return
	}
	c.h.loop.Timers().Set(c.timer, min(now+c.pause, c.until))
	c.pause = min(2*c.pause, retryMax)
}

func refusal(why unix.Errno) string {
	switch why {
	case unix.ECONNREFUSED:
		return "nobody listens there in the guest"
	case unix.ENOTCONN, unix.EHOSTUNREACH:
		return "the guest is not there, or has no vsock driver"
	case unix.ETIMEDOUT:
		return "the guest does not answer"
	case unix.ESOCKTNOSUPPORT:
		return "the guest's driver does not know this type of socket"
	case unix.EAGAIN:
		return "the guest has as many connections as it may have"
	}
	return why.Error()
}

// Expired implements eventloop.Expirer.
func (c *client) Expired(uint32) {
	if c.state == reading {
		c.h.stats.SlowLines++
		c.h.logf("client of %v closed: no CONNECT line within 2 s", c.from.where)
		c.leave()
		return
	}
	c.h.stats.Retries++
	c.ask()
}

// leave closes the client.
func (c *client) leave() {
	if c.state == asking {
		c.h.device.Cancel(c.hostPort)
	}
	c.end()
	unix.Close(c.fd)
}

// end forgets the client, whose descriptor is its caller's from now on.
func (c *client) end() {
	c.h.loop.Remove(c.token)
	c.h.loop.Timers().Free(c.timer)
	c.h.clients[c.cookie] = nil
	c.h.free = append(c.h.free, c.cookie)
	l := c.from
	if l.pending--; l.pending == maxPending-1 {
		l.arm()
	}
}
