package vring

// Bounds of the arena that holds the segments of chains in flight, in slots of
// one slice (24 bytes).
const (
	arenaPerEntry = 32    // slots per ring entry,
	arenaMin      = 4096  // but at least: the longest indirect chain and its cuts
	arenaMax      = 65536 // but at most: 1.5 MiB per queue
)

// mark is what a queue keeps of a chain from Pop until Publish.
type mark struct {
	start    uint32 // first slot of its segments
	written  uint32 // bytes, set by Push
	head     uint16
	writable bool // it has device-writable bytes
}

// flight is the queue of chains in flight, oldest first, and the arena of their
// segments.
//
// Chains leave in the order they came, so the arena is a ring: each chain takes
// one contiguous run of at least one slot, a run that does not fit behind the
// last one moves to the front, and what lies between the newest and the oldest
// chain is free. When all is taken the arena doubles up to its bound. The chains
// in the outgrown array keep it alive by their own slices; only new ones go to
// the new array. In steady state nothing is allocated.
type flight struct {
	slots [][]byte
	start int // first slot of the chain being built
	head  int // slot behind the last segment
	limit int // the free run ends here

	marks    []mark // by position in the queue of chains, modulo the ring size
	mask     uint16
	first    uint16 // position of the oldest chain
	count    int    // chains in flight
	outgrown int    // how many of the oldest have their segments elsewhere
	max      int    // bound on len(slots)
}

func newFlight(size uint16) flight {
	n := int(size)
	slots := max(2*n, 64)
	return flight{
		slots: make([][]byte, slots),
		limit: slots,
		marks: make([]mark, n),
		mask:  size - 1,
		max:   min(max(arenaPerEntry*n, arenaMin), arenaMax),
	}
}

// begin starts a chain behind the newest one.
func (f *flight) begin() { f.start = f.head }

// add appends a segment to the chain being built. It reports false when the
// arena has reached its bound.
func (f *flight) add(seg []byte) bool {
	if f.head == f.limit && !f.room() {
		return false
	}
	f.slots[f.head] = seg
	f.head++
	return true
}

// room makes a free slot behind the chain being built, moving what there is of
// it to the front or to a larger array.
func (f *flight) room() bool {
	n := f.head - f.start
	if f.limit == len(f.slots) && f.count > f.outgrown {
		if oldest := f.oldest(); n < oldest {
			copy(f.slots, f.slots[f.start:f.head])
			f.start, f.head, f.limit = 0, n, oldest
			return true
		}
	}
	if len(f.slots) == f.max {
		return false
	}
	larger := make([][]byte, min(2*len(f.slots), f.max))
	copy(larger, f.slots[f.start:f.head])
	f.slots, f.outgrown = larger, f.count
	f.start, f.head, f.limit = 0, n, len(larger)
	return true
}

// oldest returns where the oldest chain in the present array starts; there must
// be one.
func (f *flight) oldest() int { return int(f.marks[(f.first+uint16(f.outgrown))&f.mask].start) }

// abort forgets the chain being built.
func (f *flight) abort() { f.head = f.start }

// commit makes the chain being built the newest in flight. It has at least one
// slot, so that no two chains start at the same place.
func (f *flight) commit(head uint16, writable bool) {
	f.marks[(f.first+uint16(f.count))&f.mask] = mark{start: uint32(f.start), head: head, writable: writable}
	f.count++
}

// drop takes the newest n chains, at least one, out of flight.
func (f *flight) drop(n int) {
	f.count -= n
	f.head = int(f.marks[(f.first+uint16(f.count))&f.mask].start)
	f.outgrown = min(f.outgrown, f.count)
	f.bound()
}

// release takes the oldest n chains out of flight.
func (f *flight) release(n int) {
	f.first += uint16(n)
	f.count -= n
	f.outgrown = max(f.outgrown-n, 0)
	f.bound()
}

// bound finds the end of the free run from what is still in flight.
func (f *flight) bound() {
	if f.count == f.outgrown {
		f.head, f.limit = 0, len(f.slots)
		return
	}
	// Chains fill upwards from the oldest. If the newest ends above it the rest of
	// the array is free, else the newest ones have gone round to the front.
	if f.limit = f.oldest(); f.limit < f.head {
		f.limit = len(f.slots)
	}
}

// reset takes all chains out of flight and forgets their segments, which may
// point to memory that is about to be unmapped.
func (f *flight) reset() {
	f.first += uint16(f.count)
	f.count, f.outgrown = 0, 0
	clear(f.slots)
	f.bound()
}
