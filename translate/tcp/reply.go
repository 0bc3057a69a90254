package tcp

import (
	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// This file sends segments without payload.

// reserve asks for frames towards the guest and notes when there are none.
func (e *Engine) reserve(header, payload, n int) []link.Slot {
	if !e.port.Up || e.port.EP == nil {
		e.full = true
		return nil
	}
	s := e.port.EP.Reserve(header, payload, n)
	if len(s) == 0 {
		e.full = true
		e.stats.NoRoom++
	}
	e.reserved = len(s) > 0
	return s
}

// commit sends the first n frames of the open reservation.
func (e *Engine) commit(n int) {
	e.reserved = false
	e.port.EP.Commit(n)
	e.stats.SegmentsOut += uint64(n)
}

// control sends n equal segments without payload; it reports false when the
// guest has room for none.
func (e *Engine) control(k *flow.Key, f *wire.TCPFields, n int) bool {
	l4 := f.Len()
	f.SrcPort, f.DstPort = k.RemotePort, k.GuestPort
	slots := e.reserve(e.port.L3Len(!k.Guest.Is4())+l4, 0, n)
	if len(slots) == 0 {
		return false
	}
	for i := range slots {
		b := slots[i].Header
		b = b[e.port.PutL3(b, k.Remote, k.Guest, wire.ProtoTCP, guest.DefaultTTL, 0, l4):]
		wire.PutTCP(b, f)
		sum := wire.Checksum(wire.PseudoHeader(k.Remote, k.Guest, wire.ProtoTCP, l4), b[:l4])
		wire.PutChecksum(b, wire.TCPCsumOff, wire.Finish(sum))
	}
	e.commit(len(slots))
	return true
}

func (e *Engine) key(c *conn) *flow.Key { return &e.flows.At(c.flow).Key }

// ack sends n equal ACKs, fewer if the guest has room for fewer.
func (e *Engine) ack(c *conn, n int) {
	f := wire.TCPFields{Seq: c.nxt, Ack: c.rcvNxt, Flags: wire.ACK, Window: e.window(c)}
	f.NSACK = e.blocks(c, &f.SACK)
	if !e.control(e.key(c), &f, n) {
		c.set(fAckOwed)
		e.wait(c)
		return
	}
	c.clear(fAckOwed | fAckHeld)
	e.stats.AcksOut += uint64(n)
}

// challenge owes the guest a challenge ACK, unless there were too many (RFC
// 5961 7).
func (e *Engine) challenge(c *conn) {
	if !e.challenges.take(e.now()) {
		e.stats.ChallengesCut++
		return
	}
	e.stats.Challenges++
	c.set(fAckOwed)
	e.touch(c)
}

// handshakeSegment sends our SYN or SYN-ACK.
func (e *Engine) handshakeSegment(c *conn) {
	k := e.key(c)
	f := wire.TCPFields{
		Seq: c.iss, Flags: wire.SYN, MSS: uint16(e.ourMSS(c)), Window: uint16(min(c.allow, 0xffff)),
		HasWScale: c.rshift > 0, WScale: c.rshift, SACKPermitted: c.has(fSACK),
	}
	if c.state == SynReceived {
		f.Flags |= wire.ACK
		f.Ack = c.rcvNxt
		c.edge = c.rcvNxt.Add(int(f.Window))
	}
	if !e.control(k, &f, 1) {
		c.set(fSynOwed)
		e.wait(c)
		return
	}
	c.clear(fSynOwed)
}

// ourMSS is the MSS that we announce: what fits the link.
func (e *Engine) ourMSS(c *conn) int {
	return max(e.port.Caps.MTU+wire.EthLen-e.port.L3Len(c.has(fV6))-wire.TCPLen, minMSS)
}

// reset sends the RST that c owes: at the highest number sent, since that is
// where the guest is unless something was lost; then it asks with a challenge
// ACK and gets the exact number (resetStranger).
func (e *Engine) reset(c *conn) {
	f := wire.TCPFields{Seq: c.max, Flags: wire.RST}
	if c.has(fPeerSeq) {
		f.Flags |= wire.ACK
		f.Ack = c.rcvNxt
	}
	if !e.control(e.key(c), &f, 1) {
		c.set(fResetOwed)
		e.wait(c)
		return
	}
	e.stats.ResetsOut++
	e.event(c, ResetSent)
}

// resetStranger answers a segment that belongs to no connection (RFC 9293
// 3.10.7.1). It reports false when the guest has no room; then the guest tries
// again and gets its answer later.
func (e *Engine) resetStranger(p *wire.Packet) bool {
	k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, RemotePort: p.DstPort}
	f := wire.TCPFields{Flags: wire.RST}
	if p.TCP.Flags.Has(wire.ACK) {
		f.Seq = p.TCP.Ack
	} else {
		n := p.PayloadLen
		if p.TCP.Flags.Has(wire.SYN) {
			n++
		}
		if p.TCP.Flags.Has(wire.FIN) {
			n++
		}
		f.Flags |= wire.ACK
		f.Ack = p.TCP.Seq.Add(n)
	}
	if !e.control(&k, &f, 1) {
		return false
	}
	e.stats.ResetsOut++
	return true
}

// probe asks the guest for an ACK with a segment just outside its window (RFC
// 9293 3.8.4): as a keepalive, and to learn whether a closed window has opened
// (RFC 9293 3.8.6.1), for which no byte has to be risked.
func (e *Engine) probe(c *conn) {
	f := wire.TCPFields{Seq: c.una - 1, Ack: c.rcvNxt, Flags: wire.ACK, Window: e.window(c)}
	if e.control(e.key(c), &f, 1) {
		e.stats.Probes++
	}
}
