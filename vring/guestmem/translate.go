package guestmem

// find returns the region that contains gpa, nil if none does.
func (t *Table) find(gpa uint64) *region {
	if t == nil {
		return nil
	}
	lo, hi := 0, len(t.regions)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		r := &t.regions[mid]
		switch {
		case gpa < r.GPA:
			hi = mid
		case gpa-r.GPA < r.Size:
			return r
		default:
			lo = mid + 1
		}
	}
	return nil
}

// Slice returns the n bytes at guest address gpa when they lie inside one
// region, nil if they do not.
func (t *Table) Slice(gpa, n uint64) []byte {
	r := t.find(gpa)
	if r == nil {
		return nil
	}
	off := gpa - r.GPA
	if n > r.Size-off {
		return nil
	}
	return r.mem[off : off+n : off+n]
}

// Append appends the n bytes at gpa to segs, in as many pieces as there are
// regions that hold them: regions may be adjacent for the guest and far apart
// here. When any byte lies outside memory it reports false and segs comes back
// as it was.
func (t *Table) Append(segs [][]byte, gpa, n uint64) ([][]byte, bool) {
	out := segs
	for n > 0 {
		r := t.find(gpa)
		if r == nil {
			return segs, false
		}
		off := gpa - r.GPA
		k := min(n, r.Size-off)
		out = append(out, r.mem[off:off+k:off+k])
		gpa += k // cannot wrap: no region ends beyond 2^64-1
		n -= k
	}
	return out, true
}

// UserSlice returns the n bytes at the frontend's address uva when they lie
// inside one region, nil if they do not. Rings are addressed this way
// (SET_VRING_ADDR).
func (t *Table) UserSlice(uva, n uint64) []byte {
	if t == nil {
		return nil
	}
	for i := range t.regions {
		r := &t.regions[i]
		if off := uva - r.UVA; uva >= r.UVA && off < r.Size && n <= r.Size-off {
			return r.mem[off : off+n : off+n]
		}
	}
	return nil
}
