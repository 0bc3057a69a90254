package vsockbridge

import (
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/packet"
)

// How long a connection may be in a phase that should be short.
const (
	dialLimit   = eventloop.Time(30 * time.Second) // dialing: a guest gives up after 2 s by default
	answerLimit = eventloop.Time(5 * time.Second)  // asked
	lingerLimit = eventloop.Time(10 * time.Second) // leaving, and open with both directions told: a guest waits 8 s for its RST
	orphanLimit = eventloop.Time(60 * time.Second) // orphan
	probeAfter  = eventloop.Time(250 * time.Millisecond)
)

// owed is what a connection has to tell the guest, a set. It is kept here and
// not in a queue: a guest that takes no packets cannot make it grow.
type owed uint8

const (
	oweRequest owed = 1 << iota
	oweResponse
	oweReset
	oweShutdown
	oweCredit
	oweCreditRequest
)

// conn is one connection between the guest and a host socket.
type conn struct {
	key
	slot   int32
	next   int32 // in the run queue, or in the chain of vacant slots
	listed bool  // found by its key
	queued bool  // in the run queue
	typ    packet.Type
	owe    owed
	state  state
	credit credit

	fd       int // -1: none
	token    eventloop.Token
	readable bool // reading may give something
	hungUp   bool // its peer sends no more: reading goes on until the end
	closed   bool // its peer receives no more either
	waiting  bool // for the socket to be writable
	unix     bool
	widened  bool  // its send buffer has been enlarged
	want     int32 // chains that the next read is given

	blocked bool // the guest has no room: its next credit goes on
	probing bool // the timer asks the guest for credit; else it ends the phase
	timer   eventloop.TimerID

	out stage // from the guest, what the host socket has not taken
	in  stage // of a host message, what the guest has not taken

	initiator Initiator
	cookie    uint32

	sibling *Device // whose guest is the peer; nil: the host is
	other   int32   // the connection's slot there
}

// hostSide is the device as the loop's source for host sockets, by slot.
type hostSide Device

// deadlines is the device as the wheel's expirer, by slot.
type deadlines Device

// happen steps the connection's state and does what follows. why goes to an
// initiator that is refused. c may be vacant afterwards.
func (d *Device) happen(c *conn, e event, why unix.Errno) action {
	var act action
	c.state, act = c.state.step(e)
	if act == 0 {
		return 0
	}
	in, cookie := c.initiator, c.cookie
	if act&actShutRead != 0 {
		shutdown(c.fd, unix.SHUT_RD)
	}
	if act&actShutWrite != 0 {
		shutdown(c.fd, unix.SHUT_WR)
	}
	if act&actCloseHost != 0 {
		d.closeHost(c)
	}
	if act&actLinger != 0 {
		limit := lingerLimit
		if c.state.phase == orphan {
			limit = orphanLimit
		}
		d.deadline(c, limit)
	}
	if act&actUnlist != 0 {
		d.unlist(c)
	}
	d.owes(c, act)
	if act&actRefuse != 0 {
		c.initiator = nil
	}
	if act&actFree != 0 {
		d.free(c)
	}
	if act&actRefuse != 0 && in != nil {
		in.Refused(cookie, why)
	}
	return act
}

func (d *Device) owes(c *conn, act action) {
	switch {
	case act&actReset != 0:
		c.owe = oweReset // nothing else matters any more
		d.noDeadline(c)
	case act&actRespond != 0:
		c.owe |= oweResponse
	case act&actTell != 0:
		c.owe |= oweShutdown
	default:
		return
	}
	d.enqueue(c)
}

// adopt registers the host socket of c, which is connected, or is being if
// connecting. It closes it when that is impossible.
func (d *Device) adopt(c *conn, fd int, connecting bool) bool {
	ev := eventloop.In | eventloop.RDHup | eventloop.Edge
	if connecting {
		ev = eventloop.Out | eventloop.Edge
	}
	token, err := d.loop.Add(fd, ev, (*hostSide)(d), uint32(c.slot))
	if err != nil {
		closeFD(fd)
		return false
	}
	c.fd, c.token, c.want = fd, token, minWant
	c.unix = sockOption(fd, unix.SO_DOMAIN) == unix.AF_UNIX
	return true
}

// closeHost closes the host socket and drops what waits on either side of it.
func (d *Device) closeHost(c *conn) {
	if c.fd >= 0 {
		d.loop.Remove(c.token)
		d.lingers.Close(c.fd)
		c.fd, c.token = -1, 0
	}
	if n := c.credit.held(); n > 0 {
		c.credit.forward(n)
	}
	c.out.clear(&d.pool)
	c.in.clear(&d.pool)
	c.readable, c.waiting = false, false
}

// unlist makes the connection's ports free for another.
func (d *Device) unlist(c *conn) {
	if c.listed {
		d.ports.release(c)
		d.conns.unlist(c)
	}
}

// free gives the slot of c back.
func (d *Device) free(c *conn) {
	d.loop.Timers().Free(c.timer)
	if c.queued {
		d.queue.remove(&d.conns, c)
	}
	if d.run == c {
		d.run = nil
		d.vec.reset()
	}
	if c.sibling == nil {
		d.granted -= uint64(c.credit.alloc)
	}
	d.unlist(c)
	d.conns.remove(c)
}
