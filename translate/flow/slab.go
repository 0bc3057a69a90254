package flow

const (
	chunkBits = 6
	chunkLen  = 1 << chunkBits
)

// Slab is index-addressed storage that grows in chunks of 64 and never moves
// what it holds: a *T from At stays good until Put of its index. Index 0 is
// never handed out. The zero Slab is empty, has no limit, and is ready.
type Slab[T any] struct {
	chunks []*chunk[T]
	free   []uint32 // stack of returned indices
	next   uint32   // first index never handed out, 0 before the first Get
	live   int
	max    int // entries, 0 for no limit
}

// chunk keeps the generations apart so that they survive the clearing of the
// entries. A generation is odd while its entry is taken.
type chunk[T any] struct {
	v   [chunkLen]T
	gen [chunkLen]uint32
}

// Handle names an entry for longer than a turn: its index may be reused, the
// pair is not (for 2^31 reuses).
type Handle struct{ Index, Gen uint32 }

// NewSlab returns a slab for at most max entries; 0 is no limit.
func NewSlab[T any](max int) *Slab[T] { return &Slab[T]{max: max} }

// Get takes an entry; it holds the zero T. It returns 0, nil when the slab is
// at its limit.
func (s *Slab[T]) Get() (uint32, *T) {
	if s.max > 0 && s.live >= s.max {
		return 0, nil
	}
	i := s.take()
	c := s.chunks[i>>chunkBits]
	c.gen[i%chunkLen]++
	s.live++
	return i, &c.v[i%chunkLen]
}

// take finds the index of a free entry, growing when there is none.
func (s *Slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	s.next = max(s.next, 1)
	i := s.next
	s.next++
	if int(i>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new(chunk[T]))
		// Room for every index now, so that Put does not allocate later.
		free := make([]uint32, len(s.free), len(s.chunks)*chunkLen)
		copy(free, s.free)
		s.free = free
	}
	return i
}

// Put gives entry i back and clears it. An entry that is not taken is left
// alone.
func (s *Slab[T]) Put(i uint32) {
	if !s.Taken(i) {
		return
	}
	c := s.chunks[i>>chunkBits]
	var zero T
	c.v[i%chunkLen] = zero
	c.gen[i%chunkLen]++
	s.free = append(s.free, i)
	s.live--
}

// At returns entry i, which must be taken.
func (s *Slab[T]) At(i uint32) *T { return &s.chunks[i>>chunkBits].v[i%chunkLen] }

// Taken says whether i names a taken entry.
func (s *Slab[T]) Taken(i uint32) bool {
	return int(i>>chunkBits) < len(s.chunks) && s.chunks[i>>chunkBits].gen[i%chunkLen]&1 == 1
}

// Handle returns the handle of entry i, which must be taken.
func (s *Slab[T]) Handle(i uint32) Handle {
	return Handle{i, s.chunks[i>>chunkBits].gen[i%chunkLen]}
}

// Resolve returns the entry that h was made for, nil when it has been given back.
func (s *Slab[T]) Resolve(h Handle) *T {
	if !s.Taken(h.Index) || s.Handle(h.Index) != h {
		return nil
	}
	return s.At(h.Index)
}

// Len returns how many entries are taken.
func (s *Slab[T]) Len() int { return s.live }

// All calls f for every taken entry until f returns false. f may Put the entry
// it is called for, and may Get: whether it meets the new one is left open.
func (s *Slab[T]) All(f func(i uint32, v *T) bool) {
	for i := uint32(1); i < s.next; i++ {
		if s.Taken(i) && !f(i, s.At(i)) {
			return
		}
	}
}
