package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vsockbridge/packet"
)

// packet handles one packet from the guest.
func (d *Device) packet(c *vring.Chain) {
	switch {
	case c.ReadLen < packet.Size:
		d.drop(DropShort)
		return
	case c.ReadLen == vring.Oversize: // its bytes are nowhere
		d.drop(DropLength)
		return
	}
	var raw [packet.Size]byte
	payload := take(raw[:], c.Readable)
	h := packet.Parse(&raw)
	if h.SrcCID != d.cfg.CID || !d.reaches(h.DstCID) {
		d.drop(DropCID)
		return
	}
	d.counters.TxPackets++
	conn := d.conns.find(answer(&h))
	if conn == nil {
		d.stranger(&h)
		return
	}
	if h.Op != packet.RW && d.run != nil {
		d.endRun() // it must not overtake what was sent before it
	}
	switch {
	case conn.state.phase == ended:
		d.control(conn, &h) // whatever it is: the RST is under way
	case h.Len > packet.MaxPayload || h.Len > c.ReadLen-packet.Size:
		d.drop(DropLength)
		d.violation(conn)
	case conn.sibling != nil:
		d.pass(conn, &h, payload)
	case h.Op != packet.Reset && h.Op != packet.Request && (h.Type != conn.typ || !conn.credit.update(h.BufAlloc, h.FwdCnt)):
		d.violation(conn)
	case h.Op == packet.RW:
		d.data(conn, &h, payload)
	default:
		d.control(conn, &h)
	}
}

// reaches says whether the guest may send to a CID. With siblings, one that is
// not there (any more) is told so by RST; 3 is the first that a guest can have.
func (d *Device) reaches(cid uint64) bool {
	return cid == packet.HostCID || len(d.cfg.Groups) > 0 && cid != d.cfg.CID && packet.CheckCID(cid) == nil
}

// take copies the first len(b) bytes of segs, which must have as many, and
// returns what is behind them. The segments are the chain's own and are cut in
// place.
func take(b []byte, segs [][]byte) [][]byte {
	for len(b) > 0 {
		n := copy(b, segs[0])
		b = b[n:]
		if n < len(segs[0]) {
			segs[0] = segs[0][n:]
			return segs
		}
		segs = segs[1:]
	}
	return segs
}

// stranger answers a packet for which there is no connection: a request opens
// one, a reset is never answered, everything else is (5.10.6.4).
func (d *Device) stranger(h *packet.Header) {
	switch {
	case h.DstCID != packet.HostCID:
		d.meet(h)
	case h.Op == packet.Reset:
	case h.Op == packet.Request && d.speaks(h.Type):
		d.dial(h)
	default:
		d.refuse(h)
	}
}

// dial opens the connection that the guest requests.
func (d *Device) dial(h *packet.Header) {
	d.resets.withdraw(h)
	if d.cfg.Host == nil || d.conns.full() {
		d.counters.Full++
		d.refuse(h)
		return
	}
	fd, connecting, errno := d.cfg.Host.Dial(d.cfg.CID, h.DstPort, h.Type)
	if errno != 0 {
		d.counters.DialsFailed++
		d.refuse(h)
		return
	}
	c := d.conns.add(key{peer: uint32(h.DstCID), peerPort: h.DstPort, port: h.SrcPort})
	c.typ, c.state.phase = h.Type, dialing
	c.credit.alloc = d.grant()
	c.credit.update(h.BufAlloc, h.FwdCnt)
	if !d.adopt(c, fd, connecting) {
		d.happen(c, evFailed, 0)
		return
	}
	d.counters.GuestOpened++
	if connecting {
		d.deadline(c, dialLimit)
		return
	}
	d.happen(c, evConnected, 0)
}

// violation ends a connection over a packet that cannot be.
func (d *Device) violation(c *conn) {
	d.endRun()
	d.counters.Violations++
	if c.sibling != nil {
		d.separate(c)
		return
	}
	d.happen(c, evViolation, unix.ECONNREFUSED)
}

// control handles a packet without payload. Payload of others than RW means
// nothing and is left alone.
func (d *Device) control(c *conn, h *packet.Header) {
	e := evViolation
	switch h.Op {
	case packet.Request:
		e = evRequest
	case packet.Response:
		e = evResponse
	case packet.Reset:
		e = evReset
	case packet.Shutdown:
		e = [...]event{evCredit, evShutReceive, evShutSend, evShutBoth}[h.Flags&packet.ShutdownBoth]
	case packet.CreditUpdate:
		e = evCredit
	case packet.CreditRequest:
		e = evCredit
		if c.state.phase == open {
			c.owe |= oweCredit
			d.enqueue(c)
		}
	}
	d.unblock(c)
	act := d.happen(c, e, unix.ECONNREFUSED)
	switch {
	case act&actReset != 0 && (e == evViolation || e == evRequest || e == evResponse):
		d.counters.Violations++
	case act&actAccept != 0:
		d.accepted(c)
	case act&actReopen != 0:
		d.stranger(h)
	}
}

// unblock has a connection go on that had to wait for credit.
func (d *Device) unblock(c *conn) {
	if c.blocked && c.credit.free() > 0 && c.credit.packets() > 0 {
		c.blocked = false
		if c.probing {
			d.noDeadline(c)
		}
		d.enqueue(c)
	}
}

// data handles payload from the guest.
func (d *Device) data(c *conn, h *packet.Header, payload [][]byte) {
	d.unblock(c)
	if h.Len == 0 && (h.Flags&packet.EndOfMessage == 0 || c.out.length == nil) {
		return // says nothing, unless it ends a message
	}
	switch act := d.happen(c, evData, unix.ECONNREFUSED); {
	case act&actReset != 0:
		d.counters.Violations++
		return
	case act&(actDeliver|actDiscard) == 0:
		return
	case !c.credit.accept(h.Len):
		d.violation(c)
		return
	case act&actDiscard != 0:
		c.credit.forward(h.Len)
		d.credited(c)
		return
	}
	d.counters.TxBytes += uint64(h.Len)
	if c.typ == packet.SeqPacket {
		d.record(c, h, payload)
		return
	}
	d.stream(c, int(h.Len), payload)
}

// credited has the guest told of room when it is time.
func (d *Device) credited(c *conn) {
	if c.credit.due() {
		c.owe |= oweCredit
		d.enqueue(c)
	}
}
