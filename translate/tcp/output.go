package tcp

import (
	"syscall"

	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// This file is the way from the host to the guest: bytes are read from the
// socket straight into guest memory, behind headers that are then written in
// front of them.

// output sends the guest what there is and what its window takes.
func (e *Engine) output(c *conn) {
	for budget := turnBytes; c.state.sendsData(); {
		e.retreat(c)
		n := e.available(c)
		if n == 0 && !e.finDue(c) {
			return
		}
		room := e.usable(c, max(n, 1))
		switch {
		case room == 0:
			e.stalled(c)
			return
		case n == 0:
			if !e.sendFin(c) {
				return
			}
			continue
		case budget <= 0:
			e.host.Again(c.fd)
			return
		}
		sent, more := e.emit(c, min(n, room, e.guess(c)))
		if !more {
			return
		}
		budget -= sent
	}
}

// available is how many bytes from nxt on there are, or might be: an edge has
// told of unread ones.
func (e *Engine) available(c *conn) int {
	n := maxRead
	switch {
	case c.has(fFinQueued):
		n = int(c.finSeq.Diff(c.nxt)) // -1 behind the FIN
	case !c.has(fHostReady):
		n = int(c.max.Diff(c.nxt))
	}
	if stop, ok := e.nextBlock(c); ok {
		n = min(n, int(stop.Diff(c.nxt)))
	}
	return max(n, 0)
}

func (e *Engine) finDue(c *conn) bool { return c.has(fFinQueued) && c.nxt == c.finSeq }

// retreat takes back what the guest's window does not cover any more (T7; RFC
// 9293 3.8.6), and steps over what the guest has according to its SACK blocks.
func (e *Engine) retreat(c *conn) {
	if right := c.una.Add(int(c.wnd)); right.Less(c.nxt) {
		c.nxt = right
		c.clear(fTiming)
	}
	e.skipBlocks(c)
}

// usable is how much of n bytes the guest's window, and after a timeout the
// congestion window, take now; 0: wait. Small pieces of a larger window are not
// worth a segment while an ACK is to come (RFC 9293 3.8.6.2.1).
func (e *Engine) usable(c *conn, n int) int {
	room := int(c.una.Add(int(c.wnd)).Diff(c.nxt))
	if c.cwnd > 0 {
		room = min(room, int(c.una.Add(int(c.cwnd)).Diff(c.nxt)))
	}
	if !e.peeks {
		room = min(room, int(c.base.Add(e.cfg.CopyMax).Diff(c.nxt)))
	}
	mss := e.sendMSS(c)
	switch {
	case room <= 0:
		return 0
	case room >= n:
		return n
	case room >= mss:
		return room - room%mss
	case c.una != c.max && room < int(c.maxWnd)/2:
		return 0
	}
	return room
}

// sendMSS is the largest payload of a segment to the guest.
func (e *Engine) sendMSS(c *conn) int { return min(int(c.mss), e.ourMSS(c)) }

// frame is the shape of frames: header length, and the most payload of each, a
// multiple of the MSS.
func (e *Engine) frame(c *conn) (header, seg int) {
	v6 := c.has(fV6)
	header = e.port.L3Len(v6) + wire.TCPLen
	seg = e.sendMSS(c)
	if v6 && e.port.Caps.TSO6 || !v6 && e.port.Caps.TSO4 {
		most := link.MaxGSOFrame - header
		seg = max(most-most%seg, seg)
	}
	return header, seg
}

// emit reads up to n bytes at nxt and sends them. more says that it is worth to
// go on: neither is the socket drained nor the guest's ring full.
func (e *Engine) emit(c *conn, n int) (sent int, more bool) {
	header, seg := e.frame(c)
	seg = min(seg, n)
	want := min((n+seg-1)/seg, maxSlots)
	slots := e.reserve(header, seg, want)
	if len(slots) == 0 {
		e.wait(c)
		return 0, false
	}
	n = min(n, len(slots)*seg)
	got, end, errno := e.fill(c, slots, n)
	fin := end && errno == 0 && e.hostEnd(c, got)
	e.dress(c, slots, got, seg, fin)
	e.sentUpTo(c, c.nxt.Add(got), got, fin)
	switch {
	case errno == errNoMemory:
		e.choked = true
		e.wait(c)
		return got, false
	case errno == syscall.EAGAIN:
		c.clear(fHostReady)
		c.hint = uint32(min(max(2*got, minRead), maxRead))
		return got, false
	case errno != 0 || c.has(fHostFailed) && end:
		e.event(c, HostError)
		return got, false
	case len(slots) < want && got == n: // the guest's buffers are the limit
		e.wait(c)
		return got, false
	}
	if got == n && c.nxt == c.max {
		c.hint = uint32(min(4*int(c.hint), maxRead))
	}
	return got, true
}

// guess is how many bytes to offer the next read: reserving guest buffers for
// many when there are few costs more than a second read. It is a whole number of
// segments.
func (e *Engine) guess(c *conn) int {
	_, seg := e.frame(c)
	if n := int(c.hint); n >= seg {
		return n - n%seg
	}
	mss := e.sendMSS(c)
	return (int(c.hint) + mss - 1) / mss * mss
}

// fill reads up to n bytes at nxt into slots. EAGAIN says that the socket is
// drained for now, end that its stream has ended behind the bytes got.
func (e *Engine) fill(c *conn, slots []link.Slot, n int) (got int, end bool, errno syscall.Errno) {
	iov := payloads(e.iov[:0], slots, n)
	for got < n && len(iov) > 0 {
		k, drained, errno := e.fetch(c, c.nxt.Add(got), iov, n-got)
		switch {
		case errno != 0:
			return got, false, errno
		case k == 0:
			return got, true, 0
		}
		got += k
		if drained && !c.has(fHostEnd|fHostFailed) {
			return got, false, syscall.EAGAIN
		}
		// With the end in sight it is worth another call: the FIN goes along.
		iov = behind(iov, k)
	}
	return got, false, 0
}

// hostEnd takes note of the end of the target's stream, got bytes behind nxt. It
// says whether the FIN can go with those bytes.
func (e *Engine) hostEnd(c *conn, got int) bool {
	end := c.nxt.Add(got)
	if end.Less(c.max) { // bytes that were there before are not any more
		c.set(fHostFailed)
	}
	if c.has(fHostFailed) {
		return false
	}
	c.finSeq = end
	e.event(c, HostEOF)
	return got > 0 && c.wnd > uint32(end.Diff(c.una))
}

// dress writes headers in front of got bytes that lie in slots, seg in each, and
// commits the frames.
func (e *Engine) dress(c *conn, slots []link.Slot, got, seg int, fin bool) {
	frames := (got + seg - 1) / seg
	if frames == 0 {
		e.commit(0)
		return
	}
	k := e.key(c)
	f := wire.TCPFields{
		SrcPort: k.RemotePort, DstPort: k.GuestPort,
		Seq: c.nxt, Ack: c.rcvNxt, Flags: wire.ACK, Window: e.window(c),
	}
	mss := e.sendMSS(c)
	for i := range slots[:frames] {
		s := &slots[i]
		s.Used = min(seg, got)
		if got -= s.Used; got == 0 {
			f.Flags |= wire.PSH
			if fin {
				f.Flags |= wire.FIN
			}
		}
		l4 := wire.TCPLen + s.Used
		b := s.Header
		b = b[e.port.PutL3(b, k.Remote, k.Guest, wire.ProtoTCP, guest.DefaultTTL, 0, l4):]
		wire.PutTCP(b, &f)
		sum := wire.PseudoHeader(k.Remote, k.Guest, wire.ProtoTCP, l4)
		if e.port.Caps.Csum {
			wire.PutChecksum(b, wire.TCPCsumOff, wire.Fold(sum))
			s.Off = link.Offload{
				NeedsCsum: true, CsumStart: uint16(len(s.Header) - wire.TCPLen), CsumOff: wire.TCPCsumOff,
			}
		} else {
			sum = wire.Checksum(sum, b[:wire.TCPLen])
			sum = wire.ChecksumSegs(sum, payloads(e.iov[:0], slots[i:i+1], s.Used))
			wire.PutChecksum(b, wire.TCPCsumOff, wire.Finish(sum))
		}
		if s.Used > mss {
			s.Off.GSO, s.Off.SegSize = link.GSOTCPv4, uint16(mss)
			if c.has(fV6) {
				s.Off.GSO = link.GSOTCPv6
			}
		}
		f.Seq = f.Seq.Add(s.Used)
	}
	e.commit(frames)
	e.answered(c)
}

// sentUpTo does the books for what was sent at nxt: bytes up to end, and the FIN.
func (e *Engine) sentUpTo(c *conn, end wire.Seq, bytes int, fin bool) {
	if fin {
		end++
	}
	if end == c.nxt {
		return
	}
	now := e.now()
	if c.nxt.Less(c.max) {
		e.stats.Retransmits++
	}
	if c.max.Less(end) {
		e.stats.BytesToGuest += uint64(min(int(end.Diff(c.max)), bytes))
		c.max = end
		c.moved = now
		if !c.has(fTiming) && !c.has(fRecover) {
			c.set(fTiming)
			c.rttSeq, c.rttAt = end, now
		}
	}
	c.nxt = end
	if c.rtxAt == 0 || c.has(fPersist) {
		e.startRetransmit(c)
	}
}

// sendFin sends the FIN alone.
func (e *Engine) sendFin(c *conn) bool {
	f := wire.TCPFields{Seq: c.nxt, Ack: c.rcvNxt, Flags: wire.FIN | wire.ACK, Window: e.window(c)}
	if !e.control(e.key(c), &f, 1) {
		e.wait(c)
		return false
	}
	c.clear(fAckOwed | fAckHeld)
	e.sentUpTo(c, c.nxt, 0, true)
	return true
}
