package vsockbridge

import "encoding/binary"

const (
	chunkSize   = 64 << 10
	spareChunks = 64 // 4 MiB that are kept when nobody needs them
)

// chunk is a piece of a stage.
type chunk struct {
	next *chunk
	data [chunkSize]byte
}

// pool has the chunks of one device. What it hands out is bounded by the credit
// that guests were given; what it keeps, by spareChunks.
type pool struct {
	spare *chunk
	kept  int
	out   int // chunks in use
}

func (p *pool) get() *chunk {
	p.out++
	if c := p.spare; c != nil {
		p.spare, c.next = c.next, nil
		p.kept--
		return c
	}
	return new(chunk)
}

func (p *pool) put(c *chunk) {
	p.out--
	if p.kept < spareChunks {
		c.next, p.spare = p.spare, c
		p.kept++
	}
}

// stage is a queue of bytes. The zero value is empty and holds no memory.
//
// With messages, each is preceded by its length in four bytes, which do not span
// chunks.
type stage struct {
	head, tail *chunk
	first      int // of the bytes in head
	last       int // behind the bytes in tail
	bytes      int // waiting, without the lengths and the message that is being made

	length *[4]byte // of the message that is being made, nil: none
	making int      // its bytes
}

const lengthSize = 4

// empty says whether nothing waits and nothing is being made.
func (s *stage) empty() bool { return s.head == nil }

// restore takes back what was appended since the stage was as was.
func (s *stage) restore(p *pool, was stage) {
	end := &s.head
	if was.tail != nil {
		end = &was.tail.next
	}
	fresh := *end
	*end = nil
	for fresh != nil {
		c := fresh
		fresh, c.next = c.next, nil
		p.put(c)
	}
	*s = was
}

// room returns where to write next, at least least bytes.
func (s *stage) room(p *pool, least int) []byte {
	if s.tail == nil || chunkSize-s.last < least {
		c := p.get()
		if s.tail == nil {
			s.head, s.first = c, 0
		} else {
			s.tail.next = c
		}
		s.tail, s.last = c, 0
	}
	return s.tail.data[s.last:]
}

func (s *stage) write(p *pool, b []byte) {
	for len(b) > 0 {
		n := copy(s.room(p, 1), b)
		s.last += n
		b = b[n:]
	}
}

// append adds bytes to a stream.
func (s *stage) append(p *pool, b []byte) {
	s.write(p, b)
	s.bytes += len(b)
}

// reserve appends n bytes, for a system call to fill through v.
func (s *stage) reserve(p *pool, v *vector, n int) {
	s.bytes += n
	for n > 0 {
		b := s.room(p, 1)
		b = b[:min(n, len(b))]
		v.add(b)
		s.last += len(b)
		n -= len(b)
	}
}

// extend adds bytes to the message that is being made, beginning one if none is.
func (s *stage) extend(p *pool, b []byte) {
	if s.length == nil {
		s.length, s.making = (*[lengthSize]byte)(s.room(p, lengthSize)), 0
		s.last += lengthSize
	}
	s.write(p, b)
	s.making += len(b)
}

// finish ends the message that is being made.
func (s *stage) finish() {
	binary.NativeEndian.PutUint32(s.length[:], uint32(s.making))
	s.bytes += lengthSize + s.making
	s.length, s.making = nil, 0
}

// message returns the length of the message at the front; its bytes are
// lengthSize behind the front. There must be one.
func (s *stage) message(p *pool) int {
	if chunkSize-s.first < lengthSize {
		s.drop(p)
	}
	return int(binary.NativeEndian.Uint32(s.head.data[s.first:]))
}

// gather puts the first n bytes behind skip into v, as many as it takes, and
// returns how many those are.
func (s *stage) gather(v *vector, skip, n int) int {
	got := 0
	for c, at := s.head, s.first+skip; c != nil && got < n; c, at = c.next, max(at-chunkSize, 0) {
		end := chunkSize
		if c == s.tail {
			end = s.last
		}
		if at >= end {
			continue
		}
		b := c.data[at:min(end, at+n-got)]
		if !v.add(b) {
			break
		}
		got += len(b)
	}
	return got
}

// consume drops n bytes from the front.
func (s *stage) consume(p *pool, n int) {
	s.bytes -= n
	for n > 0 {
		k := min(n, chunkSize-s.first)
		s.first += k
		n -= k
		if s.first == chunkSize {
			s.drop(p)
		}
	}
	if s.head != nil && s.head == s.tail && s.first == s.last {
		s.drop(p)
	}
}

// drop gives the first chunk back.
func (s *stage) drop(p *pool) {
	c := s.head
	s.head, s.first = c.next, 0
	if s.head == nil {
		s.tail, s.last = nil, 0
	}
	c.next = nil
	p.put(c)
}

// clear drops everything.
func (s *stage) clear(p *pool) {
	for s.head != nil {
		s.drop(p)
	}
	*s = stage{}
}

// read moves the first len(b) bytes, which must be there, to b.
func (s *stage) read(p *pool, b []byte) {
	for len(b) > 0 {
		end := chunkSize
		if s.head == s.tail {
			end = s.last
		}
		n := copy(b, s.head.data[s.first:end])
		b = b[n:]
		s.consume(p, n)
	}
}
