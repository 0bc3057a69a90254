package vsockbridge

import (
	"guestwire/vring"
	"guestwire/vsockbridge/packet"
)

// Siblings talk to each other end to end: packets pass through with what they
// say of credit unchanged, so that each guest sees what a direct peer would do.
// The device keeps a connection on either side, to know who may talk to whom, to
// hold senders to the credit that they were given, and to end both sides when
// one guest goes.

// twin returns the other guest's side of c.
func (c *conn) twin() *conn { return c.sibling.conns.at(c.other) }

// meet answers a packet to another guest for which there is no connection.
func (d *Device) meet(h *packet.Header) {
	if h.Op == packet.Reset {
		return
	}
	s := d.sibling(h.DstCID)
	if h.Op != packet.Request || s == nil || !s.up || !d.speaks(h.Type) || !s.speaks(h.Type) ||
		d.conns.full() || s.conns.full() {
		d.refuse(h)
		return
	}
	d.resets.withdraw(h)
	near := answer(h)
	far := key{peer: uint32(h.SrcCID), peerPort: h.SrcPort, port: h.DstPort}
	if old := s.conns.find(far); old != nil {
		d.refuse(h) // the other guest is owed the RST of an earlier one
		return
	}
	c, t := d.conns.add(near), s.conns.add(far)
	c.sibling, c.other, c.typ, c.state.phase = s, t.slot, h.Type, dialing
	t.sibling, t.other, t.typ, t.state.phase = d, c.slot, h.Type, asked
	d.deadline(c, dialLimit)
	d.counters.SiblingOpened++
	c.told(h)
	s.arrive(d, h, nil)
}

// told takes over what a guest says of its receive buffer. Senders may not know
// yet that it has become smaller: they are held to the largest that it was.
func (c *conn) told(h *packet.Header) bool {
	c.credit.alloc = max(c.credit.alloc, min(h.BufAlloc, 1<<31-1))
	return c.credit.update(h.BufAlloc, h.FwdCnt)
}

// pass handles a packet from the guest of c to its sibling.
func (d *Device) pass(c *conn, h *packet.Header, payload [][]byte) {
	s, t := c.sibling, c.twin()
	ok := h.Op == packet.Reset || h.Type == c.typ && c.told(h)
	switch h.Op {
	case packet.Response:
		ok = ok && c.state.phase == asked
		c.state.phase, t.state.phase = open, open
		s.noDeadline(t)
	case packet.Reset, packet.CreditUpdate, packet.CreditRequest:
	case packet.Shutdown:
		c.state.guest |= h.Flags & packet.ShutdownBoth
		if c.state.guest == packet.ShutdownBoth && ok {
			d.deadline(c, lingerLimit)
		}
	case packet.RW:
		under := t.credit.sent - t.credit.peerFwd
		ok = ok && c.state.phase == open && h.Len <= t.credit.alloc && under <= t.credit.alloc-h.Len
		t.credit.sent += h.Len
	default: // REQUEST among them: there is a connection already
		ok = false
	}
	if !ok {
		d.counters.Violations++
		d.separate(c)
		return
	}
	if !s.arrive(d, h, payload) {
		d.separate(c)
		return
	}
	if h.Op == packet.Reset {
		d.free(c)
		s.free(t)
	}
}

// separate resets both sides of c.
func (d *Device) separate(c *conn) {
	s, t := c.sibling, c.twin()
	d.disown(c)
	s.disown(t)
}

// disown makes a side of a connection between siblings one of which nothing is
// left but the RST.
func (d *Device) disown(c *conn) {
	c.sibling, c.credit = nil, credit{}
	c.state = state{phase: ended}
	d.owes(c, actReset)
}

const (
	// inboxSoft is how many bytes may wait for a guest that posts no receive
	// buffers before those who send to it are left alone.
	inboxSoft = 1 << 20

	// inboxHard is how many may wait when leaving a sender alone would not help,
	// since the receiver is left alone itself.
	inboxHard = 8 << 20
)

