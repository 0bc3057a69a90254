package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// entry is what lies in a ring: the address of a frame in fill and completion
// ring, a descriptor in RX and TX ring (linux/if_xdp.h).
type entry interface{ uint64 | unix.XDPDesc }

// ring is one ring as the side in user space sees it. Of the two indices, which
// run freely modulo 2^32, the one is ours to write and the other the kernel's.
//
// Atomic stores publish what was written before them, atomic loads show what the
// other side had written before its store; that the store of our index comes
// before the load of the flags (a full fence in Go) is what no wake-up is lost by.
type ring[T entry] struct {
	producer, consumer, flags *uint32

	entries []T
	mask    uint32
	ours    uint32 // our index, as published
	theirs  uint32 // the kernel's, as last read
}

// newRing views the mapping of a ring of size entries, a power of two.
func newRing[T entry](mem []byte, o unix.XDPRingOffset, size int) (r ring[T], err error) {
	if size <= 0 || size&(size-1) != 0 || size > 1<<20 {
		return r, fmt.Errorf("ring of %d entries: not a power of two", size)
	}
	var one T
	for _, a := range []struct{ at, length, align uint64 }{
		{o.Producer, 4, 4}, {o.Consumer, 4, 4}, {o.Flags, 4, 4}, {o.Desc, uint64(size) * uint64(unsafe.Sizeof(one)), 8},
	} {
		if a.at%a.align != 0 || a.at > uint64(len(mem)) || uint64(len(mem))-a.at < a.length {
			return r, errors.New("the kernel's ring offsets are outside the mapping")
		}
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	r = ring[T]{
		producer: (*uint32)(unsafe.Add(base, o.Producer)),
		consumer: (*uint32)(unsafe.Add(base, o.Consumer)),
		flags:    (*uint32)(unsafe.Add(base, o.Flags)),
		entries:  unsafe.Slice((*T)(unsafe.Add(base, o.Desc)), size),
		mask:     uint32(size - 1),
	}
	return r, nil
}

// room returns how many entries can be put. The kernel's index is read only when
// fewer than want are known to be free: it writes that cache line as it goes.
func (r *ring[T]) room(want int) int {
	if free := len(r.entries) - int(r.ours-r.theirs); free >= want {
		return free
	}
	r.theirs = atomic.LoadUint32(r.consumer)
	return max(len(r.entries)-int(r.ours-r.theirs), 0)
}

// put writes the entry i places behind our index, which room must have granted.
func (r *ring[T]) put(i int, v T) { r.entries[(r.ours+uint32(i))&r.mask] = v }

// submit hands the first n entries that were put to the kernel.
func (r *ring[T]) submit(n int) {
	r.ours += uint32(n)
	atomic.StoreUint32(r.producer, r.ours)
}

// ready returns how many entries the kernel has for us, at most the ring's size.
// The kernel's index is read only when everything seen before was released.
func (r *ring[T]) ready() int {
	if r.ours == r.theirs {
		r.theirs = atomic.LoadUint32(r.producer)
	}
	return min(int(r.theirs-r.ours), len(r.entries))
}

// at returns the entry i places behind our index.
func (r *ring[T]) at(i int) T { return r.entries[(r.ours+uint32(i))&r.mask] }

// release gives the first n entries back to the kernel.
func (r *ring[T]) release(n int) {
	r.ours += uint32(n)
	atomic.StoreUint32(r.consumer, r.ours)
}

// needsWakeup says whether the kernel has gone to sleep over this ring.
func (r *ring[T]) needsWakeup() bool {
	return atomic.LoadUint32(r.flags)&unix.XDP_RING_NEED_WAKEUP != 0
}
