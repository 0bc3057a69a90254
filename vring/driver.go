package vring

import "errors"

// DriverSeg is one buffer of a chain that the driver side adds.
type DriverSeg struct {
	GPA   uint64
	Len   uint32
	Write bool // the device writes it; such buffers come behind the others
}

// DriverStats counts what a driver side did since it was made.
type DriverStats struct {
	Added           uint64 // chains
	Used            uint64 // chains that came back
	Kicks           uint64
	KicksSuppressed uint64 // publishes for which the device wanted no kick
}

// outstanding is what the driver side remembers of a chain by its head. It never
// reads back from shared memory what it wrote there.
type outstanding struct {
	cookie   uint32
	writable uint32 // bytes the device may write
	descs    uint16 // descriptors taken from the table, 0: not in flight
}

// DriverQueue is the driver side of one split ring: for vhost-net, tests and
// load generators. It belongs to one goroutine.
type DriverQueue struct {
	ring ring
	mask uint16

	availIdx   uint16 // avail.idx with what was added
	published  uint16 // avail.idx as the device sees it
	availFlags uint16
	lastUsed   uint16 // next used entry to take
	usedIdx    uint16 // used.idx as last read

	// Free descriptors are a list in private memory, taken at one end and given
	// back at the other: in-order use then takes them in ring order, as 2.7.5
	// demands, without a case of its own.
	next     []uint16
	freeHead uint16
	freeTail uint16
	free     int
	chains   []outstanding // by head
	heads    []uint16      // by avail entry, for in-order completion

	batch    bool // in-order: chains up to batchEnd were returned by one element
	batchEnd uint16
	batchLen uint32

	tables    []rawDesc // indirect tables, perTable for each head
	tablesGPA uint64
	perTable  int

	eventIdx, inOrder bool
	kickFD, errFD     int
	index             int
	broken            *BrokenError
	stats             DriverStats
}

// NewDriverQueue starts the driver side of a ring over zeroed memory, or from
// c.Base and the used.idx that memory holds.
func NewDriverQueue(c Config) (*DriverQueue, error) {
	r, err := newRing(c.Size, c.Desc, c.Avail, c.Used)
	if err != nil {
		return nil, err
	}
	if r.availShift == 0 {
		return nil, errors.New("avail ring of the driver side is not aligned to 4 bytes")
	}
	n := int(c.Size)
	d := &DriverQueue{
		ring:      r,
		mask:      c.Size - 1,
		availIdx:  c.Base,
		published: c.Base,
		next:      make([]uint16, n),
		freeTail:  c.Size - 1,
		free:      n,
		chains:    make([]outstanding, n),
		heads:     make([]uint16, n),
		eventIdx:  c.EventIdx,
		inOrder:   c.InOrder,
		kickFD:    nonblocking(c.CallFD),
		errFD:     nonblocking(c.ErrFD),
		index:     c.Index,
	}
	for i := range d.next {
		d.next[i] = (uint16(i) + 1) & d.mask
	}
	if c.Indirect && len(c.Tables) >= n*descSize {
		if d.tables = descTable(c.Tables); d.tables == nil {
			return nil, errors.New("indirect tables are not aligned to 8 bytes")
		}
		d.tablesGPA, d.perTable = c.TablesGPA, len(d.tables)/n
	}
	_, d.lastUsed = r.loadUsed()
	d.usedIdx = d.lastUsed
	return d, nil
}

// Add puts one chain of segs into the ring, to be seen by the device at the next
// Publish, and returns its head. cookie comes back with it. It reports false
// when there is no room, or segs is empty or out of order.
func (d *DriverQueue) Add(segs []DriverSeg, cookie uint32) (head uint16, ok bool) {
	need := len(segs)
	indirect := need > 1 && need <= d.perTable
	if indirect {
		need = 1
	}
	if need == 0 || need > d.free || d.broken != nil {
		return 0, false
	}
	var writable uint32
	for i := range segs {
		if segs[i].Write {
			writable += segs[i].Len
		} else if i > 0 && segs[i-1].Write {
			return 0, false
		}
	}
	head = d.freeHead
	if indirect {
		d.addTable(head, segs)
	} else {
		d.addDirect(segs)
	}
	d.free -= need
	d.chains[head] = outstanding{cookie: cookie, writable: writable, descs: uint16(need)}
	d.heads[d.availIdx&d.mask] = head
	d.ring.avail[d.availIdx&d.mask] = head
	d.availIdx++
	d.stats.Added++
	return head, true
}

func (d *DriverQueue) addDirect(segs []DriverSeg) {
	at := d.freeHead
	for i := range segs {
		v := segs[i].descriptor()
		if i+1 < len(segs) {
			v.flags |= flagNext
			v.next = d.next[at]
		}
		d.ring.desc[at].store(v)
		at = d.next[at]
	}
	d.freeHead = at
}

func (d *DriverQueue) addTable(head uint16, segs []DriverSeg) {
	first := int(head) * d.perTable
	table := d.tables[first : first+d.perTable]
	for i := range segs {
		v := segs[i].descriptor()
		if i+1 < len(segs) {
			v.flags |= flagNext
			v.next = uint16(i) + 1
		}
		table[i].store(v)
	}
	d.ring.desc[head].store(descriptor{
		addr:   d.tablesGPA + uint64(first)*descSize,
		length: uint32(len(segs)) * descSize,
		flags:  flagIndirect,
	})
	d.freeHead = d.next[head]
}

func (s *DriverSeg) descriptor() descriptor {
	v := descriptor{addr: s.GPA, length: s.Len}
	if s.Write {
		v.flags = flagWrite
	}
	return v
}

// Publish makes all added chains available in one store and kicks the device
// once if it wants that.
func (d *DriverQueue) Publish() {
	old := d.published
	if d.availIdx == old || d.broken != nil {
		return
	}
	d.published = d.availIdx
	d.ring.storeAvail(d.availFlags, d.availIdx)
	// StoreLoad: avail.idx must be visible before the device's wish is read
	// (2.7.13.4.1), the mirror of the fence in wantsCall.
	d.ring.fence()
	var wanted bool
	if d.eventIdx {
		wanted = crossed(*d.ring.availEvent, d.availIdx, old)
	} else {
		flags, _ := d.ring.loadUsed()
		wanted = flags&usedNoNotify == 0
	}
	if !wanted {
		d.stats.KicksSuppressed++
		return
	}
	d.stats.Kicks++
	if d.kickFD >= 0 {
		signal(d.kickFD)
	}
}

// Free returns how many descriptors are free; a chain takes one for each buffer,
// or one in all when it fits an indirect table.
func (d *DriverQueue) Free() int { return d.free }

// Stats returns the counters.
func (d *DriverQueue) Stats() DriverStats { return d.stats }

// Broken returns why the queue broke, nil if it works.
func (d *DriverQueue) Broken() *BrokenError { return d.broken }

func (d *DriverQueue) fail(reason Reason, detail uint64) {
	if d.broken != nil {
		return
	}
	d.broken = &BrokenError{Queue: d.index, Reason: reason, Detail: detail}
	if d.errFD >= 0 {
		signal(d.errFD)
	}
}
