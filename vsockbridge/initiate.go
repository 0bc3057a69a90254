package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// The host's ends of connections to the guest get ports from this range: of at
// most five digits, for clients that expect no more in an OK line, and so many
// that a port comes again only long after its connection has ended.
const (
	firstPort = 16384
	numPorts  = 65536 - firstPort
)

// ports are those of the range in use, by the connection's slot.
type ports struct {
	slot []uint16 // slot+1, 0: free; made with the first Connect
	last uint32   // handed out last, from firstPort
}

// next returns a port that is free. There are more ports than connections, so
// one is.
func (p *ports) next() uint32 {
	if p.slot == nil {
		p.slot = make([]uint16, numPorts)
	}
	for {
		p.last = (p.last + 1) % numPorts
		if p.slot[p.last] == 0 {
			return firstPort + p.last
		}
	}
}

// take gives c its port.
func (p *ports) take(c *conn) { p.slot[c.peerPort-firstPort] = uint16(c.slot + 1) }

// find returns the slot that has a port, -1 if none has.
func (p *ports) find(port uint32) int32 {
	if n := port - firstPort; p.slot != nil && n < numPorts {
		return int32(p.slot[n]) - 1
	}
	return -1
}

// release frees the port of c if it is of the range and c has it.
func (p *ports) release(c *conn) {
	if p.find(c.peerPort) == c.slot {
		p.slot[c.peerPort-firstPort] = 0
	}
}

// Connect asks the guest for a connection to port. in hears of the outcome, by
// cookie; hostPort is this end's port. Without a guest it fails with ENOTCONN,
// for a type that its driver does not know with ESOCKTNOSUPPORT, and with EAGAIN
// when there are too many connections.
func (d *Device) Connect(port uint32, t packet.Type, in Initiator, cookie uint32) (hostPort uint32, errno unix.Errno) {
	switch {
	case !d.up:
		return 0, unix.ENOTCONN
	case !d.speaks(t):
		return 0, unix.ESOCKTNOSUPPORT
	case d.conns.full():
		d.counters.Full++
		return 0, unix.EAGAIN
	}
	hostPort = d.ports.next()
	k := key{peer: uint32(packet.HostCID), peerPort: hostPort, port: port}
	if d.conns.find(k) != nil {
		return 0, unix.EAGAIN // the guest has connected from port to hostPort by itself
	}
	c := d.conns.add(k)
	d.ports.take(c)
	c.typ, c.initiator, c.cookie = t, in, cookie
	c.state.phase, c.owe = asked, oweRequest
	c.credit.alloc = d.grant()
	d.deadline(c, answerLimit)
	d.enqueue(c)
	d.turn.ask(d.loop)
	return hostPort, 0
}

// Cancel withdraws a Connect that was neither accepted nor refused yet.
func (d *Device) Cancel(hostPort uint32) {
	slot := d.ports.find(hostPort)
	if slot < 0 {
		return
	}
	c := d.conns.at(slot)
	c.initiator = nil
	if c.state.phase == asked && c.owe&oweRequest != 0 {
		d.free(c) // the guest has not heard of it
		return
	}
	if c.state.phase == asked {
		d.happen(c, evCancel, 0)
	}
}

// accepted gives the connection that the guest has accepted its host socket.
func (d *Device) accepted(c *conn) {
	in := c.initiator
	c.initiator = nil
	d.noDeadline(c)
	fd, ok := in.Accepted(c.cookie, c.peerPort)
	if !ok || !d.adopt(c, fd, false) {
		d.happen(c, evFailed, 0)
		return
	}
	d.counters.HostOpened++
}
