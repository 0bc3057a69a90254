package guestmem

// Cursor translates guest addresses through a Table and remembers the region it
// met last: buffers of one queue nearly always lie in the same one, so that a
// translation is two comparisons. It belongs to one queue and must be replaced
// when the table is.
type Cursor struct {
	base  uint64 // guest address of mem[0]
	mem   []byte // the region met last
	table *Table
}

// NewCursor returns a Cursor over t.
func NewCursor(t *Table) Cursor { return Cursor{table: t} }

// Table returns what the cursor translates through.
func (c *Cursor) Table() *Table { return c.table }

// Slice is Table.Slice.
func (c *Cursor) Slice(gpa, n uint64) []byte {
	off := gpa - c.base
	if off < uint64(len(c.mem)) && n <= uint64(len(c.mem))-off {
		return c.mem[off : off+n : off+n]
	}
	return c.miss(gpa, n)
}

func (c *Cursor) miss(gpa, n uint64) []byte {
	if !c.seek(gpa) {
		return nil
	}
	off := gpa - c.base
	if n > uint64(len(c.mem))-off {
		return nil
	}
	return c.mem[off : off+n : off+n]
}

// seek moves the cursor to the region that contains gpa.
func (c *Cursor) seek(gpa uint64) bool {
	r := c.table.find(gpa)
	if r == nil {
		return false
	}
	c.base, c.mem = r.GPA, r.mem
	return true
}

// Prefix returns as many of the n bytes at gpa as the region there holds, nil
// when gpa lies outside memory. A caller walks a buffer that spans regions with
// it, piece by piece.
func (c *Cursor) Prefix(gpa, n uint64) []byte {
	if off := gpa - c.base; off >= uint64(len(c.mem)) && !c.seek(gpa) {
		return nil
	}
	off := gpa - c.base
	k := min(n, uint64(len(c.mem))-off)
	return c.mem[off : off+k : off+k]
}
