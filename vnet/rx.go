package vnet

import (
	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/vhostuser"
)

const (
	// rxSlots is the most slots that one reservation has.
	rxSlots = 256

	// rxEarly is how many chains are pushed before they are published within a
	// turn: the driver may start on them while more are filled.
	rxEarly = 64

	// minMergedGSO is the smallest merged ring that surely takes 64 KiB frames:
	// Linux posts buffers of at least 1,518+12 bytes, of which such a frame needs 43,
	// and lets half of the ring run empty before it posts more.
	minMergedGSO = 128
)

// rx is the receive ring: frames towards the guest.
type rx struct {
	q       *vring.DeviceQueue
	enabled bool
	hdr     int // length of the virtio header
	off     offloads
	merge   bool // a frame may span chains (MRG_RXBUF)

	// The open reservation. Every chain popped for it lies in chains, in ring
	// order, slot by slot; segs backs the slots' payloads.
	open            int // slots, 0: none open
	header, payload int
	slots           [rxSlots]link.Slot
	priv            [rxSlots]rxSlot
	chains          []vring.Chain
	popped          int // chains of the reservation
	segs            [][]byte
	scratch         [rxSlots][link.MaxHeader]byte

	short  bool // a reservation came back short: Writable is owed
	again  bool // and is due next turn, not at the next kick
	pushed int  // chains since the last publish
}

// rxSlot is what the device knows of a slot.
type rxSlot struct {
	first, n int    // its chains
	head     []byte // room for the headers when it lies in one piece, else nil
}

func (r *rx) negotiate(hdr int, features uint64) {
	r.hdr, r.off, r.merge = hdr, toGuest(features), features&vhostuser.NetFMrgRxbuf != 0
}

func (r *rx) start(q *vring.DeviceQueue) {
	r.q, r.short, r.again, r.open, r.popped, r.pushed = q, false, false, 0, 0, 0
	if q != nil {
		q.DisarmKick() // until a reservation comes back short
	}
}

func (r *rx) stop() {
	r.abandon()
	r.start(nil)
}

func (r *rx) publish() {
	r.q.Publish()
	r.pushed = 0
}

// abandon gives the chains of the open reservation back to the ring.
func (r *rx) abandon() {
	r.q.Rewind(r.popped)
	r.popped, r.open = 0, 0
}

// Reserve implements link.Endpoint. A slot takes the chains that come next in
// the ring, as few as hold it, so a frame that fits one buffer is in one.
func (d *Device) Reserve(header, payload, n int) (slots []link.Slot) {
	r := &d.rx
	if !d.up || header < 0 || header > link.MaxHeader || payload < 0 || header+payload > link.MaxFrame {
		return nil
	}
	defer d.guard()
	if r.open != 0 {
		r.abandon() // its owner fell over before Commit
	}
	r.header, r.payload, r.segs = header, payload, r.segs[:0]
	need := r.hdr + max(header+payload, minFrame)
	for i := range min(n, rxSlots) {
		if !d.gather(&r.priv[i], need) {
			break
		}
		r.lay(i)
		r.open++
	}
	if r.open < n {
		d.counters.RxShort++
		r.short = true
		if r.open == rxSlots {
			d.rxAgain()
		}
	}
	return r.slots[:r.open]
}

// gather pops the chains of one slot, which needs need bytes. When the ring has
// too few it puts back what it popped and reports false.
func (d *Device) gather(s *rxSlot, need int) bool {
	r := &d.rx
	s.first, s.n = r.popped, 0
	for room := 0; room < need; {
		c := r.next()
		if !d.popRx(c) {
			r.q.Rewind(s.n)
			r.popped = s.first
			return false
		}
		if s.n == 0 {
			if drop := r.unfit(c, need); drop != dropNone {
				if !d.discard(c, drop) {
					return false
				}
				continue
			}
		}
		room += int(c.WriteLen)
		r.popped++
		s.n++
	}
	return true
}

// popRx pops a chain. When there is none it asks for a kick at the next one,
// before the chains of a slot that stays incomplete are put back: it must be a
// new one that kicks, or a ring with too few buffers would do so for ever.
func (d *Device) popRx(c *vring.Chain) bool {
	r := &d.rx
	if r.q.Pop(c) {
		return true
	}
	if !r.q.ArmKick() {
		if r.q.Broken() != nil {
			d.turn.ask(d.loop) // to take the link down
		}
		return false
	}
	r.q.DisarmKick()
	if r.q.Pop(c) {
		return true
	}
	d.rxAgain() // the queue holds all the segments it can, until the next publish
	return false
}

// next returns the place for the next chain.
func (r *rx) next() *vring.Chain {
	if r.popped == len(r.chains) {
		r.chains = append(r.chains, vring.Chain{})
	}
	return &r.chains[r.popped]
}

// unfit says why a frame of need bytes cannot start in c.
func (r *rx) unfit(c *vring.Chain, need int) Drop {
	switch {
	case c.WriteLen == 0:
		return DropRxDirection
	case int(c.WriteLen) < r.hdr, !r.merge && int(c.WriteLen) < need:
		return DropRxShort
	}
	return dropNone
}

// discard completes a chain that cannot start a frame. Completion is in ring
// order, so behind slots that are open it has to wait: the reservation ends
// there, and the next one begins with the chain.
func (d *Device) discard(c *vring.Chain, drop Drop) bool {
	r := &d.rx
	if r.popped > 0 {
		r.q.Rewind(1)
		d.rxAgain()
		return false
	}
	d.drops[drop]++
	r.q.Push(c.Head, 0)
	r.pushed++
	return true
}

// lay makes slot i of its chains: the headers' place, and the payload behind it.
func (r *rx) lay(i int) {
	s, p := &r.slots[i], &r.priv[i]
	s.Header = r.scratch[i][:r.header:r.header]
	s.Used, s.Off = 0, link.Offload{}
	skip, left, from := r.hdr+r.header, r.payload, len(r.segs)
	p.head = nil
	for _, c := range r.chains[p.first : p.first+p.n] {
		for _, seg := range c.Writable {
			if skip > 0 {
				if skip == r.hdr+r.header && len(seg) >= skip {
					p.head = seg[:skip]
				}
				k := min(skip, len(seg))
				skip, seg = skip-k, seg[k:]
			}
			if k := min(left, len(seg)); k > 0 {
				r.segs = append(r.segs, seg[:k:k])
				left -= k
			}
		}
	}
	s.Payload = r.segs[from:len(r.segs):len(r.segs)]
}

// rxAgain has Writable called in the next turn.
func (d *Device) rxAgain() {
	d.rx.again = true
	d.turn.ask(d.loop)
}

// rxKicked is the driver's notification that it has posted buffers.
func (d *Device) rxKicked() {
	if d.up && d.rx.short {
		d.writable()
	}
}

// rxTurn delivers a Writable that was put off.
func (d *Device) rxTurn() {
	if d.up && d.rx.short && d.rx.again {
		d.writable()
	}
}

func (d *Device) writable() {
	r := &d.rx
	r.short, r.again = false, false
	r.q.DisarmKick()
	d.counters.Writables++
	d.h.Writable()
}
