package guestmem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mapping is one mmap, shared by every Table that contains the region.
type mapping struct {
	refs atomic.Int32
	raw  []byte // as mapped, the region's bytes and what alignment adds before and behind
}

func (m *mapping) retain() { m.refs.Add(1) }

func (m *mapping) release() {
	if m.refs.Add(-1) == 0 {
		_ = unix.Munmap(m.raw) // fails only for a range that is not mapped
		m.raw = nil
	}
}

// checkFile says whether fd may be mapped shared and writable for the bytes up
// to end, and returns the alignment that its mappings need. It seals the file
// against shrinking first, so that where sealing works the size found here
// stays true; where it does not (a regular file, F_SEAL_SEAL) a later truncation
// faults and the loop's guard takes it from there.
func checkFile(fd int, end uint64) (align uint64, err error) {
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("fstat of descriptor %d: %w", fd, err)
	}
	// memfd, hugetlbfs, shm and ordinary files are all regular; /dev/zero, sockets
	// and directories are not, and have no size that could be checked.
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errors.New("not a regular, shared-memory or huge-page file")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, fmt.Errorf("F_GETFL of descriptor %d: %w", fd, err)
	}
	if flags&unix.O_ACCMODE != unix.O_RDWR {
		return 0, errors.New("file is not open for reading and writing")
	}
	if st.Size < 0 || uint64(st.Size) < end {
		return 0, fmt.Errorf("file has %#x bytes, the region ends at %#x", st.Size, end)
	}
	align = uint64(os.Getpagesize())
	// hugetlbfs reports its page size as the block size; its mappings must be
	// aligned to it at both ends or munmap fails.
	if b := uint64(st.Blksize); b > align && b&(b-1) == 0 {
		align = b
	}
	return align, nil
}

// mapShared maps size bytes of fd from offset and returns them with the mapping
// that holds them. The map starts at offset rounded down, since a frontend's
// offset need not be page aligned (UML sends 0xc4f000 of a 4 KiB-paged file, QEMU
// splits one huge-page file at 3 GiB).
func mapShared(fd int, offset, size uint64) (*mapping, []byte, error) {
	end := offset + size
	align, err := checkFile(fd, end)
	if err != nil {
		return nil, nil, err
	}
	from := offset &^ (align - 1)
	length := (end - from + align - 1) &^ (align - 1)
	if length < size || length > math.MaxInt {
		return nil, nil, fmt.Errorf("%#x bytes do not fit the address space", size)
	}
	raw, err := unix.Mmap(fd, int64(from), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap of %#x bytes at %#x: %w", length, from, err)
	}
	_ = unix.Madvise(raw, unix.MADV_DONTDUMP) // a guest's memory has no place in our core dump
	m := &mapping{raw: raw}
	m.retain()
	skip := offset - from
	return m, raw[skip : skip+size : skip+size], nil
}
