package guestmem

import (
	"fmt"
	"math"
	"sort"
)

// MaxRegions is the most regions a Table holds, and the number of memory slots
// that a backend may advertise (GET_MAX_MEM_SLOTS). It is what libvhost-user and
// rust-vmm use; the number must never shrink between two connections.
const MaxRegions = 509

// Region describes one stretch of guest memory as SET_MEM_TABLE and
// ADD_MEM_REG carry it.
type Region struct {
	GPA        uint64 // guest physical address
	UVA        uint64 // the frontend's own address of the same bytes
	Size       uint64 // bytes
	MmapOffset uint64 // where the region starts in the file
	FD         int    // the file; stays the caller's
}

// same reports whether REM_MEM_REG's r names the region o. The frontend repeats
// the addresses and the size; the offset and a stray descriptor do not count
// (vhost-user, "VHOST_USER_REM_MEM_REG").
func (r Region) same(o Region) bool {
	return r.GPA == o.GPA && r.UVA == o.UVA && r.Size == o.Size
}

// check validates r by itself. All sums are 64 bits wide and must not wrap; an
// end of exactly 2^64 is refused too, so that every end can be written down.
func (r Region) check() error {
	switch {
	case r.Size == 0:
		return fmt.Errorf("region at guest address %#x is empty", r.GPA)
	case r.GPA+r.Size < r.GPA:
		return fmt.Errorf("region at guest address %#x: size %#x runs over the end of the address space", r.GPA, r.Size)
	case r.UVA+r.Size < r.UVA:
		return fmt.Errorf("region at user address %#x: size %#x runs over the end of the address space", r.UVA, r.Size)
	case r.MmapOffset+r.Size < r.Size || r.MmapOffset+r.Size > math.MaxInt64:
		return fmt.Errorf("region at guest address %#x: offset %#x and size %#x exceed any file", r.GPA, r.MmapOffset, r.Size)
	}
	return nil
}

// checkOverlap validates regions against each other, in guest and in user space.
// An address must mean one thing.
func checkOverlap(regions []Region) error {
	byGPA := make([]Region, len(regions))
	copy(byGPA, regions)
	sort.Slice(byGPA, func(i, j int) bool { return byGPA[i].GPA < byGPA[j].GPA })
	for i := 1; i < len(byGPA); i++ {
		if a, b := byGPA[i-1], byGPA[i]; b.GPA-a.GPA < a.Size {
			return fmt.Errorf("regions at guest addresses %#x and %#x overlap", a.GPA, b.GPA)
		}
	}
	byUVA := byGPA
	sort.Slice(byUVA, func(i, j int) bool { return byUVA[i].UVA < byUVA[j].UVA })
	for i := 1; i < len(byUVA); i++ {
		if a, b := byUVA[i-1], byUVA[i]; b.UVA-a.UVA < a.Size {
			return fmt.Errorf("regions at user addresses %#x and %#x overlap", a.UVA, b.UVA)
		}
	}
	return nil
}
