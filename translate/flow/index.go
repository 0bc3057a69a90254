package flow

// index is an open-addressing hash index with linear probing. A cell is
// hash<<32 | entry, 0 when empty (entry 0 is never used). Deletion shifts the
// followers back, so there are no tombstones and probing never degrades. Keeping
// 32 bits of the hash in the cell means that a probe touches an entry only when
// it is almost surely the right one, and that growing needs no keys.
type index struct {
	cells []uint64 // power of two long
	used  int
}

const minCells = 64

// insert adds entry under h. The caller knows that it is not there.
func (x *index) insert(h, entry uint32) {
	if (x.used+1)*4 > len(x.cells)*3 {
		x.grow()
	}
	x.place(uint64(h)<<32 | uint64(entry))
	x.used++
}

func (x *index) place(cell uint64) {
	mask := uint32(len(x.cells) - 1)
	p := uint32(cell>>32) & mask
	for x.cells[p] != 0 {
		p = (p + 1) & mask
	}
	x.cells[p] = cell
}

func (x *index) grow() {
	old := x.cells
	x.cells = make([]uint64, max(minCells, 2*len(old)))
	for _, c := range old {
		if c != 0 {
			x.place(c)
		}
	}
}

// remove takes entry, inserted under h, out.
func (x *index) remove(h, entry uint32) {
	mask := uint32(len(x.cells) - 1)
	want := uint64(h)<<32 | uint64(entry)
	hole := h & mask
	for x.cells[hole] != want {
		if x.cells[hole] == 0 {
			return
		}
		hole = (hole + 1) & mask
	}
	// Move back every follower whose home does not lie behind the hole.
	for p := (hole + 1) & mask; x.cells[p] != 0; p = (p + 1) & mask {
		home := uint32(x.cells[p]>>32) & mask
		if (p-home)&mask >= (p-hole)&mask {
			x.cells[hole] = x.cells[p]
			hole = p
		}
	}
	x.cells[hole] = 0
	x.used--
}
