package vring

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Sizes and bits of the layout (virtio 1.3, 2.7.5 to 2.7.8).
const (
	descSize = 16

	flagNext     = 1 // the chain goes on at descriptor.next
	flagWrite    = 2 // the device writes this buffer
	flagIndirect = 4 // the buffer is a table of descriptors

	availNoInterrupt = 1 // avail.flags: the driver wants no calls
	usedNoNotify     = 1 // used.flags: the device wants no kicks
)

// rawDesc is a descriptor in shared memory: address; length, flags and next. It
// is only ever loaded whole, by load.
type rawDesc [2]uint64

// descriptor is the private copy of a rawDesc that all decisions are made on.
type descriptor struct {
	addr   uint64
	length uint32
	flags  uint16
	next   uint16
}

// load fetches a descriptor once. The atomic loads keep the compiler from
// fetching any part of it again when the copy is used.
func (d *rawDesc) load() descriptor {
	addr, rest := atomic.LoadUint64(&d[0]), atomic.LoadUint64(&d[1])
	return descriptor{addr: addr, length: uint32(rest), flags: uint16(rest >> 32), next: uint16(rest >> 48)}
}

func (d *rawDesc) store(v descriptor) {
	d[0] = v.addr
	d[1] = uint64(v.length) | uint64(v.flags)<<32 | uint64(v.next)<<48
}

// usedElem is an entry of the used ring.
type usedElem struct {
	id     uint32 // head of the chain
	length uint32 // bytes written
}

// ring is the view of one split ring that both sides share. The areas lie in
// memory that the other side writes at any time.
//
// sync/atomic has no 16-bit operations. The index of each ring shares an aligned
// 32-bit word with a neighbour that the same side owns, so the word is loaded and
// stored whole. The event fields are the last two bytes of an area, where a word
// would reach beyond it: they are plain 16-bit accesses beside a fence. gc
// neither repeats nor reorders plain accesses across atomic operations.
type ring struct {
	desc  []rawDesc
	avail []uint16   // avail.ring
	used  []usedElem // used.ring

	availWord  *uint32 // contains avail.idx, at bit availShift
	availShift uint8
	availFlags *uint16
	usedEvent  *uint16 // avail.used_event
	usedWord   *uint32 // used.flags | used.idx<<16
	availEvent *uint16 // used.avail_event

	barrier uint32 // private; the fence is an operation on it
}

// newRing checks the three areas and makes a ring of them. The alignments are
// those of virtio 1.3, 2.7: 16, 2 and 4 bytes. What does not hold here would
// fault or tear later.
func newRing(size uint16, desc, avail, used []byte) (ring, error) {
	n := int(size)
	if n == 0 || n&(n-1) != 0 || n > MaxSize {
		return ring{}, fmt.Errorf("queue size %d is not a power of two from 1 to %d", n, MaxSize)
	}
	for _, a := range [...]struct {
		name        string
		b           []byte
		size, align int
	}{
		{"descriptor table", desc, descSize * n, 16},
		{"avail ring", avail, 6 + 2*n, 2},
		{"used ring", used, 6 + 8*n, 4},
	} {
		if len(a.b) < a.size {
			return ring{}, fmt.Errorf("%s has %d bytes, a queue of %d needs %d", a.name, len(a.b), n, a.size)
		}
		if addressOf(a.b)%uintptr(a.align) != 0 {
			return ring{}, fmt.Errorf("%s is not aligned to %d bytes", a.name, a.align)
		}
	}
	d, a, u := unsafe.Pointer(&desc[0]), unsafe.Pointer(&avail[0]), unsafe.Pointer(&used[0])
	r := ring{
		desc:       unsafe.Slice((*rawDesc)(d), n),
		avail:      unsafe.Slice((*uint16)(unsafe.Add(a, 4)), n),
		used:       unsafe.Slice((*usedElem)(unsafe.Add(u, 4)), n),
		availFlags: (*uint16)(a),
		usedEvent:  (*uint16)(unsafe.Add(a, 4+2*n)),
		usedWord:   (*uint32)(u),
		availEvent: (*uint16)(unsafe.Add(u, 4+8*n)),
	}
	// Drivers put avail.idx into the upper half of an aligned word, but only two
	// bytes of alignment are required. At an odd word the aligned one is idx and
	// the first ring entry.
	if uintptr(a)%4 == 0 {
		r.availWord, r.availShift = (*uint32)(a), 16
	} else {
		r.availWord, r.availShift = (*uint32)(unsafe.Add(a, 2)), 0
	}
	return r, nil
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// descTable views b as a table of descriptors; nil when b is not aligned for
// atomic loads.
func descTable(b []byte) []rawDesc {
	if addressOf(b)%8 != 0 {
		return nil
	}
	return unsafe.Slice((*rawDesc)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/descSize)
}

// descBytes views a private table as bytes, to copy into.
func descBytes(t []rawDesc) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*descSize)
}

// fence is a full barrier. It is needed where a store must be visible before a
// load that follows is done, the one order that neither amd64 nor acquire and
// release give.
func (r *ring) fence() { atomic.AddUint32(&r.barrier, 0) }

// loadAvailIdx acquires avail.idx: ring entries and descriptors read later are at
// least as new.
func (r *ring) loadAvailIdx() uint16 {
	return uint16(atomic.LoadUint32(r.availWord) >> r.availShift)
}

// storeAvail releases avail.flags and avail.idx in one store. The driver side
// asks for a 4-aligned avail ring, so that they share the word.
func (r *ring) storeAvail(flags, idx uint16) {
	atomic.StoreUint32(r.availWord, uint32(flags)|uint32(idx)<<16)
}

// loadUsed acquires used.flags and used.idx.
func (r *ring) loadUsed() (flags, idx uint16) {
	w := atomic.LoadUint32(r.usedWord)
	return uint16(w), uint16(w >> 16)
}

// storeUsed releases used.flags and used.idx in one store; the device owns both.
func (r *ring) storeUsed(flags, idx uint16) {
	atomic.StoreUint32(r.usedWord, uint32(flags)|uint32(idx)<<16)
}

// crossed is the notification rule of EVENT_IDX (virtio 1.3, 2.7.7.2 and
// 2.7.10.1): an index went from old to now and passed the entry event.
func crossed(event, now, old uint16) bool { return now-event-1 < now-old }
