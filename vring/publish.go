package vring

// Publish hands all pushed chains back to the driver: their used elements, then
// used.idx in one store, then one call if the driver wants it. It does nothing
// when nothing was pushed and nothing was published quietly.
func (q *DeviceQueue) Publish() {
	q.PublishQuietly()
	q.Signal()
}

// PublishQuietly is Publish without the call: a driver that looks finds the
// chains, one that sleeps is left alone. Whoever uses it must come back with
// Signal or Publish before long.
func (q *DeviceQueue) PublishQuietly() {
	n := q.pushed
	if n == 0 {
		return
	}
	if q.quiet+n > len(q.ring.desc) {
		q.Signal() // used_event is compared over one round of the ring at most
	}
	old := q.usedIdx
	if q.inOrder {
		q.writeBatches(n)
	} else {
		q.writeEach(n)
	}
	q.dirty.usedElems(old, n, q.mask)
	q.usedIdx = old + uint16(n)
	q.ring.storeUsed(q.usedFlags, q.usedIdx)
	q.dirty.usedIndex()
	q.flight.release(n)
	q.pushed = 0
	q.stats.Pushes += uint64(n)
	q.stats.Publishes++
	q.quiet += n
}

// Quiet returns how many chains were published without a decision on a call.
func (q *DeviceQueue) Quiet() int { return q.quiet }

// Signal decides on one call for all chains published since the last decision.
// When the driver has found them by itself meanwhile, it wants none.
func (q *DeviceQueue) Signal() {
	n := q.quiet
	q.quiet = 0
	if n == 0 || q.callFD < 0 || q.broken != nil {
		return
	}
	if q.wantsCall(q.usedIdx - uint16(n)) {
		q.stats.Calls++
		signal(q.callFD)
		q.called()
	} else {
		q.stats.CallsSuppressed++
	}
}

func (q *DeviceQueue) writeEach(n int) {
	f := &q.flight
	for i := range uint16(n) {
		m := &f.marks[(f.first+i)&f.mask]
		q.ring.used[(q.usedIdx+i)&q.mask] = usedElem{id: uint32(m.head), length: m.written}
	}
}

// writeBatches uses IN_ORDER (2.7.9): one used element, in the place of the
// first of a run of chains and with the head of the last, returns all of them.
// The driver takes the skipped ones as used completely, written ones as written
// to the last byte. So only chains without a writable part are skipped. A
// skipped receive chain that was written in full would be legal too, but there
// are drivers that read every length (DPDK's), and little is to gain.
func (q *DeviceQueue) writeBatches(n int) {
	f := &q.flight
	for i := 0; i < n; i++ {
		first := i
		m := &f.marks[(f.first+uint16(i))&f.mask]
		for !m.writable && i+1 < n {
			i++
			m = &f.marks[(f.first+uint16(i))&f.mask]
		}
		q.ring.used[(q.usedIdx+uint16(first))&q.mask] = usedElem{id: uint32(m.head), length: m.written}
	}
}

// wantsCall decides on one call for the chains from old to usedIdx.
func (q *DeviceQueue) wantsCall(old uint16) bool {
	// StoreLoad: used.idx must be visible before the driver's wish is read
	// (2.7.7.2). Else we read the wish of a driver that is about to sleep and has
	// just looked at the old index, and both wait.
	q.ring.fence()
	if !q.eventIdx {
		return *q.ring.availFlags&availNoInterrupt == 0
	}
	// Before the first decision nobody knows what the driver has seen: call.
	if !q.signalled {
		q.signalled = true
		return true
	}
	return crossed(*q.ring.usedEvent, q.usedIdx, old)
}

// ArmKick asks the driver to kick when it adds a chain, and reports whether
// there are chains already; then no kick may follow and the device must go on.
func (q *DeviceQueue) ArmKick() (more bool) { return q.ArmKickBeyond(0) }

// ArmKickBeyond asks for a kick when more than n chains are available, and
// reports whether that many are already. A device that needs several buffers at
// once waits with it for more than the few that are there. Without EVENT_IDX the
// driver kicks for every chain.
func (q *DeviceQueue) ArmKickBeyond(n int) (more bool) {
	if q.broken != nil {
		return false
	}
	n = min(max(n, 0), len(q.ring.desc)-1)
	q.stats.KicksWanted++
	if q.eventIdx {
		*q.ring.availEvent = q.lastAvail + uint16(n)
		q.dirty.availEvent(len(q.ring.desc))
	} else {
		q.setUsedFlags(0)
	}
	// StoreLoad: the wish must be visible before avail.idx is read again
	// (2.7.10.2), for the same reason as in wantsCall.
	q.ring.fence()
	q.refill()
	return int(q.availIdx-q.lastAvail) > n
}

// DisarmKick tells the driver not to kick while the device works or polls. With
// EVENT_IDX the stale avail_event does that: the driver has passed it.
func (q *DeviceQueue) DisarmKick() {
	if q.broken == nil && !q.eventIdx {
		q.setUsedFlags(usedNoNotify)
	}
}

// RevokeKick takes back what ArmKick asked for, when nothing has come since.
func (q *DeviceQueue) RevokeKick() {
	if q.broken != nil {
		return
	}
	if q.eventIdx {
		*q.ring.availEvent = q.lastAvail - 1 // passed
		q.dirty.availEvent(len(q.ring.desc))
	} else {
		q.setUsedFlags(usedNoNotify)
	}
}

func (q *DeviceQueue) setUsedFlags(flags uint16) {
	if q.usedFlags != flags {
		q.usedFlags = flags
		q.ring.storeUsed(flags, q.usedIdx)
		q.dirty.usedIndex()
	}
}

// Reclaim returns unread, with length 0, the chains between used.idx and the
// base that a device before us popped and never completed (a backend that died,
// or a frontend that resumes at avail.idx), so that the driver gets its buffers
// back. It must be called before the first Pop and returns how many there were.
// It is for rings whose chains were always completed in order, as ours are.
func (q *DeviceQueue) Reclaim() int {
	n := int(q.lastAvail - q.usedIdx)
	if q.broken != nil || q.flight.count != 0 || n == 0 || n > len(q.ring.desc) {
		return 0
	}
	old := q.usedIdx
	for i := range uint16(n) {
		head := q.ring.avail[(old+i)&q.mask]
		if int(head) >= len(q.ring.desc) {
			q.fail(HeadRange, uint64(head))
			return 0
		}
		q.ring.used[(old+i)&q.mask] = usedElem{id: uint32(head)}
	}
	q.dirty.usedElems(old, n, q.mask)
	q.usedIdx = q.lastAvail
	q.ring.storeUsed(q.usedFlags, q.usedIdx)
	q.dirty.usedIndex()
	if q.callFD >= 0 {
		signal(q.callFD)
	}
	return n
}

// SetCall replaces the call descriptor, -1 for none, and signals the new one
// once: a call may have fallen between the two (QEMU swaps them to mask
// interrupts and expects the pending one).
func (q *DeviceQueue) SetCall(fd int) {
	q.callFD, q.insist = nonblocking(fd), insist{needed: mayLose(fd)}
	if q.callFD >= 0 {
		signal(q.callFD)
	}
}

// SetErr replaces the err descriptor, -1 for none. A queue that is broken
// already says so on the new one.
func (q *DeviceQueue) SetErr(fd int) {
	if q.errFD = nonblocking(fd); q.errFD >= 0 && q.broken != nil {
		signal(q.errFD)
	}
}
