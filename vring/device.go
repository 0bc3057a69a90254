package vring

import "guestwire/vring/guestmem"

// Oversize is the ReadLen of a chain of more bytes than a length can say. It has
// no segments.
const Oversize = 1<<32 - 1

// Chain is one descriptor chain, validated and translated. Its slices are the
// queue's: they stay valid until the chain is rewound or, when it is pushed,
// until the Publish that hands it back. What they point to is guest memory.
type Chain struct {
	Head     uint16
	Readable [][]byte // what the driver wrote for us, in order
	Writable [][]byte // where we may write, in order
	ReadLen  uint32   // bytes in Readable, or Oversize
	WriteLen uint32   // bytes in Writable
}

// QueueStats counts what a queue did since it was made.
type QueueStats struct {
	Pops            uint64 // chains taken and not rewound
	Pushes          uint64 // chains completed and published
	Publishes       uint64 // batches they were published in
	Calls           uint64 // calls signalled
	CallsRepeated   uint64 // calls signalled again by Insist, for want of an effect
	CallsSuppressed uint64 // decisions that the driver wanted no call
	KicksWanted     uint64 // times the device armed the kick
}

// DeviceQueue is the device side of one split ring. It belongs to one loop.
type DeviceQueue struct {
	ring      ring
	mem       guestmem.Cursor
	flight    flight // chains popped and not yet published, oldest first
	pushed    int    // how many of the oldest are complete
	lastAvail uint16 // next avail entry to pop
	availIdx  uint16 // avail.idx as last read
	mask      uint16

	usedIdx   uint16 // used.idx as published
	usedFlags uint16 // used.flags as published
	quiet     int    // chains published and not yet decided on by Signal

	eventIdx  bool
	inOrder   bool
	indirect  bool
	signalled bool // a call decision was made since the start: used_event can be compared

	callFD, errFD int
	insist        insist
	index         int
	scratch       []rawDesc // indirect tables that cannot be read in place
	broken        *BrokenError
	stats         QueueStats
	dirty         dirty
}

// NewDeviceQueue starts the device side of a ring: the next chain comes from
// c.Base, the next used element goes where used.idx in memory says. The two
// differ when chains were popped and not returned before (see Reclaim).
func NewDeviceQueue(c Config) (*DeviceQueue, error) {
	r, err := newRing(c.Size, c.Desc, c.Avail, c.Used)
	if err != nil {
		return nil, err
	}
	q := &DeviceQueue{
		ring:      r,
		mem:       guestmem.NewCursor(c.Mem),
		flight:    newFlight(c.Size),
		lastAvail: c.Base,
		availIdx:  c.Base,
		mask:      c.Size - 1,
		eventIdx:  c.EventIdx,
		inOrder:   c.InOrder,
		indirect:  c.Indirect,
		callFD:    nonblocking(c.CallFD),
		insist:    insist{needed: mayLose(c.CallFD)},
		errFD:     nonblocking(c.ErrFD),
		index:     c.Index,
	}
	q.usedFlags, q.usedIdx = r.loadUsed()
	if q.eventIdx {
		q.usedFlags = 0 // 2.7.10.2: with EVENT_IDX the flags must be 0
	}
	q.SetLog(c.Log, c.LogAddr, c.LogUsed)
	return q, nil
}

// Pop takes the next chain. It reports false when none is available, when the
// segments of chains in flight fill the arena (Publish makes room, and ArmKick
// says that there is more), or when the queue is broken.
//
// avail.idx is read only when everything seen before is popped: the driver
// writes that cache line for every chain it adds.
func (q *DeviceQueue) Pop(c *Chain) bool {
	if q.availIdx == q.lastAvail && !q.refill() {
		return false
	}
	return q.take(c)
}

// PopBatch pops up to len(cs) chains and returns how many. It reads avail.idx at
// most once.
func (q *DeviceQueue) PopBatch(cs []Chain) int {
	if q.availIdx == q.lastAvail && !q.refill() {
		return 0
	}
	n := min(len(cs), int(q.availIdx-q.lastAvail))
	for i := range n {
		if !q.take(&cs[i]) {
			return i
		}
	}
	return n
}

