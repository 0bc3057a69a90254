package guestmem

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const top = ^uint64(0)

// The rows M9 to M12 of the hostile catalogue that concern a table as sent.
func TestMapRefuses(t *testing.T) {
	fd := memfd(t, "refuse", 16*page)
	ro, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ro)
	dir, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	zero, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(zero)
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sock)
	wo, err := unix.Open(filepath.Join(t.TempDir(), "w"), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wo)
	if err := unix.Ftruncate(wo, page); err != nil {
		t.Fatal(err)
	}
	many := make([]Region, MaxRegions+1)
	for i := range many {
		many[i] = Region{GPA: uint64(i) * page, UVA: uint64(i) * page, Size: page, FD: fd}
	}

	for _, c := range []struct {
		name, want string
		regions    []Region
	}{
		{"no regions", "empty", nil},
		{"too many regions", "at most 509", many},
		{"empty region", "is empty", []Region{{FD: fd}}},
		{"guest address wraps", "guest address", []Region{{GPA: top - page + 2, Size: page, FD: fd}}},
		{"guest address ends at 2^64", "guest address", []Region{{GPA: top - page + 1, Size: page, FD: fd}}},
		{"user address wraps", "user address", []Region{{UVA: top, Size: page, FD: fd}}},
		{"offset wraps", "exceed any file", []Region{{MmapOffset: top - 1, Size: page, FD: fd}}},
		{"offset beyond files", "exceed any file", []Region{{MmapOffset: 1 << 63, Size: page, FD: fd}}},
		{"size of 2^63", "exceed any file", []Region{{Size: 1 << 63, FD: fd}}},
		{"one byte beyond the file", "the region ends at", []Region{{MmapOffset: 15 * page, Size: page + 1, FD: fd}}},
		{"guest overlap by one byte", "guest addresses", []Region{{GPA: 0x1000, Size: page, FD: fd}, {GPA: 0x1fff, UVA: 1 << 32, Size: page, FD: fd}}},
		{"guest overlap, later one first", "guest addresses", []Region{{GPA: 0x1800, Size: page, FD: fd}, {GPA: 0x1000, UVA: 1 << 32, Size: page, FD: fd}}},
		{"same guest address", "guest addresses", []Region{{Size: page, FD: fd}, {UVA: 1 << 32, Size: page, FD: fd}}},
		{"user overlap", "user addresses", []Region{{Size: 2 * page, FD: fd}, {GPA: 1 << 32, UVA: page, Size: page, FD: fd}}},
		{"read only", "not open for reading and writing", []Region{{Size: page, FD: ro}}},
		{"write only", "not open for reading and writing", []Region{{Size: page, FD: wo}}},
		{"directory", "not a regular", []Region{{Size: page, FD: dir}}},
		{"device", "not a regular", []Region{{Size: page, FD: zero}}},
		{"socket", "not a regular", []Region{{Size: page, FD: sock}}},
		{"no descriptor", "fstat", []Region{{Size: page, FD: -1}}},
		{"good one before a bad one", "fstat", []Region{{Size: page, FD: fd}, {GPA: 1 << 32, UVA: 1 << 32, Size: page, FD: -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab, err := Map(c.regions)
			if err == nil {
				tab.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if n := mappings(t, "refuse"); n != 0 {
				t.Errorf("%d mappings left behind", n)
			}
		})
	}
}

func TestMapOffsets(t *testing.T) {
	fd := memfd(t, "offsets", 0xc4f000+0x1_0000)
	for _, c := range []struct{ offset, size uint64 }{
		{0, page},
		{page, page},
		{0xc4f000, 0x1_0000}, // UML
		{0x801, 0x1001},      // odd on both ends
		{0xc4f000 + 0xffff, 1},
	} {
		tab, err := Map([]Region{{GPA: 0x4000_0000, UVA: 1 << 40, Size: c.size, MmapOffset: c.offset, FD: fd}})
		if err != nil {
			t.Fatalf("offset %#x size %#x: %v", c.offset, c.size, err)
		}
		mem := tab.Slice(0x4000_0000, c.size)
		if uint64(len(mem)) != c.size || cap(mem) != len(mem) {
			t.Fatalf("offset %#x: %d bytes, capacity %d", c.offset, len(mem), cap(mem))
		}
		want := []byte{0x5a}
		if _, err := unix.Pwrite(fd, want, int64(c.offset)); err != nil {
			t.Fatal(err)
		}
		if mem[0] != 0x5a {
			t.Errorf("offset %#x: first byte is not the file's", c.offset)
		}
		mem[c.size-1] = 0xa5
		got := []byte{0}
		if _, err := unix.Pread(fd, got, int64(c.offset+c.size-1)); err != nil || got[0] != 0xa5 {
			t.Errorf("offset %#x: last byte did not reach the file", c.offset)
		}
		tab.Close()
	}
	if n := mappings(t, "offsets"); n != 0 {
		t.Errorf("%d mappings left", n)
	}
}

func TestMapSealsAgainstShrinking(t *testing.T) {
	fd := memfd(t, "seal", 4*page)
	tab, err := Map([]Region{{Size: 4 * page, FD: fd}})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	if err := unix.Ftruncate(fd, page); err != unix.EPERM {
		t.Errorf("shrinking the file gave %v, want EPERM", err)
	}
}

// A file that takes no seals faults after a truncation; with the guard that the
// event loop sets the fault is a panic that can be recovered.
func TestTruncatedFileFaults(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(2 * page); err != nil {
		t.Fatal(err)
	}
	tab, err := Map([]Region{{Size: 2 * page, FD: int(f.Fd())}})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	mem := tab.Slice(page, 1)
	mem[0] = 1
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("no fault behind the end of the file")
		}
	}()
	// The call keeps the compiler, which does not expect the store to fault, from
	// moving it before the defer.
	if err := f.Truncate(page); err != nil {
		t.Fatal(err)
	}
	mem[0] = 2
}

