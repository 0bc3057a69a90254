package vhostnet

import (
	"guestwire/vnet/link"
	"guestwire/vnet/tap"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostkern"
)

// outEarly is how many bytes are published within a turn: the kernel may start on
// them while more are made.
const outEarly = 64 << 10

// output is the ring of frames towards the namespace.
type output struct {
	q *vring.DriverQueue // nil: detached

	// The open reservation: its slots, where each lies in the arena.
	open            int
	header, payload int
	slots           [outRing]link.Slot
	places          [outRing]uint32
	segs            [outRing][1][]byte

	free  [outRing]uint32 // places that are not the kernel's, a stack
	nFree int

	added int  // bytes not published
	short bool // a reservation came back short: Writable is owed
	seg   [1]vring.DriverSeg
}

func (e *Endpoint) layOut() (err error) {
	o := &e.out
	for i := range o.free {
		o.free[i] = uint32(i)
	}
	o.nFree, o.open, o.added, o.short = outRing, 0, 0, false
	o.q, err = e.layRing(outRingAt, outRing, vhostkern.TX, toKick)
	return err
}

// Reserve implements link.Endpoint.
func (e *Endpoint) Reserve(header, payload, n int) []link.Slot {
	o := &e.out
	if !e.up || header < 0 || header > link.MaxHeader || payload < 0 || header+payload > link.MaxFrame {
		return nil
	}
	o.reclaim()
	o.header, o.payload, o.open = header, payload, min(n, o.nFree)
	if o.open < n {
		e.short()
	}
	for i := range o.open {
		place := o.free[o.nFree-1-i]
		at := outAt + int(place)*outSlot + tap.HdrLen
		body, end := at+header, at+header+payload
		s := &o.slots[i]
		s.Header = e.arena.Mem[at:body:body]
		s.Used, s.Off, s.Payload = 0, link.Offload{}, nil
		if payload > 0 {
			o.segs[i][0] = e.arena.Mem[body:end:end]
			s.Payload = o.segs[i][:]
		}
		o.places[i] = place
	}
	return o.slots[:o.open]
}

// short notes that there were too few slots, and sees to it that Writable follows:
// when half of those that are the kernel's have come back.
func (e *Endpoint) short() {
	o := &e.out
	e.stats.RxShort++
	o.short = true
	out := outRing - o.nFree
	if out == 0 || o.q.Broken() != nil || o.q.ArmCallBeyond(out/2) {
		e.loop.Again(e.events[toCall].token) // nothing but the end of the turn holds it up
	}
}

// reclaim takes back the slots that the kernel has returned.
func (o *output) reclaim() {
	for {
		place, _, ok := o.q.Used()
		if !ok {
			return
		}
		o.free[o.nFree] = place
		o.nFree++
	}
}

// Commit implements link.Endpoint.
func (e *Endpoint) Commit(k int) {
	o := &e.out
	k = min(k, o.open) // none are open when the rings went away under the reservation
	o.nFree -= k
	for i := range k {
		if !e.send(&o.slots[i], o.places[i]) {
			o.free[o.nFree] = o.places[i]
			o.nFree++
		}
	}
	o.open = 0
	if o.added >= outEarly {
		e.publish()
	}
}

// send adds the frame of a slot to the ring. It reports false when the slot stays
// ours.
func (e *Endpoint) send(s *link.Slot, place uint32) bool {
	o := &e.out
	at, n := uint64(outAt)+uint64(place)*outSlot, o.header+s.Used
	if s.Used < 0 || s.Used > o.payload || !tap.Encode(e.arena.Mem[at:], &s.Off, o.header, n) {
		e.stats.RxOffload++
		return false
	}
	o.seg[0] = vring.DriverSeg{GPA: e.arena.Addr + at, Len: uint32(tap.HdrLen + n)}
	if _, ok := o.q.Add(o.seg[:], place); !ok {
		e.loop.Again(e.events[toCall].token) // the ring is broken: not to be told under the handler's feet
		return false
	}
	e.stats.RxFrames++
	e.stats.RxBytes += uint64(n)
	o.added += n
	return true
}

// publish shows the kernel what was added, with at most one kick.
func (e *Endpoint) publish() {
	e.loop.Worked(eventloop.ToGuest, e.out.added)
	e.out.q.Publish()
	e.out.added = 0
}

// flush publishes at the end of a turn. It touches our own memory alone and calls
// nobody, so there is nothing in it to fall.
func (e *Endpoint) flush() {
	if e.out.q != nil && e.out.added > 0 {
		e.publish()
	}
}

// returned tells a handler that waits that there are slots again.
func (e *Endpoint) returned() {
	if o := &e.out; !e.broken() && o.short {
		o.short = false
		e.h.Writable()
	}
}