// refill reads avail.idx and reports whether there is a chain to pop. The
// driver cannot have more chains out than the ring has entries (2.7.13.3), those
// in flight included: that bounds what a queue holds whatever the driver writes.
func (q *DeviceQueue) refill() bool {
	if q.broken != nil {
		return false
	}
	idx := q.ring.loadAvailIdx()
	n := idx - q.lastAvail
	if n == 0 {
		q.availIdx = idx
		return false
	}
	if int(n)+q.flight.count > len(q.ring.desc) {
		return q.fail(AvailTooFar, uint64(idx))
	}
	q.availIdx = idx
	return true
}

// take pops the chain at lastAvail, which is known to be available. The chain of
// one direct descriptor inside one region, which most are, is served here.
func (q *DeviceQueue) take(c *Chain) bool {
	head := q.ring.avail[q.lastAvail&q.mask]
	if int(head) >= len(q.ring.desc) {
		return q.fail(HeadRange, uint64(head))
	}
	d := q.ring.desc[head].load()
	f := &q.flight
	at := f.head
	if d.flags&(flagNext|flagIndirect) != 0 || d.length == 0 || at == f.limit {
		return q.walk(c, head, d)
	}
	seg := q.mem.Slice(d.addr, uint64(d.length))
	if seg == nil {
		return q.walk(c, head, d)
	}
	f.slots[at] = seg
	f.start, f.head = at, at+1
	one := f.slots[at : at+1 : at+1]
	c.Head = head
	if d.flags&flagWrite == 0 {
		c.Readable, c.ReadLen, c.Writable, c.WriteLen = one, d.length, nil, 0
		f.commit(head, false)
	} else {
		c.Readable, c.ReadLen, c.Writable, c.WriteLen = nil, 0, one, d.length
		f.commit(head, true)
		q.dirty.popped(q.lastAvail&q.mask, one)
	}
	q.lastAvail++
	return true
}

// Rewind gives back the last n chains popped and not pushed; they come again, in
// the same order. Their slices are void.
func (q *DeviceQueue) Rewind(n int) {
	n = min(n, q.flight.count-q.pushed)
	if n <= 0 {
		return
	}
	q.flight.drop(n)
	q.lastAvail -= uint16(n)
}

// Push completes the oldest chain that is not yet complete, which head must
// name: chains are completed in the order they were popped, negotiated or not.
// written is the number of bytes written to Writable, from its start.
func (q *DeviceQueue) Push(head uint16, written uint32) {
	f := &q.flight
	if q.pushed >= f.count {
		q.fail(PushOrder, uint64(head))
		return
	}
	m := &f.marks[(f.first+uint16(q.pushed))&f.mask]
	if m.head != head {
		q.fail(PushOrder, uint64(head))
		return
	}
	m.written = written
	if m.writable && q.dirty.log != nil {
		q.markWritten(written)
	}
	q.pushed++
}

// Size returns the number of entries of the ring.
func (q *DeviceQueue) Size() int { return len(q.ring.desc) }

// Available returns how many chains can be popped. It reads avail.idx.
func (q *DeviceQueue) Available() int {
	q.refill()
	return int(q.availIdx - q.lastAvail)
}

// LastAvail returns the avail index to go on from, as GET_VRING_BASE wants it:
// chains still held by the device come again. Publish first.
func (q *DeviceQueue) LastAvail() uint16 {
	return q.lastAvail - uint16(q.flight.count-q.pushed)
}

// Broken returns why the queue broke, nil if it works.
func (q *DeviceQueue) Broken() *BrokenError { return q.broken }

// Break stops the queue from outside, for example after a memory fault. Only a
// new queue works again.
func (q *DeviceQueue) Break(reason Reason) { q.fail(reason, 0) }

// fail breaks the queue: from now on it pops nothing, drops what is pushed and
// does not touch the ring. It always returns false. The first reason stays.
func (q *DeviceQueue) fail(reason Reason, detail uint64) bool {
	if q.broken != nil {
		return false
	}
	q.broken = &BrokenError{Queue: q.index, Reason: reason, Detail: detail}
	q.stats.Pops += uint64(q.flight.count)
	q.availIdx = q.lastAvail
	q.pushed = 0
	q.flight.count, q.flight.outgrown = 0, 0
	if q.errFD >= 0 {
		signal(q.errFD)
	}
	return false
}

// Stats returns the counters.
func (q *DeviceQueue) Stats() QueueStats {
	s := q.stats
	s.Pops += s.Pushes + uint64(q.flight.count)
	return s
}
