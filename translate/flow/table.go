package flow

import (
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// MaxFlows is the largest table that can be asked for.
const MaxFlows = 1 << 20

// Protocols share limits and LRU order by class; ICMP and ICMPv6 are one.
const (
	classTCP = iota
	classUDP
	classEcho
	classOther
	nClasses
)

func classOf(proto uint8) int {
	switch proto {
	case 6:
		return classTCP
	case 17:
		return classUDP
	case 1, 58:
		return classEcho
	}
	return classOther
}

// class is what the table keeps for one class of protocols. Its list is ordered
// by Flow.Last, oldest first, because time never goes back.
type class struct {
	oldest, newest uint32
	limit          int
	count          [nStates]int
	len            int
}

// Table finds flows by key. It is owned by one loop.
type Table struct {
	slab    Slab[Flow]
	index   index
	hash    hasher
	classes [nClasses]class
}

// NewTable makes an empty table for at most limit flows (clamped to
// 1..MaxFlows). secret keys the hash: random, and shown to nobody.
func NewTable(limit int, secret [16]byte) *Table {
	limit = min(max(limit, 1), MaxFlows)
	t := &Table{hash: newHasher(secret)}
	t.slab.max = limit
	for c := range t.classes {
		t.classes[c].limit = limit
	}
	t.index.grow()
	return t
}

// SetLimit caps the flows of proto's class. Flows beyond a lowered limit stay;
// new ones are refused.
func (t *Table) SetLimit(proto uint8, limit int) { t.classes[classOf(proto)].limit = limit }

// Lookup finds the flow of k.
func (t *Table) Lookup(k *Key) (uint32, bool) {
	return t.lookup(k, uint32(t.hash.sum(k)))
}

func (t *Table) lookup(k *Key, h uint32) (uint32, bool) {
	cells := t.index.cells
	mask := uint32(len(cells) - 1)
	for p := h & mask; ; p = (p + 1) & mask {
		cell := cells[p]
		if cell == 0 {
			return 0, false
		}
		if uint32(cell>>32) == h && t.slab.At(uint32(cell)).Key == *k {
			return uint32(cell), true
		}
	}
}

// Insert adds a flow in state Opening, initiated by the guest until the caller
// says otherwise. It reports false when k is already there or a limit is reached.
func (t *Table) Insert(k *Key, now eventloop.Time) (uint32, bool) {
	c := &t.classes[classOf(k.Proto)]
	if c.len >= c.limit {
		return 0, false
	}
	h := uint32(t.hash.sum(k))
	if _, dup := t.lookup(k, h); dup {
		return 0, false
	}
	i, f := t.slab.Get()
	if f == nil {
		return 0, false
	}
	f.Key, f.FD, f.Last, f.State, f.hash = *k, hostsock.None, now, Opening, h
	t.index.insert(h, i)
	t.append(c, i, f)
	c.len++
	c.count[Opening]++
	return i, true
}

// Remove ends a flow. Its index may be reused by the next Insert. The caller has
// closed the socket and freed its Slot. Removing twice is harmless.
func (t *Table) Remove(i uint32) {
	if !t.slab.Taken(i) {
		return
	}
	f := t.slab.At(i)
	c := &t.classes[classOf(f.Key.Proto)]
	t.index.remove(f.hash, i)
	t.unlink(c, f)
	c.len--
	c.count[f.State]--
	t.slab.Put(i)
}

// At returns flow i, which must be in the table.
func (t *Table) At(i uint32) *Flow { return t.slab.At(i) }

// Handle returns the handle of flow i, which must be in the table.
func (t *Table) Handle(i uint32) Handle { return t.slab.Handle(i) }

// Get returns the flow that h was made for, nil when it has been removed.
func (t *Table) Get(h Handle) *Flow { return t.slab.Resolve(h) }

// Advance moves flow i on to state s. It reports false, and changes nothing,
// when that is not a step forward or i is not a flow.
func (t *Table) Advance(i uint32, s State) bool {
	if !t.slab.Taken(i) {
		return false
	}
	f := t.slab.At(i)
	if s <= f.State || s >= nStates {
		return false
	}
	c := &t.classes[classOf(f.Key.Proto)]
	c.count[f.State]--
	c.count[s]++
	f.State = s
	return true
}

// Touch notes traffic on flow i: it becomes the newest of its class.
func (t *Table) Touch(i uint32, now eventloop.Time) {
	f := t.slab.At(i)
	f.Last = now
	if f.next == 0 {
		return
	}
	c := &t.classes[classOf(f.Key.Proto)]
	t.unlink(c, f)
	t.append(c, i, f)
}

// OldestIdle returns the flow of proto's class that has been without traffic for
// longest: the one to give up under pressure, or to test for expiry.
func (t *Table) OldestIdle(proto uint8) (uint32, bool) {
	i := t.classes[classOf(proto)].oldest
	return i, i != 0
}

// Newer returns the flow that follows i in the order of OldestIdle.
func (t *Table) Newer(i uint32) (uint32, bool) {
	n := t.slab.At(i).next
	return n, n != 0
}

// All calls f for every flow until f returns false. f may Remove the flow it is
// called for.
func (t *Table) All(f func(i uint32, f *Flow) bool) { t.slab.All(f) }

// Len returns the number of flows.
func (t *Table) Len() int { return t.slab.Len() }

// LenProto returns the number of flows of proto's class.
func (t *Table) LenProto(proto uint8) int { return t.classes[classOf(proto)].len }

// Count returns the number of flows of proto's class in state s.
func (t *Table) Count(proto uint8, s State) int {
	if s >= nStates {
		return 0
	}
	return t.classes[classOf(proto)].count[s]
}

// append puts f at the newest end of c's list.
func (t *Table) append(c *class, i uint32, f *Flow) {
	f.prev, f.next = c.newest, 0
	if c.newest != 0 {
		t.slab.At(c.newest).next = i
	} else {
		c.oldest = i
	}
	c.newest = i
}

func (t *Table) unlink(c *class, f *Flow) {
	if f.prev != 0 {
		t.slab.At(f.prev).next = f.next
	} else {
		c.oldest = f.next
	}
	if f.next != 0 {
		t.slab.At(f.next).prev = f.prev
	} else {
		c.newest = f.prev
	}
}
