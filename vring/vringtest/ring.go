package vringtest

import (
	"encoding/binary"

	"guestwire/vring"
	"guestwire/vring/guestmem"
)

// Flags of a descriptor (virtio 1.3, 2.7.5).
const (
	Next     = 1
	Write    = 2
	Indirect = 4
)

var le = binary.LittleEndian

// Ring is a split ring in guest memory. Its methods write and read single fields
// as a driver may, right or wrong.
type Ring struct {
	Mem  *Memory
	Size uint16

	DescGPA, AvailGPA, UsedGPA uint64

	desc, avail, used []byte // the driver's view
}

// NewRing places a ring of size entries in m, each area inside one region.
func (m *Memory) NewRing(size uint16) *Ring {
	n := uint64(size)
	return m.RingAt(size, m.Alloc(16*n, 16), m.Alloc(6+2*n, 4), m.Alloc(6+8*n, 4))
}

// RingAt makes a ring of three areas at given guest addresses.
func (m *Memory) RingAt(size uint16, desc, avail, used uint64) *Ring {
	n := uint64(size)
	return &Ring{
		Mem: m, Size: size, DescGPA: desc, AvailGPA: avail, UsedGPA: used,
		desc:  m.Bytes(desc, 16*n),
		avail: m.Bytes(avail, 6+2*n),
		used:  m.Bytes(used, 6+8*n),
	}
}

// Config returns what NewDeviceQueue needs to serve the ring through t, without
// features and descriptors.
func (r *Ring) Config(t *guestmem.Table) vring.Config {
	n := uint64(r.Size)
	return vring.Config{
		Size: r.Size, Mem: t,
		Desc:    t.Slice(r.DescGPA, 16*n),
		Avail:   t.Slice(r.AvailGPA, 6+2*n),
		Used:    t.Slice(r.UsedGPA, 6+8*n),
		LogAddr: r.UsedGPA,
		CallFD:  -1, ErrFD: -1,
	}
}

// DriverConfig returns what NewDriverQueue needs, with the driver's own mapping
// of the ring.
func (r *Ring) DriverConfig() vring.Config {
	return vring.Config{Size: r.Size, Desc: r.desc, Avail: r.avail, Used: r.used, CallFD: -1, ErrFD: -1}
}

// Start sets both indices, as if base chains had gone through the ring.
func (r *Ring) Start(base uint16) {
	r.SetAvailIdx(base)
	le.PutUint16(r.used[2:], base)
}

// SetDesc writes descriptor i of the table.
func (r *Ring) SetDesc(i int, addr uint64, length uint32, flags, next uint16) {
	PutDesc(r.desc[16*i:], addr, length, flags, next)
}

// PutDesc writes a descriptor to b, for indirect tables.
func PutDesc(b []byte, addr uint64, length uint32, flags, next uint16) {
	le.PutUint64(b, addr)
	le.PutUint32(b[8:], length)
	le.PutUint16(b[12:], flags)
	le.PutUint16(b[14:], next)
}

// Offer appends heads to the avail ring and advances avail.idx.
func (r *Ring) Offer(heads ...uint16) {
	idx := r.AvailIdx()
	for _, h := range heads {
		r.SetAvail(idx, h)
		idx++
	}
	r.SetAvailIdx(idx)
}

// SetAvail writes the avail entry that index idx refers to.
func (r *Ring) SetAvail(idx, head uint16) {
	le.PutUint16(r.avail[4+2*int(idx&(r.Size-1)):], head)
}

// AvailIdx returns avail.idx.
func (r *Ring) AvailIdx() uint16 { return le.Uint16(r.avail[2:]) }

// SetAvailIdx writes avail.idx.
func (r *Ring) SetAvailIdx(idx uint16) { le.PutUint16(r.avail[2:], idx) }

// SetAvailFlags writes avail.flags: 1 asks for no calls.
func (r *Ring) SetAvailFlags(flags uint16) { le.PutUint16(r.avail, flags) }

// SetUsedEvent writes used_event.
func (r *Ring) SetUsedEvent(idx uint16) { le.PutUint16(r.avail[4+2*int(r.Size):], idx) }

// UsedIdx returns used.idx.
func (r *Ring) UsedIdx() uint16 { return le.Uint16(r.used[2:]) }

// UsedFlags returns used.flags: 1 asks for no kicks.
func (r *Ring) UsedFlags() uint16 { return le.Uint16(r.used) }

// AvailEvent returns avail_event.
func (r *Ring) AvailEvent() uint16 { return le.Uint16(r.used[4+8*int(r.Size):]) }

// UsedElem returns the used element that index idx refers to.
func (r *Ring) UsedElem(idx uint16) (id, length uint32) {
	at := 4 + 8*int(idx&(r.Size-1))
	return le.Uint32(r.used[at:]), le.Uint32(r.used[at+4:])
}

// SetUsed returns a chain as a device would, to test a driver with.
func (r *Ring) SetUsed(idx uint16, id, length uint32) {
	at := 4 + 8*int(idx&(r.Size-1))
	le.PutUint32(r.used[at:], id)
	le.PutUint32(r.used[at+4:], length)
	le.PutUint16(r.used[2:], idx+1)
}

// Table writes an indirect table of at most n descriptors' room to guest memory
// and returns its address and length.
func (r *Ring) Table(fill func(b []byte), n int) (gpa uint64, length uint32) {
	gpa = r.Mem.Alloc(16*uint64(n), 16)
	fill(r.Mem.Bytes(gpa, 16*uint64(n)))
	return gpa, uint32(16 * n)
}
