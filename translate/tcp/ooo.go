package tcp

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

const maxRanges = 64 // out-of-order ranges of one connection

// inBuf holds bytes of the guest that the kernel cannot have yet: staged ones
// from wrNxt on, and out-of-order ones beyond rcvNxt in the listed ranges.
type inBuf struct {
	seqBuf
	n      int
	newest int // range that the last segment went to; it is reported first (RFC 2018 4)
	bytes  int // in ranges
	ranges [maxRanges]span
}

// span is [from, to) in sequence numbers.
type span struct{ from, to wire.Seq }

func (s span) len() int { return int(s.to.Diff(s.from)) }

func (e *Engine) inBuffer(c *conn) *inBuf {
	if c.inBuf == 0 {
		c.inBuf, _ = e.inBufs.Get()
	}
	return e.inBufs.At(c.inBuf)
}

// trimInBuf gives the buffer back when it holds nothing.
func (e *Engine) trimInBuf(c *conn) {
	if c.inBuf != 0 && c.staged == 0 && e.inBufs.At(c.inBuf).n == 0 {
		e.freeInBuf(c)
	}
}

func (e *Engine) freeInBuf(c *conn) {
	if c.inBuf == 0 {
		return
	}
	e.inBufs.At(c.inBuf).clear(&e.pool)
	e.inBufs.Put(c.inBuf)
	c.inBuf, c.staged = 0, 0
}

// keep puts the payload at sequence number s, which is beyond rcvNxt and inside
// the window, into the out-of-order queue. Bytes that are there already stay:
// the first delivery wins. It reports false when there is no room for all of it.
func (e *Engine) keep(c *conn, f *link.Frame, s wire.Seq, off, n int) bool {
	b := e.inBuffer(c)
	if b.bytes+n > e.cfg.OutOfOrder || !e.memory(n) {
		e.trimInBuf(c)
		return false
	}
	// Where the new bytes go among the ranges: [lo, hi) touch or overlap them.
	end := s.Add(n)
	lo := 0
	for lo < b.n && b.ranges[lo].to.Less(s) {
		lo++
	}
	hi := lo
	for hi < b.n && b.ranges[hi].from.LessEq(end) {
		hi++
	}
	if lo == hi && b.n == maxRanges {
		return false
	}
	e.plug(b, f, s, off, n, b.ranges[lo:hi])
	b.merge(lo, hi, span{s, end})
	return true
}

// plug copies the payload [s, s+n) to where ranges, in order, do not cover it.
func (e *Engine) plug(b *inBuf, f *link.Frame, s wire.Seq, off, n int, ranges []span) {
	end := s.Add(n)
	for i := 0; s.Less(end); i++ {
		stop := end
		if i < len(ranges) {
			stop = ranges[i].from.Min(end)
		}
		if s.Less(stop) {
			at, o := s, off
			for _, seg := range wire.Payload(e.iov[:0], f, o, int(stop.Diff(s))) {
				at = at.Add(b.put(&e.pool, at, seg))
			}
		}
		if i == len(ranges) {
			return
		}
		next := ranges[i].to.Max(s)
		off += int(next.Diff(s))
		s = next
	}
}

// merge replaces ranges [lo, hi) by one that covers them and r.
func (b *inBuf) merge(lo, hi int, r span) {
	for _, o := range b.ranges[lo:hi] {
		r.from, r.to = r.from.Min(o.from), r.to.Max(o.to)
		b.bytes -= o.len()
	}
	b.bytes += r.len()
	if lo == hi {
		copy(b.ranges[lo+1:b.n+1], b.ranges[lo:b.n])
	} else {
		copy(b.ranges[lo+1:], b.ranges[hi:b.n])
	}
	b.ranges[lo] = r
	b.n += 1 - (hi - lo)
	b.newest = lo
}

// joined takes the ranges that rcvNxt has reached into the staged bytes, and
// moves rcvNxt behind them.
func (e *Engine) joined(c *conn) {
	if c.inBuf == 0 {
		return
	}
	b := e.inBufs.At(c.inBuf)
	k := 0
	for k < b.n && b.ranges[k].from.LessEq(c.rcvNxt) {
		if c.rcvNxt.Less(b.ranges[k].to) {
			c.staged += uint32(b.ranges[k].to.Diff(c.rcvNxt))
			c.rcvNxt = b.ranges[k].to
		}
		b.bytes -= b.ranges[k].len()
		k++
	}
	if k > 0 {
		copy(b.ranges[:], b.ranges[k:b.n])
		b.n -= k
		b.newest = max(b.newest-k, 0)
	}
}

// queued is where the first range of the out-of-order queue begins.
func (e *Engine) queued(c *conn) (wire.Seq, bool) {
	if !e.gaps(c) {
		return 0, false
	}
	return e.inBufs.At(c.inBuf).ranges[0].from, true
}

// gaps says whether the out-of-order queue holds anything.
func (e *Engine) gaps(c *conn) bool { return c.inBuf != 0 && e.inBufs.At(c.inBuf).n > 0 }

// blocks lists the SACK blocks to report: the newest first (RFC 2018 4).
func (e *Engine) blocks(c *conn, dst *[4][2]wire.Seq) int {
	if !c.has(fSACK) || c.inBuf == 0 {
		return 0
	}
	b := e.inBufs.At(c.inBuf)
	n := 0
	for i := 0; i < b.n && n < len(dst); i++ {
		// newest, then the others from the highest down.
		k := b.newest
		if i > 0 {
			if k = b.n - i; k <= b.newest {
				k--
			}
		}
		dst[n] = [2]wire.Seq{b.ranges[k].from, b.ranges[k].to}
		n++
	}
	return n
}
