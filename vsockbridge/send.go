package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/packet"
)

// faultReason breaks rings whose memory the kernel could not reach.
const faultReason = vring.UsedFault

// stream gives n bytes of the guest to a host socket: behind those of the same
// connection that came just before, so that one system call moves them all.
func (d *Device) stream(c *conn, n int, payload [][]byte) {
	if d.run != c {
		d.endRun()
		if c.state.unsent {
			for _, seg := range payload {
				seg = seg[:min(n, len(seg))]
				c.out.append(&d.pool, seg)
				n -= len(seg)
			}
			return
		}
		d.run = c
	}
	for _, seg := range payload {
		if n == 0 {
			break
		}
		seg = seg[:min(n, len(seg))]
		if !d.vec.add(seg) {
			if d.endRun(); c.fd < 0 {
				return
			}
			d.stream(c, n, payload)
			return
		}
		payload = payload[1:]
		n -= len(seg)
	}
}

// endRun sends what stream has collected. What the socket does not take waits
// for it to be writable.
func (d *Device) endRun() {
	c := d.run
	if c == nil {
		return
	}
	d.run = nil
	n, errno := d.vec.send(c.fd)
	d.counters.Writes++
	if errno == unix.EAGAIN && c.widen() {
		n, errno = d.vec.send(c.fd)
	}
	if errno != 0 && errno != unix.EAGAIN {
		d.vec.reset()
		d.sendFailed(c, errno)
		return
	}
	if n < d.vec.bytes {
		d.keep(c, n)
	}
	d.vec.reset()
	if n > 0 {
		c.credit.forward(uint32(n))
		d.credited(c)
	}
}

// keep copies what is behind the first n bytes of the vector.
func (d *Device) keep(c *conn, n int) {
	for i := range d.vec.n {
		b := d.vec.piece(i)
		k := min(n, len(b))
		n -= k
		if k < len(b) {
			c.out.append(&d.pool, b[k:])
		}
	}
	d.counters.Staged++
	d.await(c)
}

// await waits for the host socket of c to be writable.
func (d *Device) await(c *conn) {
	c.state.unsent = true
	if !c.waiting {
		c.waiting = true
		_ = d.loop.Modify(c.token, eventloop.In|eventloop.RDHup|eventloop.Out|eventloop.Edge)
	}
}

// widen enlarges the send buffer of a UNIX socket that has shown to be too
// small, once; it reports whether trying again may help. A TCP socket's grows by
// itself, and must be left alone for that.
func (c *conn) widen() bool {
	if c.widened || !c.unix {
		return false
	}
	c.widened = true
	return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer) == nil
}

// sendBuffer is asked for; the host's net.core.wmem_max caps it.
const sendBuffer = 1 << 20

// sendFailed deals with a socket that takes no more, for good.
func (d *Device) sendFailed(c *conn, errno unix.Errno) {
	if errno == unix.EFAULT {
		d.breakRings()
		d.turn.ask(d.loop)
		return
	}
	c.out.clear(&d.pool)
	if held := c.credit.held(); held > 0 {
		c.credit.forward(held)
	}
	d.happen(c, evBroken, 0)
}

// flush sends what waits for the host socket of c, which has become writable. It
// reports false when the connection has ended.
func (d *Device) flush(c *conn) bool {
	for c.out.bytes > 0 {
		skip, want := 0, c.out.bytes
		if c.typ == packet.SeqPacket {
			skip, want = lengthSize, c.out.message(&d.pool)
		}
		c.out.gather(&d.vec, skip, want)
		n, errno := d.vec.send(c.fd)
		d.counters.Writes++
		short := n < d.vec.bytes
		d.vec.reset()
		if (errno == unix.EAGAIN || errno == unix.EMSGSIZE) && c.widen() {
			continue
		}
		if errno == unix.EAGAIN {
			d.await(c)
			return true
		}
		if errno != 0 {
			d.sendFailed(c, errno)
			return c.state.phase == open
		}
		c.out.consume(&d.pool, skip+n)
		c.credit.forward(uint32(n))
		d.credited(c)
		if short {
			d.await(c) // the socket is full again
			return true
		}
	}
	if c.waiting {
		c.waiting = false
		_ = d.loop.Modify(c.token, eventloop.In|eventloop.RDHup|eventloop.Edge)
	}
	if !c.state.unsent {
		return true
	}
	d.happen(c, evFlushed, 0)
	return c.state.phase == open
}