func TestAddRemoveShareMappings(t *testing.T) {
	fd := memfd(t, "share", 8*page)
	a := Region{GPA: 0x1000, UVA: 0x10_0000, Size: page, FD: fd}
	b := Region{GPA: 0x2000, UVA: 0x20_0000, Size: page, MmapOffset: 2 * page, FD: fd}

	one, err := (*Table)(nil).Add(a)
	if err != nil {
		t.Fatal(err)
	}
	two, err := one.Add(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Add(b); err == nil {
		t.Error("a region was added twice")
	}
	if _, err := two.Remove(Region{GPA: a.GPA, UVA: a.UVA, Size: 2 * page}); err == nil {
		t.Error("a region of another size was removed")
	}
	mem := one.Slice(0x1000, 8)
	one.Close()
	one.Close()
	mem[0] = 7 // still mapped: two has it
	if two.Slice(0x1000, 1)[0] != 7 {
		t.Error("the tables do not share the bytes")
	}
	// The frontend may repeat the region with another offset or none.
	three, err := two.Remove(Region{GPA: a.GPA, UVA: a.UVA, Size: a.Size, MmapOffset: 99, FD: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n := mappings(t, "share"); n != 2 {
		t.Errorf("%d mappings while the old table lives, want 2", n)
	}
	two.Close()
	if n := mappings(t, "share"); n != 1 {
		t.Errorf("%d mappings after the old table went, want 1", n)
	}
	if three.Slice(0x1000, 1) != nil || three.Slice(0x2000, 1) == nil {
		t.Error("the wrong region was removed")
	}
	four, err := three.Remove(b)
	if err != nil {
		t.Fatal(err)
	}
	three.Close()
	if four.Slice(0x2000, 1) != nil || len(four.Regions()) != 0 {
		t.Error("the empty table is not empty")
	}
	four.Close()
	if n := mappings(t, "share"); n != 0 {
		t.Errorf("%d mappings left", n)
	}
}

func TestAddStopsAtMaxRegions(t *testing.T) {
	fd := memfd(t, "max", page)
	regions := make([]Region, MaxRegions)
	for i := range regions {
		regions[i] = Region{GPA: uint64(i) * page, UVA: uint64(i) * page, Size: page, FD: fd}
	}
	tab, err := Map(regions)
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	if _, err := tab.Add(Region{GPA: 1 << 40, UVA: 1 << 40, Size: page, FD: fd}); err == nil {
		t.Errorf("region %d was accepted", MaxRegions+1)
	}
	for i := range regions {
		if tab.Slice(uint64(i)*page, page) == nil {
			t.Fatalf("region %d is not found", i)
		}
	}
}

// M15: tables that come and go leave nothing behind.
func TestTablesDoNotLeak(t *testing.T) {
	fd := memfd(t, "churn", 8*page)
	before := descriptors(t)
	for i := range 300 {
		tab, err := Map([]Region{
			{GPA: 0, UVA: 0, Size: 4 * page, FD: fd},
			{GPA: 1 << 32, UVA: 1 << 32, Size: 4 * page, MmapOffset: 4 * page, FD: fd},
		})
		if err != nil {
			t.Fatal(err)
		}
		more, err := tab.Add(Region{GPA: 1 << 33, UVA: 1 << 33, Size: page, FD: fd})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			tab, more = more, tab
		}
		tab.Close()
		more.Close()
	}
	if n := mappings(t, "churn"); n != 0 {
		t.Errorf("%d mappings left", n)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// Huge pages must be mapped and unmapped on their own boundaries, wherever the
// region lies. Nothing is touched, so that no huge page need be free.
func TestMapHugePages(t *testing.T) {
	fd, err := unix.MemfdCreate("hugemap", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil {
		t.Skipf("no huge pages here: %v", err)
	}
	defer unix.Close(fd)
	const huge = 2 << 20
	if err := unix.Ftruncate(fd, 4*huge); err != nil {
		t.Skipf("no huge pages here: %v", err)
	}
	for _, c := range []struct{ offset, size uint64 }{{0, huge}, {huge, 3 * huge}, {huge + page, page}, {huge - page, 2 * page}} {
		tab, err := Map([]Region{{Size: c.size, MmapOffset: c.offset, FD: fd}})
		if err != nil {
			t.Fatalf("offset %#x size %#x: %v", c.offset, c.size, err)
		}
		if len(tab.Slice(0, c.size)) != int(c.size) || mappings(t, "hugemap") == 0 {
			t.Errorf("offset %#x size %#x: not mapped", c.offset, c.size)
		}
		tab.Close()
		if mappings(t, "hugemap") != 0 {
			t.Fatalf("offset %#x size %#x: not unmapped", c.offset, c.size)
		}
	}
}
