package tcp

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// handshake takes a segment of a connection that is not established.
func (e *Engine) handshake(c *conn, p *wire.Packet, f *link.Frame) {
	switch c.state {
	case Connecting:
		e.whileConnecting(c, p)
	case SynReceived:
		e.whileSynReceived(c, p, f)
	case SynSent:
		e.whileSynSent(c, p)
	}
}

// whileConnecting: we have said nothing yet, as in LISTEN (RFC 9293 3.10.7.2).
func (e *Engine) whileConnecting(c *conn, p *wire.Packet) {
	t := &p.TCP
	switch {
	case t.Flags.Has(wire.RST):
		if t.Seq != c.rcvNxt {
			e.drop(DropReset)
			return
		}
		e.stats.Accepted++
		e.event(c, GuestReset)
	case t.Flags.Has(wire.ACK):
		e.drop(DropHandshake)
		e.resetStranger(p)
	default:
		e.drop(DropSynRepeat)
		if t.Seq != c.irs { // another attempt on the same ports: the last one counts
			e.takeSyn(c, p)
		}
	}
}

// whileSynReceived: our SYN-ACK is on its way.
func (e *Engine) whileSynReceived(c *conn, p *wire.Packet, f *link.Frame) {
	t := &p.TCP
	switch {
	case t.Flags.Has(wire.RST):
		e.resetSegment(c, p)
	case t.Flags.Has(wire.SYN):
		if t.Seq == c.irs && !t.Flags.Has(wire.ACK) {
			e.drop(DropSynRepeat)
			e.handshakeSegment(c)
			return
		}
		e.synSegment(c, p)
	case !e.acceptable(c, p):
		e.unacceptable(c, p)
	case t.Ack != c.max:
		e.drop(DropHandshake)
		e.resetStranger(p)
	default:
		c.una = t.Ack
		e.event(c, GuestAck)
		c.wnd = uint32(t.Window) << c.shift
		c.maxWnd, c.wl1, c.wl2 = max(c.maxWnd, c.wnd), t.Seq, t.Ack
		e.touch(c).acked = true // read what the target has sent meanwhile
		e.payload(c, p, f)
	}
}

// whileSynSent is RFC 9293 3.10.7.3.
func (e *Engine) whileSynSent(c *conn, p *wire.Packet) {
	t := &p.TCP
	answers := t.Flags.Has(wire.ACK) && t.Ack == c.max
	switch {
	case t.Flags.Has(wire.RST):
		if !answers {
			e.drop(DropReset)
			return
		}
		e.stats.Accepted++
		e.event(c, GuestReset)
	case t.Flags.Has(wire.ACK) && !answers, !t.Flags.Has(wire.SYN):
		e.drop(DropHandshake)
		if t.Flags.Has(wire.ACK) {
			e.resetStranger(p)
		}
	case !answers: // simultaneous open (T16): neither side has a listener there
		e.drop(DropHandshake)
		c.set(fPeerSeq)
		c.rcvNxt = t.Seq + 1
		e.event(c, GuestSyn)
	default:
		e.stats.Accepted++
		e.takeSyn(c, p)
		if t.WScale < 0 {
			c.allow = min(c.allow, 0xffff)
		}
		c.edge = c.rcvNxt.Add(int(min(c.allow, 0xffff))) // as our SYN said
		c.una = t.Ack
		e.event(c, GuestSynAck)
		e.touch(c).acked = true
	}
}
