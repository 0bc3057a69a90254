package guestmem

import "testing"

// layout is three regions: the first two adjacent for the guest, the third with
// a hole before it. Each byte of the file tells its own guest address.
func layout(t testing.TB) (*Table, []Region) {
	fd := memfd(t, "layout", 16*page)
	regions := []Region{
		{GPA: 0x9000, UVA: 0x7000_3000, Size: 0x1000, MmapOffset: 0x5000, FD: fd},
		{GPA: 0x4000, UVA: 0x7000_0000, Size: 0x1801, MmapOffset: 0, FD: fd},
		{GPA: 0x5801, UVA: 0x7000_9000, Size: 0x0fff, MmapOffset: 0x3000, FD: fd},
	}
	tab, err := Map(regions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.Close)
	for _, r := range regions {
		mem := tab.Slice(r.GPA, r.Size)
		for i := range mem {
			mem[i] = tell(r.GPA + uint64(i))
		}
	}
	return tab, regions
}

func tell(gpa uint64) byte { return byte(gpa ^ gpa>>8*31) }

// inside is the plain truth about n bytes at gpa: are they all memory, and in
// how many regions.
func inside(regions []Region, gpa, n uint64) (ok bool, pieces int) {
	last := -1
	for i := range n {
		at, in := gpa+i, -1
		for k, r := range regions {
			if at >= r.GPA && at < r.GPA+r.Size && at >= gpa {
				in = k
			}
		}
		if in < 0 {
			return false, 0
		}
		if in != last {
			pieces, last = pieces+1, in
		}
	}
	return true, pieces
}

func checkTranslation(t *testing.T, tab *Table, c *Cursor, regions []Region, gpa, n uint64) {
	t.Helper()
	ok, pieces := inside(regions, gpa, n)
	segs, got := tab.Append(nil, gpa, n)
	if got != ok && n > 0 {
		t.Fatalf("Append(%#x, %#x) = %v, want %v", gpa, n, got, ok)
	}
	if got && len(segs) != pieces {
		t.Fatalf("Append(%#x, %#x) gave %d pieces, want %d", gpa, n, len(segs), pieces)
	}
	at := gpa
	for _, s := range segs {
		if len(s) == 0 || cap(s) != len(s) {
			t.Fatalf("Append(%#x, %#x): piece of %d bytes, capacity %d", gpa, n, len(s), cap(s))
		}
		if back, ok := tab.GPA(s); !ok || back != at {
			t.Fatalf("GPA of the piece at %#x is %#x, %v", at, back, ok)
		}
		for _, b := range s {
			if b != tell(at) {
				t.Fatalf("Append(%#x, %#x): wrong byte at %#x", gpa, n, at)
			}
			at++
		}
	}
	if n == 0 {
		return
	}
	want := ok && pieces == 1
	for _, s := range [][]byte{tab.Slice(gpa, n), c.Slice(gpa, n)} {
		if (s != nil) != want {
			t.Fatalf("Slice(%#x, %#x): %v, want %v", gpa, n, s != nil, want)
		}
		if want && (uint64(len(s)) != n || s[0] != tell(gpa) || s[n-1] != tell(gpa+n-1)) {
			t.Fatalf("Slice(%#x, %#x) gave the wrong bytes", gpa, n)
		}
	}
	first, _ := inside(regions, gpa, 1)
	p := c.Prefix(gpa, n)
	if (p != nil) != first || first && (len(p) == 0 || uint64(len(p)) > n || p[0] != tell(gpa)) {
		t.Fatalf("Prefix(%#x, %#x) gave %d bytes, first byte inside: %v", gpa, n, len(p), first)
	}
}

func TestTranslate(t *testing.T) {
	tab, regions := layout(t)
	c := NewCursor(tab)
	edges := []uint64{0, 1, 0x3fff, 0x4000, 0x4001, 0x5800, 0x5801, 0x5802, 0x67ff, 0x6800, 0x8fff, 0x9000, 0x9fff, 0xa000, 1 << 63, top - 1, top}
	lengths := []uint64{0, 1, 2, 0xfff, 0x1000, 0x1001, 0x1801, 0x1802, 0x2800, 0x2801, 0x6000}
	for _, gpa := range edges {
		for _, n := range lengths {
			checkTranslation(t, tab, &c, regions, gpa, n)
		}
		for _, n := range []uint64{1 << 32, 1 << 63, top - 0x4000, top} {
			if tab.Slice(gpa, n) != nil || c.Slice(gpa, n) != nil {
				t.Errorf("Slice(%#x, %#x) is not nil", gpa, n)
			}
			if segs, ok := tab.Append(nil, gpa, n); ok || segs != nil {
				t.Errorf("Append(%#x, %#x) succeeded", gpa, n)
			}
		}
	}
}