// inbox is what waits for a guest's receive buffers: packets of siblings, in
// order, each a header and its payload. Packets are copied here even when there
// are buffers: so nobody touches a guest's memory but its own device, and is
// broken in its place when that is gone.
type inbox struct {
	stage
	now  packet.Header // the packet that is being delivered, Len of it being left
	busy bool          // there is one
}

func (b *inbox) waiting() bool { return b.busy || b.bytes > 0 }

// arrive takes a packet from the guest of from. It reports false when too much
// waits already.
func (d *Device) arrive(from *Device, h *packet.Header, payload [][]byte) bool {
	b := &d.inbox
	if b.bytes > inboxSoft && (!d.up || b.bytes > inboxHard) {
		d.counters.InboxFull++
		return false
	}
	from.counters.SiblingPackets++
	n := int(h.Len)
	if h.Op != packet.RW {
		h.Len, n = 0, 0
	}
	was, whole := b.stage, false
	defer func() {
		if !whole { // the sender's memory is gone
			b.restore(&d.pool, was)
		}
	}()
	var raw [packet.Size]byte
	h.Put(&raw)
	b.append(&d.pool, raw[:])
	for _, seg := range payload {
		seg = seg[:min(n, len(seg))]
		b.append(&d.pool, seg)
		n -= len(seg)
	}
	whole = true
	if b.bytes > inboxSoft && d.up && from.waitsFor == nil {
		from.waitsFor = d
		from.wake() // they need not wait any more
	}
	return true
}

// held says whether the transmit ring is to be left alone: while a sibling has
// no room for what comes from it, unless that waits for somebody as well.
func (d *Device) held() bool { return d.waitsFor != nil && d.waitsFor.waitsFor == nil }

// wake has those look again who wait for d.
func (d *Device) wake() {
	for _, g := range d.cfg.Groups {
		for _, m := range g.members {
			if m.waitsFor == d {
				m.turn.ask(m.loop)
			}
		}
	}
}

// release ends the waiting for d.
func (d *Device) release() {
	d.wake()
	for _, g := range d.cfg.Groups {
		for _, m := range g.members {
			if m.waitsFor == d {
				m.waitsFor = nil
			}
		}
	}
}

// unpack delivers some of what siblings have sent. It reports false when there
// are no chains.
func (d *Device) unpack() bool {
	b := &d.inbox
	for range rxEarly {
		if !b.waiting() {
			break
		}
		if !b.busy {
			var raw [packet.Size]byte
			b.read(&d.pool, raw[:])
			b.now, b.busy = packet.Parse(&raw), true
		}
		if !d.deliver() {
			return false
		}
		b.busy = false
	}
	if b.bytes < inboxSoft/2 {
		d.release()
	}
	return true
}

// deliver puts the present packet into chains, several if it is longer than one
// holds: then only the last ends a message. It reports false when there are too
// few.
func (d *Device) deliver() bool {
	h := &d.inbox.now
	for {
		chain := d.rx.chain(d)
		if chain == nil {
			return false
		}
		piece := *h
		piece.Len = uint32(min(int(chain.WriteLen)-packet.Size, packet.MaxPayload, int(h.Len)))
		if piece.Len == 0 && h.Len > 0 {
			d.unfit(chain)
			continue
		}
		if h.Len -= piece.Len; h.Len > 0 {
			piece.Flags = 0
		}
		put(chain, &piece)
		d.inbox.fill(&d.pool, chain, int(piece.Len))
		d.rx.push(chain, packet.Size+int(piece.Len))
		d.counters.RxPackets++
		d.counters.RxBytes += uint64(piece.Len)
		if d.rx.pushed >= rxEarly {
			d.publishRx()
		}
		if h.Len == 0 {
			return true
		}
	}
}

// fill moves the first n bytes behind the header of a chain.
func (s *stage) fill(p *pool, chain *vring.Chain, n int) {
	skip := packet.Size
	for _, seg := range chain.Writable {
		cut := min(skip, len(seg))
		seg, skip = seg[cut:], skip-cut
		seg = seg[:min(n, len(seg))]
		n -= len(seg)
		s.read(p, seg)
	}
}
