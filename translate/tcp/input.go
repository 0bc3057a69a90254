package tcp

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

func (e *Engine) input(p *wire.Packet, f *link.Frame) {
	e.stats.SegmentsIn++
	if p.SrcPort == 0 || p.DstPort == 0 {
		e.drop(DropAddr)
		return
	}
	c := e.lookup(p)
	switch {
	case c == nil:
		e.stranger(p)
	case e.expected(c, p):
		e.fast(c, p, f)
	default:
		e.segment(c, p, f)
	}
}

// expected says whether a segment is what nearly all are: an ACK, perhaps with
// payload that is the next in order and inside the window, on a connection
// without gaps.
func (e *Engine) expected(c *conn, p *wire.Packet) bool {
	const plain = wire.SYN | wire.FIN | wire.RST | wire.ACK
	return c.state.synchronized() && p.TCP.Flags&plain == wire.ACK && p.TCP.Seq == c.rcvNxt &&
		c.una.LessEq(p.TCP.Ack) && p.TCP.Ack.LessEq(c.max) && !e.gaps(c) && !c.has(fFinAhead) &&
		(p.PayloadLen == 0 || c.state.takesData() && p.PayloadLen <= int(c.edge.Diff(c.rcvNxt)))
}

// fast takes an expected segment.
func (e *Engine) fast(c *conn, p *wire.Packet, f *link.Frame) {
	if p.PayloadLen > 0 && !e.memory(p.PayloadLen) {
		e.drop(DropInWindow)
		return
	}
	if c.state == Closed { // making room has ended it
		e.drop(DropNoFlow)
		return
	}
	e.stats.Accepted++
	c.heard, c.probes = e.now(), 0
	e.acknowledged(c, p)
	if p.PayloadLen > 0 {
		c.set(fAckOwed)
		e.gather(c, f, p.PayloadOff, p.PayloadLen)
	}
}

// stranger handles a segment of no connection (RFC 9293 3.10.7.1, 3.10.7.2):
// a SYN may begin one, everything else is answered with a RST, so that flows of
// an earlier backend end at once on the guest's side too.
func (e *Engine) stranger(p *wire.Packet) {
	t := &p.TCP
	switch {
	case badFlags(t.Flags):
		e.drop(DropFlags)
	case badAddr(p.Src) || badAddr(p.Dst):
		e.drop(DropAddr)
	case t.Flags.Has(wire.RST):
		e.drop(DropReset)
	case t.Flags.Has(wire.SYN) && !t.Flags.Has(wire.ACK):
		e.syn(p)
	default:
		e.drop(DropNoFlow)
		e.resetStranger(p)
	}
}

// badFlags says whether control bits make no sense together (T17).
func badFlags(f wire.Flags) bool {
	switch f & (wire.SYN | wire.FIN | wire.RST) {
	case wire.SYN, wire.RST:
		return false
	case 0, wire.FIN:
		return f&wire.ACK == 0
	}
	return true
}

// badAddr says whether no TCP connection can have an address.
func badAddr(a wire.Addr) bool {
	return a.IsUnspecified() || a.IsMulticast() || a.IsBroadcast() || a.IsLoopback()
}

// segment takes what is not expected, in the order of RFC 9293 3.10.7.
func (e *Engine) segment(c *conn, p *wire.Packet, f *link.Frame) {
	switch {
	case badFlags(p.TCP.Flags):
		e.drop(DropFlags)
	case c.state == Aborted:
		e.lateSegment(c, p)
	case c.state.halfOpen():
		e.handshake(c, p, f)
	default:
		e.synchronized(c, p, f)
	}
}

// lateSegment answers a segment of a connection whose host side is gone: the
// RST that is owed, if there is room for it now.
func (e *Engine) lateSegment(c *conn, p *wire.Packet) {
	e.drop(DropNoFlow)
	if p.TCP.Flags.Has(wire.RST) {
		e.event(c, GuestReset)
		return
	}
	if e.resetStranger(p) {
		e.event(c, ResetSent)
	}
}

// synchronized is RFC 9293 3.10.7.4 with the changes of RFC 5961.
func (e *Engine) synchronized(c *conn, p *wire.Packet, f *link.Frame) {
	t := &p.TCP
	e.flush(c) // what came before must be decided before this is judged
	switch {
	case c.state == Closed:
		e.drop(DropNoFlow)
	case t.Flags.Has(wire.RST):
		e.resetSegment(c, p)
	case t.Flags.Has(wire.SYN):
		e.synSegment(c, p)
	case !e.acceptable(c, p):
		e.unacceptable(c, p)
	case c.max.Less(t.Ack):
		e.drop(DropAckAhead) // T11
		c.set(fAckOwed)
		e.touch(c)
	case t.Ack.Less(c.una.Add(-int(c.maxWnd))):
		e.drop(DropAckOld) // RFC 5961 5.2
		e.challenge(c)
	default:
		c.heard, c.probes = e.now(), 0
		e.acknowledged(c, p)
		e.payload(c, p, f)
	}
}

