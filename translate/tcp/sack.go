package tcp

import "guestwire/translate/wire"

const maxBlocks = 16 // SACK blocks remembered per connection

// board is what the guest has told with SACK (RFC 2018): the ranges beyond una
// that it has, in order, none touching another. A connection has one only while
// something is missing.
type board struct {
	n     int
	bytes int
	r     [maxBlocks]span
}

func (e *Engine) freeBoard(c *conn) {
	if c.board != 0 {
		e.boards.Put(c.board)
		c.board = 0
	}
}

// sacked takes the SACK blocks of a segment. Blocks that cannot be true, and
// those that report duplicates (RFC 2883), are ignored.
func (e *Engine) sacked(c *conn, t *wire.TCPHeader) {
	for _, b := range t.SACK[:t.NSACK] {
		if !c.una.Less(b[0]) || !b[0].Less(b[1]) || c.max.Less(b[1]) {
			continue
		}
		if c.board == 0 {
			c.board, _ = e.boards.Get()
		}
		e.boards.At(c.board).add(span{b[0], b[1]})
	}
}

// add merges s into the board. When the board is full a range that would need a
// place of its own is forgotten: it is then sent again, which does no harm.
func (b *board) add(s span) {
	lo := 0
	for lo < b.n && b.r[lo].to.Less(s.from) {
		lo++
	}
	hi := lo
	for hi < b.n && b.r[hi].from.LessEq(s.to) {
		s.from, s.to = s.from.Min(b.r[hi].from), s.to.Max(b.r[hi].to)
		b.bytes -= b.r[hi].len()
		hi++
	}
	if lo == hi {
		if b.n == maxBlocks {
			return
		}
		copy(b.r[lo+1:b.n+1], b.r[lo:b.n])
	} else {
		copy(b.r[lo+1:], b.r[hi:b.n])
	}
	b.r[lo] = s
	b.n += 1 - (hi - lo)
	b.bytes += s.len()
}

// passed forgets what lies before una.
func (e *Engine) passed(c *conn) {
	if c.board == 0 {
		return
	}
	b := e.boards.At(c.board)
	k := 0
	for k < b.n && b.r[k].from.LessEq(c.una) {
		b.bytes -= b.r[k].len()
		k++
	}
	copy(b.r[:], b.r[k:b.n])
	if b.n -= k; b.n == 0 {
		e.freeBoard(c)
	}
}

// skipBlocks moves nxt, when it goes over old ground, behind a range that the
// guest has.
func (e *Engine) skipBlocks(c *conn) {
	if c.board == 0 || c.nxt == c.max {
		return
	}
	b := e.boards.At(c.board)
	for _, r := range b.r[:b.n] {
		if r.from.LessEq(c.nxt) && c.nxt.Less(r.to) {
			c.nxt = r.to
		}
	}
}

// nextBlock is where the next range beyond nxt that the guest has begins.
func (e *Engine) nextBlock(c *conn) (wire.Seq, bool) {
	if c.board == 0 || c.nxt == c.max {
		return 0, false
	}
	return e.boards.At(c.board).above(c.nxt)
}

// above is the start of the first range behind s.
func (b *board) above(s wire.Seq) (wire.Seq, bool) {
	for _, r := range b.r[:b.n] {
		if s.Less(r.from) {
			return r.from, true
		}
	}
	return 0, false
}

// hole is the first gap from s on that lies below a range the guest has.
func (b *board) hole(s wire.Seq) (span, bool) {
	for _, r := range b.r[:b.n] {
		if s.Less(r.from) {
			return span{s, r.from}, true
		}
		s = s.Max(r.to)
	}
	return span{}, false
}