func TestAppendKeepsSegmentsOnFailure(t *testing.T) {
	tab, _ := layout(t)
	segs := make([][]byte, 1, 8)
	out, ok := tab.Append(segs, 0x5000, 0x4000) // runs out of the second region into the hole
	if ok || len(out) != 1 {
		t.Errorf("got %v and %d segments", ok, len(out))
	}
}

func TestUserSlice(t *testing.T) {
	tab, _ := layout(t)
	for _, c := range []struct {
		uva, n uint64
		gpa    uint64 // 0: outside
	}{
		{0x7000_0000, 0x1801, 0x4000},
		{0x7000_0000, 0x1802, 0},
		{0x7000_1800, 1, 0x5800},
		{0x7000_1801, 1, 0},
		{0x7000_3fff, 1, 0x9fff},
		{0x7000_9000, 0xfff, 0x5801},
		{0x6fff_ffff, 2, 0},
		{0x7000_3001, top, 0},
		{top, 2, 0},
		{0, 0, 0},
	} {
		s := tab.UserSlice(c.uva, c.n)
		if (s != nil) != (c.gpa != 0) {
			t.Errorf("UserSlice(%#x, %#x) is %d bytes", c.uva, c.n, len(s))
			continue
		}
		if s != nil && &s[0] != &tab.Slice(c.gpa, c.n)[0] {
			t.Errorf("UserSlice(%#x, %#x) is not the memory at %#x", c.uva, c.n, c.gpa)
		}
	}
}

func TestNilTable(t *testing.T) {
	var tab *Table
	c := NewCursor(nil)
	if tab.Slice(0, 0) != nil || tab.UserSlice(0, 0) != nil || c.Slice(0, 1) != nil || c.Prefix(0, 1) != nil {
		t.Error("a nil table has memory")
	}
	if _, ok := tab.Append(nil, 0, 1); ok {
		t.Error("a nil table has memory")
	}
	if _, err := tab.Remove(Region{Size: 1}); err == nil {
		t.Error("a nil table has regions")
	}
	tab.Close()
}

func TestFromBytes(t *testing.T) {
	mem := make([]byte, 100)
	tab := FromBytes(0x1000, 0x2000, mem)
	defer tab.Close()
	if s := tab.Slice(0x1010, 4); len(s) != 4 || &s[0] != &mem[0x10] {
		t.Error("Slice is not the memory given")
	}
	if s := tab.UserSlice(0x2063, 1); len(s) != 1 || &s[0] != &mem[0x63] {
		t.Error("UserSlice is not the memory given")
	}
	if FromBytes(0, 0, nil).Slice(0, 1) != nil {
		t.Error("empty memory has a byte")
	}
}

func FuzzTranslate(f *testing.F) {
	tab, regions := layout(f)
	f.Add(uint64(0x4000), uint64(0x2000))
	f.Add(uint64(0x5800), uint64(2))
	f.Add(top, uint64(2))
	f.Fuzz(func(t *testing.T, gpa, n uint64) {
		c := NewCursor(tab)
		c.Slice(0x9000, 1)
		checkTranslation(t, tab, &c, regions, gpa%0xc000, n%0x8000)
		if gpa > 0xc000 && (tab.Slice(gpa, n) != nil || c.Slice(gpa, n) != nil) {
			t.Fatalf("memory at %#x", gpa)
		}
	})
}

func TestTranslateDoesNotAllocate(t *testing.T) {
	tab, _ := layout(t)
	c := NewCursor(tab)
	segs := make([][]byte, 0, 4)
	if n := testing.AllocsPerRun(100, func() {
		c.Slice(0x4000, 64)
		c.Slice(0x9000, 64)
		c.Prefix(0x5800, 64)
		segs, _ = tab.Append(segs[:0], 0x5800, 64)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCursor(b *testing.B) {
	tab, _ := layout(b)
	c := NewCursor(tab)
	for i := range b.N {
		if c.Slice(0x4000+uint64(i&0xfff), 64) == nil {
			b.Fatal("nil")
		}
	}
}
