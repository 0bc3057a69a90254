package tcp

import (
	"syscall"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// This file is the way from the guest to the host: payload in order is gathered
// by reference while a batch is read, and written with one Writev per
// connection when it ends.

// touched is what a batch did to one connection.
type touched struct {
	slot       uint32 // 0: the connection is gone
	head, tail int32  // 1 + index in Engine.runs, 0: nothing gathered
	segs       int32  // slices gathered
	bytes      int32  // bytes gathered and not written yet
	total      int32  // payload bytes accepted in this batch
	gaps       int32  // out-of-order segments: so many duplicate ACKs are owed
	acked      bool   // the guest's ACK or window moved
}

// run is a part of Engine.segs that belongs to one connection.
type run struct{ lo, hi, next int32 }

// touch returns c's record in this batch. It is good until the next call.
func (e *Engine) touch(c *conn) *touched {
	if c.batch == 0 {
		e.batch = append(e.batch, touched{slot: c.slot})
		c.batch = int32(len(e.batch))
	}
	return &e.batch[c.batch-1]
}

// gather takes n payload bytes at offset off of the frame as the next in order.
// The caller knows that they are inside the window.
func (e *Engine) gather(c *conn, f *link.Frame, off, n int) {
	if len(e.segs)+len(f.Segs) > cap(e.segs) {
		e.flushAll()
	}
	e.pending += chunksFor(n)
	t := e.touch(c)
	lo := int32(len(e.segs))
	e.segs = wire.Payload(e.segs, f, off, n)
	hi := int32(len(e.segs))
	if t.tail != 0 && e.runs[t.tail-1].hi == lo {
		e.runs[t.tail-1].hi = hi
	} else {
		e.runs = append(e.runs, run{lo: lo, hi: hi})
		i := int32(len(e.runs))
		if t.tail == 0 {
			t.head = i
		} else {
			e.runs[t.tail-1].next = i
		}
		t.tail = i
	}
	t.segs += hi - lo
	t.bytes += int32(n)
	t.total += int32(n)
	c.rcvNxt = c.rcvNxt.Add(n)
	if t.bytes >= flushBytes || t.segs >= maxIOV {
		e.flush(c)
	}
}

// flushAll writes what was gathered for every connection, so that the gathering
// space can be used anew.
func (e *Engine) flushAll() {
	for i := range e.batch {
		if t := &e.batch[i]; t.slot != 0 && t.head != 0 {
			e.flush(e.conns.At(t.slot))
		}
	}
	e.segs, e.runs, e.pending = e.segs[:0], e.runs[:0], 0
}

// memory says whether n more bytes can be staged even if no kernel takes
// anything of what was gathered.
func (e *Engine) memory(n int) bool {
	if e.pool.used+e.pending+chunksFor(n) <= e.pool.limit {
		return true
	}
	e.flushAll()
	return e.pool.used+chunksFor(n) <= e.pool.limit
}

// flush gives what was gathered for c to the kernel, and to the staging buffer
// what the kernel does not take.
func (e *Engine) flush(c *conn) {
	if c.batch == 0 {
		return
	}
	t := &e.batch[c.batch-1]
	at := t.head
	t.head, t.tail, t.segs, t.bytes = 0, 0, 0, 0
	for at != 0 && c.state != Closed {
		iov := e.iov[:0]
		if r := e.runs[at-1]; r.next == 0 && r.hi-r.lo <= maxIOV {
			iov, at = e.segs[r.lo:r.hi], 0 // the usual case: one connection has it all
		}
		for at != 0 && len(iov) < maxIOV {
			r := &e.runs[at-1]
			n := min(int(r.hi-r.lo), maxIOV-len(iov))
			iov = append(iov, e.segs[r.lo:int(r.lo)+n]...)
			if r.lo += int32(n); r.lo == r.hi {
				at = r.next
			}
		}
		if !e.write(c, iov) {
			return
		}
	}
}

// write gives bytes of the guest, the next in order, to the kernel, behind
// those that are staged. It reports false when the connection has failed.
func (e *Engine) write(c *conn, iov [][]byte) bool {
	if c.staged > 0 {
		if e.drain(c); !c.hosted() {
			return false
		}
	}
	total := length(iov)
	n := 0
	if c.staged == 0 && !c.has(fHostFull) {
		var errno syscall.Errno
		if n, errno = e.host.Writev(c.fd, iov, false); errno != 0 {
			if errno != syscall.EAGAIN {
				e.hostFailed(c)
				return false
			}
			n = 0
		}
		c.wrNxt = c.wrNxt.Add(n)
		e.stats.BytesToHost += uint64(n)
		c.moved = e.now()
	}
	if n == total {
		return true
	}
	e.blocked(c)
	return e.stage(c, iov, n)
}

// stage copies the bytes of iov behind the first skip to the staging buffer.
func (e *Engine) stage(c *conn, iov [][]byte, skip int) bool {
	b := e.inBuffer(c)
	for _, s := range iov {
		if skip >= len(s) {
			skip -= len(s)
			continue
		}
		s = s[skip:]
		skip = 0
		n := b.put(&e.pool, c.wrNxt.Add(int(c.staged)), s)
		c.staged += uint32(n)
		if n < len(s) { // memory was asked before; a hole must not be written over
			e.event(c, GiveUp)
			return false
		}
	}
	return true
}

// blocked notes that the kernel takes no more until it says so.
func (e *Engine) blocked(c *conn) {
	if !c.has(fHostFull) {
		c.set(fHostFull)
		c.fullAt = e.now()
		e.stats.ShortWrites++
	}
}

// drain writes staged bytes until there are none or the kernel is full again.
func (e *Engine) drain(c *conn) {
	for c.staged > 0 && !c.has(fHostFull) {
		b := &e.inBufs.At(c.inBuf).seqBuf
		iov := b.view(&e.pool, e.rooms[:0], c.wrNxt, int(c.staged))
		n, errno := e.host.Writev(c.fd, iov, false)
		if errno != 0 {
			if errno != syscall.EAGAIN {
				e.hostFailed(c)
				return
			}
			n = 0
		}
		b.release(&e.pool, c.wrNxt, c.wrNxt.Add(n))
		c.wrNxt = c.wrNxt.Add(n)
		c.staged -= uint32(n)
		e.stats.BytesToHost += uint64(n)
		e.stats.BytesStaged += uint64(n)
		if n > 0 {
			c.moved = e.now()
		}
		if n < length(iov) {
			e.blocked(c)
		}
	}
	e.trimInBuf(c)
}

func length(iov [][]byte) int {
	n := 0
	for _, s := range iov {
		n += len(s)
	}
	return n
}
