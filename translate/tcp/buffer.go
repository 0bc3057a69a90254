package tcp

import "guestwire/translate/wire"

const (
	chunkBits = 14
	chunkSize = 1 << chunkBits // bytes
	maxChunks = 1<<16 - 1
	ringLen   = 256     // chunks that one seqBuf can hold: a span of 4 MiB
	keepFree  = 8 << 20 // bytes of free chunks that are kept for the next use
)

// pool hands out chunks of memory up to a limit. Chunk 0 is none.
type pool struct {
	chunks [][]byte // by chunk number; nil: given to the garbage collector
	free   []uint16 // numbers of chunks not in use
	bare   []uint16 // numbers without memory
	used   int
	limit  int
}

func newPool(limit int) pool {
	return pool{limit: limit, chunks: make([][]byte, 1, 64), free: make([]uint16, 0, keepFree/chunkSize)}
}

func (p *pool) get() uint16 {
	if p.used >= p.limit {
		return 0
	}
	p.used++
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	if n := len(p.bare); n > 0 {
		i := p.bare[n-1]
		p.bare = p.bare[:n-1]
		p.chunks[i] = make([]byte, chunkSize)
		return i
	}
	p.chunks = append(p.chunks, make([]byte, chunkSize))
	return uint16(len(p.chunks) - 1)
}

func (p *pool) put(i uint16) {
	p.used--
	if len(p.free) < cap(p.free) {
		p.free = append(p.free, i)
		return
	}
	p.chunks[i] = nil
	p.bare = append(p.bare, i)
}

// tight says that half of the pool is in use: windows stop growing.
func (p *pool) tight() bool { return p.used*2 > p.limit }

// seqBuf holds bytes of a stream by their sequence numbers, in chunks that are
// there only where bytes are: staged and out-of-order bytes share one. What it
// holds must lie within 4 MiB less one chunk; who uses it keeps the account of
// what is there.
type seqBuf struct {
	chunk [ringLen]uint16
}

// chunksFor is how many chunks n bytes in a row touch at most.
func chunksFor(n int) int { return n>>chunkBits + 2 }

func ringIndex(s wire.Seq) int { return int(s>>chunkBits) % ringLen }

// put copies src to sequence number s and returns how much of it found room.
func (b *seqBuf) put(p *pool, s wire.Seq, src []byte) int {
	done := 0
	for done < len(src) {
		m := b.room(p, s)
		if m == nil {
			break
		}
		n := copy(m, src[done:])
		done += n
		s = s.Add(n)
	}
	return done
}

// room is the memory from s to the end of its chunk, nil when the pool is empty.
func (b *seqBuf) room(p *pool, s wire.Seq) []byte {
	i := ringIndex(s)
	if b.chunk[i] == 0 {
		if b.chunk[i] = p.get(); b.chunk[i] == 0 {
			return nil
		}
	}
	return p.chunks[b.chunk[i]][s%chunkSize:]
}

// at is the memory from s, which is there, to the end of its chunk.
func (b *seqBuf) at(p *pool, s wire.Seq) []byte {
	return p.chunks[b.chunk[ringIndex(s)]][s%chunkSize:]
}

// view appends the n bytes at s, which are there, to dst.
func (b *seqBuf) view(p *pool, dst [][]byte, s wire.Seq, n int) [][]byte {
	for n > 0 && len(dst) < cap(dst) {
		m := b.at(p, s)
		m = m[:min(len(m), n)]
		dst = append(dst, m)
		n -= len(m)
		s = s.Add(len(m))
	}
	return dst
}

// release gives back the chunks that hold only bytes of [from, to).
func (b *seqBuf) release(p *pool, from, to wire.Seq) {
	for s := from &^ (chunkSize - 1); (s + chunkSize).LessEq(to); s += chunkSize {
		if i := ringIndex(s); b.chunk[i] != 0 {
			p.put(b.chunk[i])
			b.chunk[i] = 0
		}
	}
}

// trim gives back the chunks of [from, to) in which nothing lies before from.
func (b *seqBuf) trim(p *pool, from, to wire.Seq) {
	s := (from + chunkSize - 1) &^ (chunkSize - 1)
	b.release(p, s, (to+chunkSize-1)&^(chunkSize-1))
}

// clear gives back everything.
func (b *seqBuf) clear(p *pool) {
	for i, c := range b.chunk {
		if c != 0 {
			p.put(c)
			b.chunk[i] = 0
		}
	}
}
