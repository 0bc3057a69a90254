package vringtest

import "guestwire/vring"

// HostileSize is the ring size that Hostiles are written for.
const HostileSize = 16

// Hostile is ring content that a driver must not, or need not, write.
type Hostile struct {
	ID    string // row of the hostile catalogue
	Name  string
	Build func(r *Ring) // fills a fresh ring of HostileSize and makes it available

	Features Features
	Want     vring.Reason // 0: the chain is legal or harmless and must be served
	Read     uint32       // served: bytes of the first chain
	Written  uint32
	Pieces   int // served: segments of the first chain
}

// Hostiles returns the rows of the catalogue that are ring content alone. The
// memory must have two adjacent regions.
func Hostiles() []Hostile {
	ind := Features{Indirect: true}
	return []Hostile{
		{ID: "R1", Name: "avail.idx jumps ahead", Want: vring.AvailTooFar, Build: func(r *Ring) { r.SetAvailIdx(HostileSize + 1) }},
		{ID: "R2", Name: "avail.idx goes backwards", Want: vring.AvailTooFar, Build: func(r *Ring) { r.SetAvailIdx(0xffff) }},
		{ID: "R3", Name: "head out of range", Want: vring.HeadRange, Build: func(r *Ring) { r.Offer(HostileSize) }},
		{ID: "R3", Name: "head 65535", Want: vring.HeadRange, Build: func(r *Ring) { r.Offer(0xffff) }},
		{ID: "R4", Name: "next out of range", Want: vring.NextRange, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, Next, HostileSize)
			r.Offer(0)
		}},
		{ID: "R4", Name: "next out of range in a table", Features: ind, Want: vring.NextRange, Build: func(r *Ring) {
			r.offerTable(2, func(b []byte) { PutDesc(b, r.buf(), 64, Next, 2) })
		}},
		{ID: "R5", Name: "self-loop", Want: vring.Loop, Build: func(r *Ring) {
			r.SetDesc(3, r.buf(), 64, Next, 3)
			r.Offer(3)
		}},
		{ID: "R5", Name: "loop of empty buffers", Want: vring.Loop, Build: func(r *Ring) {
			r.SetDesc(0, 0, 0, Next, 1)
			r.SetDesc(1, 0, 0, Next, 0)
			r.Offer(0)
		}},
		{ID: "R5", Name: "loop in a table", Features: ind, Want: vring.Loop, Build: func(r *Ring) {
			r.offerTable(2, func(b []byte) {
				PutDesc(b, r.buf(), 64, Next, 1)
				PutDesc(b[16:], r.buf(), 64, Next, 0)
			})
		}},
		{ID: "R6", Name: "same head twice", Read: 64, Pieces: 1, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, 0, 0)
			r.Offer(0, 0)
		}},
		{ID: "R7", Name: "address outside memory", Want: vring.Address, Build: func(r *Ring) {
			r.SetDesc(0, 0x1000, 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R7", Name: "straddles the end of memory", Want: vring.Address, Build: func(r *Ring) {
			r.SetDesc(0, r.Mem.End()-32, 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R7", Name: "address plus length wraps", Want: vring.Address, Build: func(r *Ring) {
			r.SetDesc(0, ^uint64(0)-31, 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R7", Name: "second buffer outside memory", Want: vring.Address, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, Next, 1)
			r.SetDesc(1, r.Mem.End(), 1, Write, 0)
			r.Offer(0)
		}},
		{ID: "R8", Name: "straddles two regions", Read: 64, Pieces: 2, Build: func(r *Ring) {
			r.SetDesc(0, r.boundary()-10, 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R9", Name: "empty buffer inside", Read: 128, Pieces: 2, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, Next, 1)
			r.SetDesc(1, 0xdead0000, 0, Next, 2)
			r.SetDesc(2, r.buf(), 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R9", Name: "nothing but empty buffers", Build: func(r *Ring) {
			r.SetDesc(0, 0xdead0000, 0, Next|Write, 1)
			r.SetDesc(1, 0, 0, 0, 0)
			r.Offer(0)
		}},
		{ID: "R10", Name: "readable after writable", Want: vring.Order, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, Next|Write, 1)
			r.SetDesc(1, r.buf(), 64, 0, 0)
			r.Offer(0)
		}},
		{ID: "R11", Name: "more than 4 GiB in total", Features: ind, Read: vring.Oversize, Build: func(r *Ring) {
			first := r.Mem.regions[0] // the same bytes again and again
			n := int((1<<32)/first.Size) + 1
			if n > 1024 {
				r.Mem.tb.Fatalf("vringtest: the first region is too small for a chain of 4 GiB")
			}
			r.offerTable(n, func(b []byte) {
				for i := range n {
					PutDesc(b[16*i:], first.GPA, uint32(first.Size), Next, uint16(i+1))
				}
			})
		}},
		{ID: "R12", Name: "indirect not negotiated", Want: vring.IndirectOff, Build: oneTable},
		{ID: "R12", Name: "nested", Features: ind, Want: vring.IndirectNested, Build: func(r *Ring) {
			r.offerTable(1, func(b []byte) { PutDesc(b, r.buf(), 16, Indirect, 0) })
		}},
		{ID: "R12", Name: "empty table", Features: ind, Want: vring.IndirectLength, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 0, Indirect, 0)
			r.Offer(0)
		}},
		{ID: "R12", Name: "length no multiple of 16", Features: ind, Want: vring.IndirectLength, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 24, Indirect, 0)
			r.Offer(0)
		}},
		{ID: "R12", Name: "table over the limit", Features: ind, Want: vring.IndirectLength, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 16*1025, Indirect, 0)
			r.Offer(0)
		}},
		{ID: "R12", Name: "table of 4 GiB", Features: ind, Want: vring.IndirectLength, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 0xfffffff0, Indirect, 0)
			r.Offer(0)
		}},
		{ID: "R12", Name: "chained indirect", Features: ind, Want: vring.IndirectNext, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 16, Indirect|Next, 1)
			r.Offer(0)
		}},
		{ID: "R12", Name: "table outside memory", Features: ind, Want: vring.IndirectAddress, Build: func(r *Ring) {
			r.SetDesc(0, r.Mem.End()-16, 32, Indirect, 0)
			r.Offer(0)
		}},
		{ID: "R13", Name: "table at an odd address", Features: ind, Read: 64, Written: 32, Pieces: 2, Build: func(r *Ring) {
			r.tableAt(r.Mem.Alloc(33, 16) + 1)
		}},
		{ID: "R13", Name: "table across regions", Features: ind, Read: 64, Written: 32, Pieces: 2, Build: func(r *Ring) {
			r.tableAt(r.boundary() - 8)
		}},
		{ID: "R13", Name: "table behind direct buffers", Features: ind, Read: 64 + 48, Written: 32, Pieces: 3, Build: func(r *Ring) {
			r.SetDesc(1, r.buf(), 48, Next, 0)
			r.tableAt(r.Mem.Alloc(32, 16))
			r.SetAvail(0, 1)
		}},
		{ID: "R15", Name: "only writable", Written: 64, Pieces: 1, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 64, Write, 0)
			r.Offer(0)
		}},
		{ID: "R16", Name: "room of one byte", Written: 1, Pieces: 1, Build: func(r *Ring) {
			r.SetDesc(0, r.buf(), 1, Write, 0)
			r.Offer(0)
		}},
	}
}

// buf returns a fresh buffer of 64 bytes.
func (r *Ring) buf() uint64 { return r.Mem.Alloc(64, 1) }

// boundary returns the first guest address of the second region.
func (r *Ring) boundary() uint64 { return r.Mem.regions[1].GPA }

// offerTable offers an indirect table of n descriptors as head 0.
func (r *Ring) offerTable(n int, fill func(b []byte)) {
	gpa, length := r.Table(fill, n)
	r.SetDesc(0, gpa, length, Indirect, 0)
	r.Offer(0)
}

// tableAt offers, as head 0, a table at gpa with 64 readable and 32 writable
// bytes. The write flag on the table itself must be ignored.
func (r *Ring) tableAt(gpa uint64) {
	var b [32]byte
	PutDesc(b[:], r.buf(), 64, Next, 1)
	PutDesc(b[16:], r.buf(), 32, Write, 0)
	r.Mem.Write(gpa, b[:])
	r.SetDesc(0, gpa, uint32(len(b)), Indirect|Write, 0)
	r.Offer(0)
}

func oneTable(r *Ring) {
	r.offerTable(1, func(b []byte) { PutDesc(b, r.buf(), 64, 0, 0) })
}
