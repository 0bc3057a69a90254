package guestmem

import (
	"errors"
	"fmt"
	"sort"
	"sync/atomic"
)

// region is one mapped Region.
type region struct {
	Region
	mem []byte   // exactly Size bytes
	m   *mapping // nil for memory that is not ours to unmap
}

// Table is an immutable set of mapped regions. A nil Table is an empty one.
type Table struct {
	regions []region // by ascending guest address, without overlap
	closed  atomic.Bool
}

// Map validates and maps regions. On an error nothing stays mapped. The caller
// keeps and closes the descriptors.
func Map(regions []Region) (*Table, error) {
	if len(regions) == 0 {
		return nil, errors.New("memory table is empty")
	}
	if len(regions) > MaxRegions {
		return nil, fmt.Errorf("memory table has %d regions, at most %d are possible", len(regions), MaxRegions)
	}
	for _, r := range regions {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	if err := checkOverlap(regions); err != nil {
		return nil, err
	}
	t := &Table{regions: make([]region, 0, len(regions))}
	for _, r := range regions {
		mapped, err := mapRegion(r)
		if err != nil {
			t.Close()
			return nil, err
		}
		t.regions = append(t.regions, mapped)
	}
	t.sort()
	return t, nil
}

func mapRegion(r Region) (region, error) {
	m, mem, err := mapShared(r.FD, r.MmapOffset, r.Size)
	if err != nil {
		return region{}, fmt.Errorf("region at guest address %#x: %w", r.GPA, err)
	}
	r.FD = -1
	return region{Region: r, mem: mem, m: m}, nil
}

// FromBytes returns a table with the one region mem, which stays the caller's.
// It is for tests and for arenas that the process itself lends out.
func FromBytes(gpa, uva uint64, mem []byte) *Table {
	return &Table{regions: []region{{
		Region: Region{GPA: gpa, UVA: uva, Size: uint64(len(mem)), FD: -1},
		mem:    mem,
	}}}
}

// Add returns a table with r besides the regions of t, which stays as it is.
func (t *Table) Add(r Region) (*Table, error) {
	all := append(t.Regions(), r)
	if len(all) > MaxRegions {
		return nil, fmt.Errorf("memory table is full with %d regions", MaxRegions)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := checkOverlap(all); err != nil {
		return nil, err
	}
	mapped, err := mapRegion(r)
	if err != nil {
		return nil, err
	}
	n := &Table{regions: make([]region, 0, len(all))}
	if t != nil {
		n.share(t.regions)
	}
	n.regions = append(n.regions, mapped)
	n.sort()
	return n, nil
}

// Remove returns a table without the region that r names by guest address, user
// address and size. The bytes stay mapped while another table has them.
func (t *Table) Remove(r Region) (*Table, error) {
	if t != nil {
		for i := range t.regions {
			if t.regions[i].same(r) {
				n := &Table{regions: make([]region, 0, len(t.regions)-1)}
				n.share(t.regions[:i])
				n.share(t.regions[i+1:])
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("no region at guest address %#x, user address %#x with %#x bytes", r.GPA, r.UVA, r.Size)
}

// share appends regions of another table and holds their mappings.
func (t *Table) share(regions []region) {
	for _, r := range regions {
		if r.m != nil {
			r.m.retain()
		}
		t.regions = append(t.regions, r)
	}
}

func (t *Table) sort() {
	sort.Slice(t.regions, func(i, j int) bool { return t.regions[i].GPA < t.regions[j].GPA })
}

// Regions returns what the table holds, by guest address, without descriptors.
func (t *Table) Regions() []Region {
	if t == nil {
		return nil
	}
	out := make([]Region, 0, len(t.regions)+1)
	for i := range t.regions {
		out = append(out, t.regions[i].Region)
	}
	return out
}

// Close unmaps what no other table shares. Nothing may use slices of the table
// afterwards. Closing twice is harmless.
func (t *Table) Close() {
	if t == nil || t.closed.Swap(true) {
		return
	}
	for i := range t.regions {
		if m := t.regions[i].m; m != nil {
			m.release()
		}
	}
}