// resetSegment judges a RST (RFC 5961 3.2).
func (e *Engine) resetSegment(c *conn, p *wire.Packet) {
	s := p.TCP.Seq
	switch {
	case s == c.rcvNxt:
		e.stats.Accepted++
		e.event(c, GuestReset)
	case c.rcvNxt.Less(s) && s.Less(c.edge):
		e.drop(DropResetInside)
		e.challenge(c)
	default:
		e.drop(DropReset)
	}
}

// synSegment judges a SYN on a connection that has had one (RFC 5961 4.2). In
// TimeWait a SYN ahead of everything seen begins a new connection (RFC 9293
// 3.10.7.4, RFC 6191).
func (e *Engine) synSegment(c *conn, p *wire.Packet) {
	if c.state == TimeWait && c.has(fFlushed) && !p.TCP.Flags.Has(wire.ACK) && c.rcvNxt.Less(p.TCP.Seq) {
		e.event(c, TimeOver)
		e.syn(p)
		return
	}
	e.drop(DropSyn)
	e.challenge(c)
}

// acceptable is the test of RFC 9293 3.10.7.4 (first), except that an empty
// segment may also lie at the right edge: a guest that has filled the window
// sends its ACKs from there.
func (e *Engine) acceptable(c *conn, p *wire.Packet) bool {
	s, n := p.TCP.Seq, p.PayloadLen
	if p.TCP.Flags.Has(wire.FIN) {
		n++
	}
	if n == 0 {
		return c.rcvNxt.LessEq(s) && s.LessEq(c.edge)
	}
	return c.rcvNxt.Less(s.Add(n)) && s.Less(c.edge) || s == c.rcvNxt && p.PayloadLen == 0
}

// unacceptable answers a segment outside the window with an ACK: it is a
// repeated one, a keepalive (RFC 9293 3.8.4) or a window probe.
func (e *Engine) unacceptable(c *conn, p *wire.Packet) {
	t := &p.TCP
	c.set(fAckOwed)
	e.touch(c)
	if c.rcvNxt.LessEq(t.Seq) {
		e.drop(DropWindow)
	} else {
		e.drop(DropOld)
	}
	// Its sender lives, and what it says about our bytes is as good as ever: a
	// guest whose window is full repeats itself while it ACKs.
	if d := t.Seq.Diff(c.rcvNxt); max(d, -d) <= int32(max(c.allow, startWindow)) {
		c.heard, c.probes = e.now(), 0
		if c.una.LessEq(t.Ack) && t.Ack.LessEq(c.max) {
			e.acknowledged(c, p)
		}
	}
	switch {
	case c.state == TimeWait: // the guest's FIN once more: it has not seen our ACK
		c.idleAt = e.now() + eventloop.Time(lingerTime)
	case t.Seq == c.rcvNxt-1 && p.PayloadLen <= 1:
		e.keepHost(c)
	}
}

// payload takes the payload and the FIN of an acceptable segment.
func (e *Engine) payload(c *conn, p *wire.Packet, f *link.Frame) {
	s, off, n := p.TCP.Seq, p.PayloadOff, p.PayloadLen
	fin := p.TCP.Flags.Has(wire.FIN)
	if c.state == Closed || n == 0 && !fin {
		e.stats.Accepted++
		return
	}
	c.set(fAckOwed)
	e.touch(c)
	if !c.state.takesData() {
		e.drop(DropAfterFin)
		return
	}
	if d := int(c.rcvNxt.Diff(s)); d > 0 { // partly old: only what is new
		s, off, n = s.Add(d), off+d, n-d
	}
	if d := int(s.Add(n).Diff(c.edge)); d > 0 { // partly beyond the window
		n, fin = n-d, false
	}
	if fin && s != c.rcvNxt {
		c.set(fFinAhead)
		c.finAt = s.Add(n)
	}
	if s != c.rcvNxt {
		e.outOfOrder(c, f, s, off, n)
		return
	}
	if n > 0 && !e.memory(n) {
		e.drop(DropInWindow)
		return
	}
	e.stats.Accepted++
	e.inOrder(c, f, s, off, n)
	if c.state != Closed && (fin && c.rcvNxt == s.Add(n) || c.has(fFinAhead) && c.rcvNxt == c.finAt) {
		c.rcvNxt++
		c.set(fFinIn)
		e.event(c, GuestFin)
	}
}

// inOrder takes payload that begins at rcvNxt, except where the out-of-order
// queue has the bytes already.
func (e *Engine) inOrder(c *conn, f *link.Frame, s wire.Seq, off, n int) {
	end := s.Add(n)
	for s.Less(end) {
		k := int(end.Diff(s))
		if q, ok := e.queued(c); ok {
			k = min(k, int(q.Diff(s)))
		}
		e.gather(c, f, off, k)
		if e.flush(c); !c.hosted() {
			return // the host socket has failed
		}
		e.joined(c)
		d := int(c.rcvNxt.Diff(s))
		s, off = s.Add(d), off+d
	}
}

// outOfOrder keeps payload for later.
func (e *Engine) outOfOrder(c *conn, f *link.Frame, s wire.Seq, off, n int) {
	e.touch(c).gaps++
	if n > 0 && !e.keep(c, f, s, off, n) {
		e.drop(DropOutOfOrder)
		return
	}
	e.stats.Accepted++
	e.stats.OutOfOrder++
}
