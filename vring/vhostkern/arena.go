package vhostkern

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Arena is memory that is shared with the kernel: rings and buffers in one region.
// It is mapped shared, so that a child process never takes pages away from under
// the kernel's view (copy on write), and zeroed.
type Arena struct {
	Mem  []byte
	Addr uint64 // of Mem, in this process; a whole page
}

// NewArena maps size bytes. Pages that are never touched cost nothing.
func NewArena(size int) (*Arena, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes for vhost-net: %w", size, err)
	}
	return &Arena{Mem: mem, Addr: addressOf(mem)}, nil
}

// Close unmaps the arena. No ring in it may be attached.
func (a *Arena) Close() {
	_ = unix.Munmap(a.Mem) // fails only for what is not mapped
	a.Mem = nil
}
