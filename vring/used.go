package vring

// Used takes the next chain that the device has returned: its cookie and how
// many bytes were written to it.
func (d *DriverQueue) Used() (cookie, written uint32, ok bool) {
	if d.lastUsed == d.usedIdx && !d.reload() {
		return 0, 0, false
	}
	var head uint32
	if d.inOrder {
		head, written = d.nextInOrder()
	} else {
		e := d.ring.used[d.lastUsed&d.mask]
		head, written = e.id, e.length
	}
	if head >= uint32(len(d.chains)) || d.chains[head].descs == 0 {
		d.fail(UsedRange, uint64(head))
		return 0, 0, false
	}
	c := &d.chains[head]
	if written > c.writable {
		d.fail(UsedLength, uint64(written))
		return 0, 0, false
	}
	d.giveBack(uint16(head), int(c.descs))
	c.descs = 0
	d.lastUsed++
	d.stats.Used++
	return c.cookie, written, true
}

// reload reads used.idx and reports whether there is something to take.
func (d *DriverQueue) reload() bool {
	if d.broken != nil {
		return false
	}
	_, idx := d.ring.loadUsed()
	if idx == d.lastUsed {
		return false
	}
	if d.batch {
		// The last element returned chains up to one that never came.
		d.fail(UsedRange, uint64(d.batchEnd))
		return false
	}
	if n := uint64(idx - d.lastUsed); n > d.stats.Added-d.stats.Used {
		d.fail(UsedRange, uint64(idx))
		return false
	}
	d.usedIdx = idx
	return true
}

// nextInOrder returns the oldest chain in flight (2.7.9): one used element, at
// the place of the first chain it returns, names the last; those before it were
// used completely.
func (d *DriverQueue) nextInOrder() (head, written uint32) {
	if !d.batch {
		e := d.ring.used[d.lastUsed&d.mask]
		if e.id >= uint32(len(d.chains)) {
			return e.id, 0
		}
		d.batch, d.batchEnd, d.batchLen = true, uint16(e.id), e.length
	}
	h := d.heads[d.lastUsed&d.mask]
	if h == d.batchEnd {
		d.batch = false
		return uint32(h), d.batchLen
	}
	return uint32(h), d.chains[h].writable
}

// giveBack appends a chain's descriptors to the free list. They are linked
// already: next is only changed here, at the list's end.
func (d *DriverQueue) giveBack(head uint16, n int) {
	last := head
	for range n - 1 {
		last = d.next[last]
	}
	d.next[d.freeTail] = head
	if d.free == 0 {
		d.freeHead = head
	}
	d.freeTail = last
	d.free += n
}

// ArmCall asks the device for a call when it returns a chain, and reports
// whether there are returned ones already; then no call may follow.
func (d *DriverQueue) ArmCall() (more bool) { return d.ArmCallBeyond(0) }

// ArmCallBeyond asks for a call when more than n chains have come back that were
// not taken, and reports whether that many have already. Without EVENT_IDX the
// device calls for every one.
func (d *DriverQueue) ArmCallBeyond(n int) (more bool) {
	if d.broken != nil {
		return false
	}
	n = min(max(n, 0), len(d.chains)-1)
	if d.eventIdx {
		*d.ring.usedEvent = d.lastUsed + uint16(n)
	} else if d.availFlags != 0 {
		d.availFlags = 0
		d.ring.storeAvail(0, d.published)
	}
	// StoreLoad: the wish must be visible before used.idx is read again (2.7.14),
	// the mirror of the fence in ArmKickBeyond.
	d.ring.fence()
	_, idx := d.ring.loadUsed()
	return int(idx-d.lastUsed) > n
}

// DisarmCall tells the device not to call while the driver works or polls.
func (d *DriverQueue) DisarmCall() {
	if !d.eventIdx && d.availFlags == 0 && d.broken == nil {
		d.availFlags = availNoInterrupt
		d.ring.storeAvail(d.availFlags, d.published)
	}
}
