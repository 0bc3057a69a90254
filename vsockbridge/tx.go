package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/packet"
)

// What the transmit ring may take of one turn before it queues itself behind
// the other sources.
const (
	txChains = 256
	txBytes  = 4 << 20
)

// txBatch is how many packets are popped at once.
const txBatch = 64

// txPoll is how long an empty ring is looked at again, once a turn, before a
// kick is asked for. A driver that comes back within that time saves the kick
// (which is a VM exit and an eventfd write) and we the wake-up.
const txPoll = eventloop.Time(20_000)

// A driver is called for chains that it got back when they are an 8th of the
// ring, when they were txHeldBytes long (Linux has a socket's sender wait for the
// memory of what it sent), or a millisecond after the first.
const (
	txHeld      = 8
	txHeldBytes = 16 << 10
	txLate      = eventloop.Time(1_000_000)
)

// tx is the transmit ring: packets from the guest.
type tx struct {
	q      *vring.DeviceQueue
	chains [txBatch]vring.Chain
	idle   eventloop.Time // when the ring was first found empty, 0: not empty
	soon   bool           // the driver tends to come back within txPoll
	bytes  int            // in chains that were returned without a call
	timer  eventloop.TimerID
}

func (t *tx) start(q *vring.DeviceQueue) { t.q, t.idle, t.soon = q, 0, false }

// txKicked is the driver's notification. While a turn is asked for anyway, that
// one serves it: a storm of kicks costs nothing but the kicks.
func (d *Device) txKicked() {
	if d.turn.asked {
		return
	}
	t := &d.tx
	t.soon = t.idle != 0 && d.loop.Now()-t.idle < 2*txPoll
	d.txRun()
}

// txRun serves the transmit ring for at most one turn's budget.
func (d *Device) txRun() {
	t := &d.tx
	if !d.up || d.held() {
		return
	}
	t.q.DisarmKick()
	for chains, bytes := txChains, txBytes; chains > 0 && bytes > 0; {
		n, b := d.txBatch()
		chains, bytes = chains-n, bytes-b
		if n > 0 {
			t.idle = 0
			continue
		}
		if d.held() || !d.txEmpty() {
			return
		}
		chains-- // even a driver that teases us with its index gets no longer turn
	}
	d.turn.ask(d.loop)
}

// txEmpty decides how to wait for more. It reports true when more is there
// already.
func (d *Device) txEmpty() bool {
	t := &d.tx
	if t.q.Broken() != nil {
		d.turn.ask(d.loop)
		return false
	}
	now := d.loop.Now()
	if t.idle == 0 {
		t.idle = now
	}
	if t.soon && now-t.idle < txPoll {
		d.turn.ask(d.loop)
		return false
	}
	t.soon = false
	if t.q.ArmKick() {
		t.q.DisarmKick()
		t.q.Publish() // it may be what has been pushed that keeps more from being popped
		return true
	}
	return false
}

// txBatch handles one batch of packets and returns its chains to the ring. It
// returns how many chains and bytes that were.
func (d *Device) txBatch() (chains, bytes int) {
	t := &d.tx
	popped := t.q.PopBatch(t.chains[:])
	n := 0
	for n < popped && !d.held() {
		c := &t.chains[n]
		bytes += int(c.ReadLen)
		d.packet(c)
		n++
	}
	d.endRun()
	t.q.Rewind(popped - n)
	if t.q == nil || t.q.Broken() != nil {
		return n, bytes
	}
	for i := range t.chains[:n] {
		t.q.Push(t.chains[i].Head, 0)
	}
	t.bytes += bytes
	if n == txBatch {
		t.publish(d)
	}
	return n, bytes
}

// publish returns the chains of packets that are done with. A driver waits for
// few and short ones only when its ring is full, so it is called for them late:
// when many have come together, or after a while.
func (t *tx) publish(d *Device) {
	t.q.PublishQuietly()
	switch n := t.q.Quiet(); {
	case n == 0:
	case n >= t.q.Size()/txHeld || t.bytes >= txHeldBytes:
		t.signal()
	case !d.loop.Timers().Armed(d.tx.timer):
		d.loop.Timers().Set(t.timer, d.loop.Now()+txLate)
	}
}

func (t *tx) signal() {
	t.bytes = 0
	t.q.Signal()
}

// lateCall is the device as the expirer of the call that was put off.
type lateCall Device

// Expired implements eventloop.Expirer.
func (x *lateCall) Expired(uint32) {
	if x.tx.q != nil {
		x.tx.signal()
	}
}

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
