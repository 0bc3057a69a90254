package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// record handles a part of a message from the guest; its last packet carries
// EndOfMessage. A message that comes in one packet while nothing waits goes to
// the socket from guest memory; others are put together first, in memory that
// the credit bounds. The unread bytes of messages and the four bytes that each
// costs may be twice that: short messages cost more than they count for.
func (d *Device) record(c *conn, h *packet.Header, payload [][]byte) {
	d.endRun()
	n := int(h.Len)
	end := h.Flags&packet.EndOfMessage != 0
	if end && c.out.empty() {
		if d.sendRecord(c, n, payload) {
			return
		}
		if c.fd < 0 || c.state.phase != open {
			return
		}
	}
	if c.out.bytes+c.out.making > 2*int(c.credit.alloc) {
		d.violation(c)
		return
	}
	for _, seg := range payload {
		seg = seg[:min(n, len(seg))]
		c.out.extend(&d.pool, seg)
		n -= len(seg)
	}
	if !end {
		return
	}
	c.out.finish()
	if c.waiting {
		d.counters.Staged++
		return
	}
	c.state.unsent = true
	d.flush(c)
}

// sendRecord sends a whole message from guest memory. It reports false when the
// socket has no room for it now, or has ended.
func (d *Device) sendRecord(c *conn, n int, payload [][]byte) bool {
	d.vec.reset()
	for _, seg := range payload {
		if n == 0 {
			break
		}
		seg = seg[:min(n, len(seg))]
		if !d.vec.add(seg) {
			d.vec.reset()
			return false // more pieces than one call takes
		}
		n -= len(seg)
	}
	sent, errno := d.vec.send(c.fd)
	d.counters.Writes++
	if (errno == unix.EAGAIN || errno == unix.EMSGSIZE) && c.widen() {
		sent, errno = d.vec.send(c.fd)
	}
	d.vec.reset()
	switch errno {
	case 0:
		c.credit.forward(uint32(sent))
		d.credited(c)
		return true
	case unix.EAGAIN:
		return false
	}
	d.sendFailed(c, errno)
	return false
}

// pullRecords reads whole messages from the host socket. One that the guest has
// buffers and credit for goes there directly; one that needs more buffers than
// there are is read into memory of ours and goes out in pieces, of which only
// the last ends it.
func (d *Device) pullRecords(c *conn) outcome {
	for left := serveBytes; left > 0; {
		if !c.in.empty() {
			before := c.in.bytes
			if out := d.pushPieces(c); out != again {
				return out
			}
			left -= before
			continue
		}
		n, errno := d.vec.peek(c.fd)
		d.counters.Reads++
		switch {
		case errno != 0:
			d.readEnded(c, errno)
			return served
		case n == 0:
			if c.hungUp || hungUp(c.fd) {
				d.readEnded(c, 0)
				return served
			}
			d.readInto(c, 1) // an empty message, which vsock does not have
			left--
			continue
		case uint32(n) > c.credit.peerAlloc:
			d.counters.TooLong++ // it can never be delivered whole
			d.happen(c, evViolation, 0)
			return served
		case uint32(n) > c.credit.free() || c.credit.packets() == 0:
			d.block(c)
			return served
		}
		if !d.pullRecord(c, n) {
			return served
		}
		left -= n
	}
	return again
}

// pullRecord reads a message of n bytes, for which the guest has credit. It
// reports false when the socket has ended.
func (d *Device) pullRecord(c *conn, n int) bool {
	chains, room := d.gather(rxMost, n)
	if room < n {
		d.rx.q.Rewind(chains)
		d.vec.reset()
		c.in.reserve(&d.pool, &d.vec, n)
		if !d.readInto(c, 0) {
			c.in.clear(&d.pool)
			return false
		}
		return true
	}
	got, _, errno := d.vec.recv(c.fd)
	d.vec.reset()
	d.counters.Reads++
	if errno != 0 || got != n {
		d.rx.q.Rewind(chains)
		d.readEnded(c, errno)
		return false
	}
	h := d.header(c)
	h.Op = packet.RW
	d.rx.q.Rewind(chains - d.fill(c, &h, n, packet.EndOfMessage))
	return true
}

// readInto reads a message into the vector, or with scratch into that many bytes
// that nobody wants.
func (d *Device) readInto(c *conn, scratch int) bool {
	if scratch > 0 {
		d.vec.reset()
		d.vec.add(d.scratch[:scratch])
	}
	want := d.vec.bytes
	got, _, errno := d.vec.recv(c.fd)
	d.vec.reset()
	d.counters.Reads++
	if errno != 0 || scratch == 0 && got != want {
		d.readEnded(c, errno)
		return false
	}
	return true
}

// pushPieces sends what waits of a host message.
func (d *Device) pushPieces(c *conn) outcome {
	for c.in.bytes > 0 {
		if c.credit.packets() == 0 {
			d.block(c)
			return served
		}
		chain := d.rx.chain(d)
		if chain == nil {
			return starved
		}
		if chain.WriteLen == packet.Size {
			d.unfit(chain)
			continue
		}
		n := min(int(chain.WriteLen)-packet.Size, packet.MaxPayload, c.in.bytes)
		h := d.header(c)
		h.Op, h.Len = packet.RW, uint32(n)
		if n == c.in.bytes {
			h.Flags = packet.EndOfMessage
		}
		put(chain, &h)
		c.in.fill(&d.pool, chain, n)
		d.rx.push(chain, packet.Size+n)
		c.credit.send(h.Len)
		d.counters.RxPackets++
		d.counters.RxBytes += uint64(n)
	}
	return again
}
