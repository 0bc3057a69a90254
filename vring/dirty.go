package vring

import "guestwire/vring/guestmem"

// dirty is the part of a queue that only a live migration uses. Marks follow
// the writes they tell of: data before used elements, elements before used.idx
// (vhost-user, "Migration").
type dirty struct {
	log      *guestmem.Log
	ring     *guestmem.Log // log if writes to the used ring are wanted too, else nil
	usedAddr uint64
	writable [][][]byte // Writable of the chains in flight, by avail entry
}

// popped remembers where the chain of an avail entry may be written.
func (d *dirty) popped(entry uint16, writable [][]byte) {
	if d.log != nil {
		d.writable[entry] = writable
	}
}

func (d *dirty) usedElems(old uint16, n int, mask uint16) {
	if d.ring == nil {
		return
	}
	at := int(old & mask)
	k := min(n, int(mask)+1-at)
	d.ring.Mark(d.usedAddr+4+8*uint64(at), 8*uint64(k))
	d.ring.Mark(d.usedAddr+4, 8*uint64(n-k))
}

func (d *dirty) usedIndex() { d.ring.Mark(d.usedAddr, 4) }

func (d *dirty) availEvent(size int) { d.ring.Mark(d.usedAddr+4+8*uint64(size), 2) }

// markWritten marks the pages of the first written bytes of the chain that Push
// is completing.
func (q *DeviceQueue) markWritten(written uint32) {
	entry := (q.lastAvail - uint16(q.flight.count-q.pushed)) & q.mask
	left := int(written)
	for _, seg := range q.dirty.writable[entry] {
		n := min(left, len(seg))
		if n == 0 {
			break
		}
		if gpa, ok := q.mem.Table().GPA(seg); ok {
			q.dirty.log.Mark(gpa, uint64(n))
		}
		left -= n
	}
	q.dirty.writable[entry] = nil
}

// SetLog turns the dirty log on, or off with nil. usedAddr is the guest address
// of the used ring, logged if used says so. Writes are logged for chains popped
// afterwards: call it between batches, with none held.
func (q *DeviceQueue) SetLog(l *guestmem.Log, usedAddr uint64, used bool) {
	q.dirty = dirty{log: l, usedAddr: usedAddr}
	if l == nil {
		return
	}
	if used {
		q.dirty.ring = l
	}
	q.dirty.writable = make([][][]byte, len(q.ring.desc))
}

// SetMem moves the queue to a new memory table and new views of the three
// areas, which are checked as at the start; on an error the queue stays as it
// was. Call it between batches: chains still held are rewound and come again
// from the new memory. Only then may the old table be closed.
func (q *DeviceQueue) SetMem(mem *guestmem.Table, desc, avail, used []byte) error {
	r, err := newRing(q.mask+1, desc, avail, used)
	if err != nil {
		return err
	}
	q.Rewind(q.flight.count)
	q.Publish()
	q.flight.reset()
	q.ring, q.mem = r, guestmem.NewCursor(mem)
	return nil
}
