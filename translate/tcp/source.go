package tcp

import (
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// This file is where bytes for the guest come from. With SO_PEEK_OFF they stay
// in the kernel until the guest has ACKed them, and can be read again from
// there. Without it they are kept in outBuf.

// errNoMemory is what fetch returns when the pool has no chunk left.
const errNoMemory = syscall.ENOBUFS

// fetch copies bytes of the target from sequence number s on to iov, which has
// room for n. drained says that the host socket has no more for now; 0 bytes
// without an error are its end.
func (e *Engine) fetch(c *conn, s wire.Seq, iov [][]byte, n int) (got int, drained bool, errno syscall.Errno) {
	if !e.peeks {
		return e.fetchKept(c, s, iov, n)
	}
	if off := uint32(s.Diff(c.base)); off != c.peek {
		if errno = e.host.SetPeekOffset(c.fd, int(off)); errno != 0 {
			return 0, false, errno
		}
		c.peek = off
	}
	got, errno = e.host.Peekv(c.fd, iov)
	if errno != 0 {
		return 0, true, errno
	}
	c.peek += uint32(got)
	return got, got < n, 0
}

// fetchKept takes the bytes from outBuf, or new ones by way of it.
func (e *Engine) fetchKept(c *conn, s wire.Seq, iov [][]byte, n int) (got int, drained bool, errno syscall.Errno) {
	if c.outBuf == 0 {
		c.outBuf, _ = e.outBufs.Get()
	}
	b := e.outBufs.At(c.outBuf)
	if s == c.known {
		var read int
		if read, drained, errno = e.readInto(c, b, n); read == 0 {
			return 0, drained, errno
		}
	}
	n = min(n, int(c.known.Diff(s)))
	for _, dst := range iov {
		for len(dst) > 0 && got < n {
			m := b.at(&e.pool, s)
			k := copy(dst, m[:min(len(m), n-got)])
			dst, s, got = dst[k:], s.Add(k), got+k
		}
	}
	return got, drained, 0
}

// readInto reads up to n new bytes into outBuf.
func (e *Engine) readInto(c *conn, b *seqBuf, n int) (int, bool, syscall.Errno) {
	rooms := e.rooms[:0]
	want := 0
	for s := c.known; want < n && len(rooms) < cap(rooms); {
		m := b.room(&e.pool, s)
		if m == nil {
			break
		}
		m = m[:min(len(m), n-want)]
		rooms = append(rooms, m)
		want += len(m)
		s = s.Add(len(m))
	}
	if want == 0 {
		return 0, false, errNoMemory
	}
	got, errno := e.host.Readv(c.fd, rooms)
	if errno != 0 {
		got = 0
	}
	b.trim(&e.pool, c.known.Add(got), c.known.Add(want))
	c.known = c.known.Add(got)
	e.trimOutBuf(c)
	return got, errno != 0 || got < want, errno
}

// consume forgets what the guest has ACKed. A system call is worth it when
// enough has come together or nothing is in flight any more; then at once, since
// the kernel ACKs the target's last bytes when its queue is empty. It reports
// false when the kernel has lost them.
func (e *Engine) consume(c *conn) bool {
	upTo := c.una
	if c.has(fFinQueued) {
		upTo = upTo.Min(c.finSeq)
	}
	n := int(upTo.Diff(c.base))
	if n <= 0 || c.fd == hostsock.None {
		return true
	}
	if !e.peeks {
		e.outBufs.At(c.outBuf).release(&e.pool, c.base, upTo)
		c.base = upTo
		e.trimOutBuf(c)
		return true
	}
	if n < discardAt && c.una != c.max {
		return true
	}
	for n > 0 {
		k, errno := e.host.Discard(c.fd, n)
		if errno != 0 || k <= 0 {
			return false
		}
		n -= k
		c.base = c.base.Add(k)
		c.peek -= min(c.peek, uint32(k))
	}
	return true
}

// trimOutBuf gives outBuf back when it holds nothing.
func (e *Engine) trimOutBuf(c *conn) {
	if c.outBuf != 0 && c.base == c.known {
		e.freeOutBuf(c)
	}
}

func (e *Engine) freeOutBuf(c *conn) {
	if c.outBuf == 0 {
		return
	}
	e.outBufs.At(c.outBuf).clear(&e.pool)
	e.outBufs.Put(c.outBuf)
	c.outBuf = 0
}

// payloads lists the guest memory behind the headers of slots, n bytes in all,
// fewer when dst has not the room to list them.
func payloads(dst [][]byte, slots []link.Slot, n int) [][]byte {
	for i := range slots {
		for _, m := range slots[i].Payload {
			if n == 0 || len(dst) == cap(dst) {
				return dst
			}
			m = m[:min(len(m), n)]
			dst = append(dst, m)
			n -= len(m)
		}
	}
	return dst
}

// behind cuts the first n bytes off iov, in place.
func behind(iov [][]byte, n int) [][]byte {
	for len(iov) > 0 && n >= len(iov[0]) {
		n -= len(iov[0])
		iov = iov[1:]
	}
	if n > 0 {
		iov[0] = iov[0][n:]
	}
	return iov
}
