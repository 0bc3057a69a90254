package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// pull reads from the host socket into chains of the guest.
func (d *Device) pull(c *conn) outcome {
	if c.typ == packet.SeqPacket {
		return d.pullRecords(c)
	}
	for left := serveBytes; left > 0; {
		free, n := c.credit.free(), min(uint32(c.want), c.credit.packets())
		if free == 0 || n == 0 {
			d.block(c)
			return served
		}
		chains, room := d.gather(int(n), int(free))
		if chains == 0 {
			return starved
		}
		got, rest, errno := d.vec.recv(c.fd)
		d.vec.reset()
		d.counters.Reads++
		if errno != 0 || got == 0 {
			d.rx.q.Rewind(chains)
			d.readEnded(c, errno)
			return served
		}
		h := d.header(c)
		h.Op = packet.RW
		used := d.fill(c, &h, got, 0)
		d.rx.q.Rewind(chains - used)
		left -= got
		if got < room {
			if c.want = max(min(c.want, int32(2*used)), minWant); c.unix && !rest && !c.hungUp {
				c.readable = false // that was all; more of it is a new event
				return served
			}
		} else {
			c.want = min(2*c.want, rxMost)
		}
	}
	return again
}

// gather pops up to n chains and lays out the vector of a read of at most limit
// bytes over them. It returns how many chains it took and how many bytes they
// have room for.
func (d *Device) gather(n, limit int) (chains, room int) {
	r := &d.rx
	d.vec.reset()
	popped := r.q.PopBatch(r.chains[:n])
	for i := 0; i < popped && room < limit; i++ {
		c := &r.chains[i]
		if c.WriteLen <= packet.Size || d.vec.n+len(c.Writable) > maxIov {
			break
		}
		k := min(int(c.WriteLen)-packet.Size, packet.MaxPayload, limit-room)
		r.rooms[i] = k
		room += k
		skip := packet.Size
		for _, seg := range c.Writable {
			cut := min(skip, len(seg))
			seg, skip = seg[cut:], skip-cut
			if seg = seg[:min(k, len(seg))]; len(seg) > 0 {
				d.vec.add(seg)
				k -= len(seg)
			}
		}
		chains++
	}
	if chains == 0 && popped > 0 {
		r.q.Rewind(popped - 1)
		d.unfit(&r.chains[0])
		return d.gather(n, limit)
	}
	r.q.Rewind(popped - chains)
	return chains, room
}

// fill completes the chains of a read that gave n bytes, and returns how many
// those are. last are the flags of the packet in the last one.
func (d *Device) fill(c *conn, h *packet.Header, n int, last uint32) (used int) {
	r := &d.rx
	d.counters.RxBytes += uint64(n)
	for n > 0 {
		k := min(n, r.rooms[used])
		if n -= k; n == 0 {
			h.Flags = last
		}
		h.Len = uint32(k)
		put(&r.chains[used], h)
		r.push(&r.chains[used], packet.Size+k)
		c.credit.send(h.Len)
		used++
	}
	d.counters.RxPackets += uint64(used)
	if r.pushed >= rxEarly {
		d.publishRx()
	}
	return used
}

// readEnded deals with a read that gave nothing: for now, or for good.
func (d *Device) readEnded(c *conn, errno unix.Errno) {
	c.readable = false
	switch {
	case errno == unix.EAGAIN:
	case errno == unix.EFAULT:
		d.breakRings()
		d.turn.ask(d.loop)
	case errno != 0 || c.closed:
		d.happen(c, evClosed, 0)
	default:
		d.happen(c, evEOF, 0)
	}
}

// block has c wait for credit. A guest that reads tells of it by itself, unless
// it counts bytes where the limit is in packets; and drivers need not: those are
// asked, once.
func (d *Device) block(c *conn) {
	if c.blocked {
		return
	}
	c.blocked = true
	d.counters.Blocked++
	if c.credit.packets() == 0 {
		c.owe |= oweCreditRequest
		d.enqueue(c)
		return
	}
	if c.state.host != packet.ShutdownBoth {
		c.probing = true
		d.arm(c, probeAfter)
	}
}
