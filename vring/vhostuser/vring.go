package vhostuser

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
)

// pollPeriod is how often a ring without a kick descriptor is looked at. It is a
// fallback for drivers that poll anyway; a millisecond is the wheel's resolution.
const pollPeriod = eventloop.Time(1_000_000)

// ring is one virtqueue as the backend knows it. It is the loop's Source for its
// kick and the Expirer of its polling.
type ring struct {
	b     *backend
	index int
	state RingState

	size uint16
	addr VringAddr
	base uint16 // where the next queue starts; what the last one came to
	prev uint16 // what the last queue came to, 0 after a reset

	kick, call, errfd int // -1: none
	kickToken         eventloop.Token
	edges             bool // the kick reports every write as an edge and need not be read
	poll              eventloop.TimerID

	q      *vring.DeviceQueue // while Running
	next   *vring.DeviceQueue // made by ActTry, becomes q by ActStart
	views  [3][]byte          // of the memory that is being mapped, for ActRemap
	broken *vring.BrokenError // why the state is Broken, or was
	stats  vring.QueueStats   // of the queues before q
}

func (r *ring) init(b *backend, i int) {
	*r = ring{b: b, index: i, kick: -1, call: -1, errfd: -1}
}

// Ready implements eventloop.Source: the driver kicked, or we asked ourselves.
func (r *ring) Ready(_ uint32, ev eventloop.Events) {
	if ev&^eventloop.Again != 0 && !r.edges {
		if err := drainEvent(r.kick); err != nil || ev&eventloop.In == 0 {
			// A pipe whose writer is gone would wake us for ever.
			r.b.logf("ring %d: kick descriptor is of no use any more, polling instead", r.index)
			r.closeKick()
			r.armPoll()
		}
	}
	r.serve()
}

// Expired implements eventloop.Expirer for rings without a kick descriptor.
func (r *ring) Expired(uint32) {
	r.armPoll()
	r.serve()
}

func (r *ring) serve() {
	if r.state.Phase != Running {
		return
	}
	r.b.dev.Kick(r.index)
	r.noticeBroken()
}

// Break implements eventloop.Breaker: the device fell while it served this ring.
func (r *ring) Break(err error) { r.b.fault(err) }

// noticeBroken lets the state catch up with a queue that broke in the device's
// hands.
func (r *ring) noticeBroken() {
	if r.q == nil || r.q.Broken() == nil {
		return
	}
	r.broken = r.q.Broken()
	r.b.logf("ring %d is broken: %v", r.index, r.broken)
	r.b.apply(r, EvBreak)
}

// apply feeds ev to r and does what comes of it.
func (b *backend) apply(r *ring, ev Event) error {
	next, act := r.state.Step(ev)
	if act&ActRefuse != 0 {
		return refusef("ring %d is in use", r.index)
	}
	if act&ActStop != 0 {
		b.stop(r)
	}
	dropKick := r.state.Has&^next.Has&HasKick != 0
	r.state = next
	if dropKick {
		r.closeKick()
	}
	if act&ActTry != 0 {
		return b.try(r)
	}
	if act&ActStart != 0 {
		b.start(r)
	}
	if act&ActRemap != 0 {
		if err := r.q.SetMem(b.mem, r.views[0], r.views[1], r.views[2]); err != nil {
			b.logf("ring %d: %v", r.index, err)
			b.apply(r, EvUnmapped)
			return nil
		}
	}
	if act&ActRelog != 0 {
		b.relog(r)
	}
	if act&(ActEnable|ActDisable) != 0 {
		b.dev.Enable(r.index, next.Enabled)
	}
	if act&ActPoke != 0 {
		r.poke()
	}
	return nil
}

