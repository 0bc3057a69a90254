package vring

// indirectMin is the least number of descriptors that an indirect table may
// have. A chain must not be longer than the queue (2.7.5.3.1), but Linux drivers
// do exceed small queues, and 1024 is what one system call can take.
const indirectMin = 1024

// walk pops the chain whose head descriptor d has been copied: any number of
// direct descriptors, then at most one indirect table (2.7.5.3.2). Every
// descriptor is fetched once; the number of steps is bounded by the sizes of the
// two tables.
func (q *DeviceQueue) walk(c *Chain, head uint16, d descriptor) bool {
	f := &q.flight
	f.begin()
	table := q.ring.desc
	left := len(table) - 1 // descriptors the chain may still take from table
	inTable := false
	var readLen, writeLen uint64
	readable := 0 // segments
	for {
		if d.flags&flagIndirect != 0 {
			if table = q.indirectTable(head, d, inTable); table == nil {
				return false
			}
			inTable, left = true, len(table)-1
			d = table[0].load()
			continue
		}
		if d.length != 0 { // an empty buffer is skipped, wherever it points
			write := d.flags&flagWrite != 0
			if !write && writeLen != 0 {
				return q.fail(Order, d.addr)
			}
			if readLen+writeLen+uint64(d.length) >= Oversize {
				return q.oversize(c, head)
			}
			if !q.addSegments(d) {
				return false
			}
			if write {
				writeLen += uint64(d.length)
			} else {
				readLen += uint64(d.length)
				readable = f.head - f.start
			}
		}
		if d.flags&flagNext == 0 {
			break
		}
		if int(d.next) >= len(table) {
			return q.fail(NextRange, uint64(d.next))
		}
		if left == 0 {
			return q.fail(Loop, uint64(head))
		}
		left--
		d = table[d.next].load()
	}
	n := f.head - f.start
	if n == 0 && !f.add(nil) { // add may move the chain: no index from before holds
		return q.full()
	}
	segs := f.slots[f.start : f.start+n : f.start+n]
	c.Head = head
	c.Readable, c.Writable = segs[:readable:readable], segs[readable:]
	c.ReadLen, c.WriteLen = uint32(readLen), uint32(writeLen)
	f.commit(head, writeLen != 0)
	q.dirty.popped(q.lastAvail&q.mask, c.Writable)
	q.lastAvail++
	return true
}

// addSegments translates one buffer, piece by piece where it spans regions.
func (q *DeviceQueue) addSegments(d descriptor) bool {
	addr, n := d.addr, uint64(d.length)
	for n > 0 {
		seg := q.mem.Prefix(addr, n)
		if seg == nil {
			return q.fail(Address, d.addr)
		}
		if !q.flight.add(seg) {
			return q.full()
		}
		addr += uint64(len(seg)) // cannot wrap: no region ends beyond 2^64-1
		n -= uint64(len(seg))
	}
	return true
}

// oversize pops a chain of more than 2^32-1 bytes, which no used length could
// tell of (2.7.5.3: a driver must not add more than 2^32). It is the driver's own
// loss and says nothing about the ring, so the device gets it, without its bytes,
// to give back.
func (q *DeviceQueue) oversize(c *Chain, head uint16) bool {
	f := &q.flight
	f.abort()
	if !f.add(nil) {
		return q.full()
	}
	c.Head = head
	c.Readable, c.ReadLen, c.Writable, c.WriteLen = nil, Oversize, nil, 0
	f.commit(head, false)
	q.lastAvail++
	return true
}

// full ends a walk for which the arena had no room. With other chains in flight
// the chain stays available and is popped when they are published; alone it is
// more than a queue may ever hold.
func (q *DeviceQueue) full() bool {
	f := &q.flight
	if f.count == 0 {
		return q.fail(Segments, uint64(f.head-f.start))
	}
	f.abort()
	return false
}

// indirectTable checks the indirect descriptor d and returns its table, nil
// after breaking the queue. The write flag of d means nothing (2.7.5.3.2).
func (q *DeviceQueue) indirectTable(head uint16, d descriptor, nested bool) []rawDesc {
	n := uint64(d.length) / descSize
	switch {
	case !q.indirect:
		q.fail(IndirectOff, uint64(head))
		return nil
	case nested:
		q.fail(IndirectNested, uint64(head))
		return nil
	case d.flags&flagNext != 0:
		q.fail(IndirectNext, uint64(head))
		return nil
	case n == 0 || d.length%descSize != 0 || n > uint64(max(len(q.ring.desc), indirectMin)):
		q.fail(IndirectLength, uint64(d.length))
		return nil
	}
	if mem := q.mem.Slice(d.addr, uint64(d.length)); mem != nil {
		if table := descTable(mem); table != nil {
			return table
		}
	}
	return q.copyTable(d)
}

// copyTable copies an indirect table that lies at an odd address or across
// regions, both of which are legal, to private memory.
func (q *DeviceQueue) copyTable(d descriptor) []rawDesc {
	if q.scratch == nil {
		q.scratch = make([]rawDesc, max(len(q.ring.desc), indirectMin))
	}
	table := q.scratch[:d.length/descSize]
	dst := descBytes(table)
	for addr := d.addr; len(dst) > 0; {
		src := q.mem.Prefix(addr, uint64(len(dst)))
		if src == nil {
			q.fail(IndirectAddress, d.addr)
			return nil
		}
		n := copy(dst, src)
		dst = dst[n:]
		addr += uint64(n)
	}
	return table
}
