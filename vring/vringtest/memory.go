package vringtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring/guestmem"
)

// Where guest memory starts, for the guest and for a pretended frontend.
const (
	BaseGPA = 0x1_0000_0000
	BaseUVA = 0x7f12_0000_0000
)

// Memory is guest memory in one memfd. Its regions are adjacent for the guest
// and have gaps between them everywhere else, so that nothing works that relies
// on one following the other.
type Memory struct {
	FD int

	tb      testing.TB
	regions []guestmem.Region
	host    []byte // the guest's own mapping of the file
	table   *guestmem.Table
	next    uint64 // first guest address not handed out
}

// NewMemory makes guest memory with regions of the given sizes in bytes, which
// need not be whole pages. It goes away with the test.
func NewMemory(tb testing.TB, sizes ...uint64) *Memory {
	tb.Helper()
	fd, err := unix.MemfdCreate("vringtest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		tb.Fatalf("memfd_create: %v", err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	m := &Memory{FD: fd, tb: tb, next: BaseGPA}
	page := uint64(os.Getpagesize())
	gpa, uva, off := uint64(BaseGPA), uint64(BaseUVA), page
	for _, size := range sizes {
		m.regions = append(m.regions, guestmem.Region{GPA: gpa, UVA: uva, Size: size, MmapOffset: off, FD: fd})
		gap := (size+page-1)&^(page-1) + page
		gpa, uva, off = gpa+size, uva+2*gap, off+gap
	}
	if err := unix.Ftruncate(fd, int64(off)); err != nil {
		tb.Fatalf("ftruncate: %v", err)
	}
	m.host, err = unix.Mmap(fd, 0, int(off), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		tb.Fatalf("mmap: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Munmap(m.host) })
	return m
}

// Regions returns the regions to send with SET_MEM_TABLE.
func (m *Memory) Regions() []guestmem.Region {
	return append([]guestmem.Region(nil), m.regions...)
}

// Table returns the device's view. It is mapped once and closed with the test.
func (m *Memory) Table() *guestmem.Table {
	m.tb.Helper()
	if m.table == nil {
		t, err := guestmem.Map(m.regions)
		if err != nil {
			m.tb.Fatalf("guestmem.Map: %v", err)
		}
		m.table = t
		m.tb.Cleanup(t.Close)
	}
	return m.table
}

// End returns the guest address behind the last byte.
func (m *Memory) End() uint64 {
	r := m.regions[len(m.regions)-1]
	return r.GPA + r.Size
}

// Alloc hands out n bytes inside one region, aligned to align.
func (m *Memory) Alloc(n, align uint64) (gpa uint64) {
	m.tb.Helper()
	for _, r := range m.regions {
		at := (max(m.next, r.GPA) + align - 1) &^ (align - 1)
		if at >= r.GPA && at+n <= r.GPA+r.Size {
			m.next = at + n
			return at
		}
	}
	m.tb.Fatalf("vringtest: no room for %d bytes in guest memory", n)
	return 0
}

// AllocAcross hands out n bytes that may lie across regions.
func (m *Memory) AllocAcross(n uint64) (gpa uint64) {
	m.tb.Helper()
	gpa = m.next
	if m.next += n; m.next > m.End() {
		m.tb.Fatalf("vringtest: no room for %d bytes in guest memory", n)
	}
	return gpa
}

// Bytes returns the guest's view of n bytes inside one region.
func (m *Memory) Bytes(gpa, n uint64) []byte {
	b := m.prefix(gpa, n)
	if uint64(len(b)) != n {
		m.tb.Helper()
		m.tb.Fatalf("vringtest: %d bytes at %#x are not in one region", n, gpa)
	}
	return b
}

// prefix returns as many of the n bytes at gpa as its region holds.
func (m *Memory) prefix(gpa, n uint64) []byte {
	for i := range m.regions {
		r := &m.regions[i]
		if off := gpa - r.GPA; gpa >= r.GPA && off < r.Size {
			at := r.MmapOffset + off
			n = min(n, r.Size-off)
			return m.host[at : at+n : at+n]
		}
	}
	return nil
}

// Write copies b to guest memory, across regions.
func (m *Memory) Write(gpa uint64, b []byte) {
	for len(b) > 0 {
		n := copy(m.prefix(gpa, uint64(len(b))), b)
		if n == 0 {
			m.tb.Helper()
			m.tb.Fatalf("vringtest: %#x is not guest memory", gpa)
		}
		b, gpa = b[n:], gpa+uint64(n)
	}
}

// Read copies n bytes out of guest memory, across regions.
func (m *Memory) Read(gpa, n uint64) []byte {
	b := make([]byte, 0, n)
	for uint64(len(b)) < n {
		p := m.prefix(gpa+uint64(len(b)), n-uint64(len(b)))
		if p == nil {
			m.tb.Helper()
			m.tb.Fatalf("vringtest: %d bytes at %#x are not guest memory", n, gpa)
		}
		b = append(b, p...)
	}
	return b
}

// UVA returns the frontend's address of gpa, as SET_VRING_ADDR wants it.
func (m *Memory) UVA(gpa uint64) uint64 {
	m.tb.Helper()
	for _, r := range m.regions {
		if gpa >= r.GPA && gpa-r.GPA < r.Size {
			return r.UVA + gpa - r.GPA
		}
	}
	m.tb.Fatalf("vringtest: %#x is not guest memory", gpa)
	return 0
}