// try starts a waiting ring if everything it needs is there. A ring that has to
// wait is no error: memory may come later.
func (b *backend) try(r *ring) error {
	if b.loop.Now() < b.holdUntil {
		b.loop.Timers().Set(b.holdTimer, b.holdUntil)
		return nil
	}
	if !r.resolve() {
		return nil
	}
	c := vring.Config{
		Index: r.index, Size: r.size, Mem: b.mem,
		Desc: r.views[0], Avail: r.views[1], Used: r.views[2],
		Base:     r.startIndex(),
		EventIdx: b.features&RingFEventIdx != 0,
		Indirect: b.features&RingFIndirectDesc != 0,
		InOrder:  b.features&FInOrder != 0,
		CallFD:   r.call, ErrFD: r.errfd,
		Log: b.activeLog(), LogAddr: r.addr.Log, LogUsed: r.addr.Flags&vringAddrLog != 0,
	}
	q, err := vring.NewDeviceQueue(c)
	if err != nil {
		return refusal{err}
	}
	r.next = q
	return b.apply(r, EvMapped)
}

// startIndex is the avail index to start from: the used index that the ring
// itself names. It is the base that the frontend set unless chains were taken by
// a backend that died with them, or the frontend resumes from elsewhere. We
// complete in order, so the chains from the used index on are exactly those that
// the driver waits for: none of its buffers are lost, at worst a packet is sent
// twice. DPDK decides the same.
func (r *ring) startIndex() uint16 {
	used := r.views[2]
	idx := uint16(used[2]) | uint16(used[3])<<8
	if idx != r.base {
		r.b.logf("ring %d: starting at its used index %d instead of %d", r.index, idx, r.base)
	}
	return idx
}

// start hands r.next to the device. A ring set up from zero that had come
// further before belongs to a guest that starts anew (a frontend without
// RESET_DEVICE has no other way to say so; one that only paused the guest names
// the base that it was told).
func (b *backend) start(r *ring) {
	if r.base == 0 && r.prev != 0 {
		b.restartGuest()
	}
	r.q, r.next, r.broken = r.next, nil, nil
	b.dev.Start(r.index, r.q)
	r.armPoll()
}

// stop takes r.q back.
func (b *backend) stop(r *ring) {
	b.dev.Stop(r.index)
	if r.edges {
		_ = drainEvent(r.kick) // QEMU looks there for kicks that nobody served
	}
	r.base = r.q.LastAvail()
	r.prev = r.base
	r.stats = addStats(r.stats, r.q.Stats())
	r.q = nil
	b.loop.Timers().Stop(r.poll)
}

// breakAll takes every ring from the device after a fault, without another
// access to memory that may be gone.
func (b *backend) breakAll() {
	for i := range b.rings {
		r := &b.rings[i]
		if r.q != nil {
			r.q.Break(vring.UsedFault)
			r.noticeBroken()
		}
	}
}

// restartGuest tells the device of a new guest while rings of it may run.
func (b *backend) restartGuest() {
	for i := range b.rings {
		if r := &b.rings[i]; r.q != nil {
			b.dev.Stop(i)
		}
	}
	b.resetGuest()
	for i := range b.rings {
		if r := &b.rings[i]; r.q != nil {
			b.dev.Start(i, r.q)
			r.poke()
		}
	}
}

// poke has the loop call Ready behind others. A polled ring needs no poke.
func (r *ring) poke() { r.b.loop.Again(r.kickToken) }

func (r *ring) armPoll() {
	if r.kick < 0 && r.state.Phase == Running {
		w := r.b.loop.Timers()
		if r.poll == 0 {
			r.poll = w.New(r, 0)
		}
		w.Set(r.poll, r.b.loop.Now()+pollPeriod)
	}
}

func (r *ring) closeKick() {
	r.b.loop.Remove(r.kickToken)
	r.kickToken = 0
	if r.kick >= 0 {
		unix.Close(r.kick)
		r.kick, r.edges = -1, false
	}
}

// close forgets everything about the ring, after EvReset.
func (r *ring) close() {
	r.closeKick()
	for _, fd := range [...]*int{&r.call, &r.errfd} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	r.size, r.addr, r.base, r.prev, r.broken = 0, VringAddr{}, 0, 0, nil
	r.stats = vring.QueueStats{}
}

func addStats(a, b vring.QueueStats) vring.QueueStats {
	a.Pops += b.Pops
	a.Pushes += b.Pushes
	a.Publishes += b.Publishes
	a.Calls += b.Calls
	a.CallsSuppressed += b.CallsSuppressed
	a.KicksWanted += b.KicksWanted
	return a
}
