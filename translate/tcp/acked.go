package tcp

import (
	"time"

	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// acknowledged takes what a segment says about our bytes: its ACK number is not
// beyond what was sent. What follows from it is done at the end of the batch.
func (e *Engine) acknowledged(c *conn, p *wire.Packet) {
	t := &p.TCP
	wnd := uint32(t.Window) << c.shift
	switch {
	case c.una.Less(t.Ack):
		e.advance(c, t.Ack)
		e.touch(c).acked = true
	case wnd == c.wnd && t.NSACK == 0 && (c.una == c.max || p.PayloadLen > 0):
		return // nothing in flight, nothing new: most of what an uploading guest sends
	case t.Ack == c.una && wnd == c.wnd && p.PayloadLen == 0 && t.Flags&wire.FIN == 0: // RFC 5681 2
		c.dups = min(c.dups+1, 250)
		e.touch(c).acked = true
	}
	if t.NSACK > 0 && c.has(fSACK) {
		e.sacked(c, t)
	}
	// RFC 9293 3.10.7.4: the window of a newer segment, or of a newer ACK.
	if c.wl1.Less(t.Seq) || c.wl1 == t.Seq && c.wl2.LessEq(t.Ack) {
		if wnd != c.wnd {
			e.touch(c).acked = true
		}
		c.wnd, c.wl1, c.wl2 = wnd, t.Seq, t.Ack
		c.maxWnd = max(c.maxWnd, wnd)
	}
}

// advance moves una to ack, which is new.
func (e *Engine) advance(c *conn, ack wire.Seq) {
	now := e.now()
	if c.has(fTiming) && c.rttSeq.LessEq(ack) {
		c.clear(fTiming)
		c.measured(time.Duration(now - c.rttAt))
	}
	if c.cwnd > 0 { // after a timeout: twice as much with every round trip
		c.cwnd += uint32(ack.Diff(c.una))
	}
	c.una = ack
	c.nxt = c.nxt.Max(ack)
	c.dups, c.retries = 0, 0
	c.moved = now
	e.passed(c)
	if c.has(fRecover) && c.recover.LessEq(ack) {
		c.clear(fRecover)
		c.cwnd = 0
	}
	c.rtxAt = 0
	c.clear(fPersist)
	if c.una != c.max {
		c.rtxAt = now + eventloop.Time(c.rto())
	}
}

// measured takes one round trip time (RFC 6298 2).
func (c *conn) measured(d time.Duration) {
	r := uint32(min(max(d.Microseconds(), 1), 60_000_000))
	if c.srtt == 0 {
		c.srtt, c.rttvar = r, r/2
		return
	}
	diff := max(c.srtt, r) - min(c.srtt, r)
	c.rttvar += diff/4 - c.rttvar/4
	c.srtt += r/8 - c.srtt/8
}

// rto is the retransmission timeout, backed off by the retries so far.
func (c *conn) rto() time.Duration {
	d := firstRTO
	if c.srtt != 0 {
		d = max(time.Duration(c.srtt+4*c.rttvar)*time.Microsecond, minRTO)
	}
	return min(d<<min(c.retries, 12), maxRTO)
}

// recovery repairs what duplicate ACKs and SACK blocks tell of: one fast
// retransmit per window of data (RFC 6582), with SACK one of every hole (RFC
// 6675).
func (e *Engine) recovery(c *conn) {
	if c.cwnd > 0 || !c.state.sendsData() {
		return // going back after a timeout repairs everything
	}
	var b *board
	if c.board != 0 {
		b = e.boards.At(c.board)
	}
	if !c.has(fRecover) {
		lost := c.dups >= 3 || b != nil && (b.n >= 3 || b.bytes > 2*e.sendMSS(c))
		if !lost || c.una == c.max {
			return
		}
		c.set(fRecover)
		c.clear(fTiming)
		c.recover, c.rtxNxt = c.max, c.una
	}
	from := c.rtxNxt.Max(c.una)
	switch {
	case b != nil:
		for range 4 { // frames per call: more ACKs will come
			h, ok := b.hole(from)
			if !ok || !e.retransmit(c, h) {
				return
			}
			from = c.rtxNxt
		}
	case from == c.una:
		// The first segment that is missing; a partial ACK tells of the next.
		e.retransmit(c, span{from, from.Add(e.sendMSS(c)).Min(c.max)})
	}
}

// retransmit sends the start of h once more, as much as one frame takes, and
// notes in rtxNxt how far it got.
func (e *Engine) retransmit(c *conn, h span) bool {
	nxt := c.nxt
	c.nxt = h.from
	n := h.len()
	if c.has(fFinQueued) {
		n = min(n, int(c.finSeq.Diff(h.from)))
	}
	var ok bool
	if n <= 0 {
		ok = e.sendFin(c)
	} else {
		_, seg := e.frame(c)
		sent, _ := e.emit(c, min(n, seg))
		ok = sent > 0
	}
	if c.state == Closed || c.state == Aborted {
		return false
	}
	if ok {
		c.rtxNxt = c.nxt
		e.startRetransmit(c)
	} else {
		c.set(fRtxOwed)
	}
	c.nxt = nxt.Max(c.una)
	return ok
}
