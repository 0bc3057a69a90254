package vhostuser

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/guestmem"
)

// region decodes r as this session means it: with GPA_ADDRESSES a ring address is
// a guest address, and whatever the region says of user addresses is void.
func (b *backend) region(r guestmem.Region) guestmem.Region {
	if b.protocol&ProtocolFGPAAddresses != 0 {
		r.UVA = r.GPA
	}
	return r
}

func (b *backend) setMemTable(m *message) error {
	rs, err := parseMemTable(m.payload, m.fds)
	if err != nil {
		return refusal{err}
	}
	for i := range rs {
		rs[i] = b.region(rs[i])
	}
	t, err := guestmem.Map(rs)
	if err != nil {
		return refusal{err}
	}
	b.setMem(t)
	return nil
}

func (b *backend) getMaxMemSlots(m *message) error { return m.answer(guestmem.MaxRegions) }

func (b *backend) addMemReg(m *message) error {
	r := b.region(parseRegion(m.payload[8:]))
	r.FD = m.fds[0]
	t, err := b.mem.Add(r)
	if err != nil {
		return refusal{err}
	}
	b.setMem(t)
	return nil
}

func (b *backend) remMemReg(m *message) error {
	t, err := b.mem.Remove(b.region(parseRegion(m.payload[8:])))
	if err != nil {
		return refusal{err}
	}
	b.setMem(t)
	return nil
}

// setMem changes guest memory under the rings. We are on the loop, between
// batches, so no chain is being worked on. Every ring gets its addresses
// translated anew, whether or not the frontend repeats them (VPP and SPDK both
// learned this from their users); one that is not wholly inside the new memory
// stops, while the old is still mapped, and starts again when a later table has
// it. Then the old memory goes.
func (b *backend) setMem(t *guestmem.Table) {
	old := b.mem
	b.mem = t
	for i := range b.rings {
		r := &b.rings[i]
		r.noticeBroken()
		switch {
		case r.state.Phase == Running && r.resolve():
			b.apply(r, EvMapped)
		case r.state.Phase == Running:
			b.logf("ring %d is not inside guest memory any more", i)
			b.apply(r, EvUnmapped)
		case r.state.Phase == Waiting:
			if err := b.try(r); err != nil {
				b.logf("ring %d: %v", i, err)
			}
		}
	}
	old.Close()
}

// resolve translates the ring's three areas, at their full length, into views.
func (r *ring) resolve() bool {
	n := uint64(r.size)
	r.views = [3][]byte{
		r.b.mem.UserSlice(r.addr.Desc, 16*n),
		r.b.mem.UserSlice(r.addr.Avail, 6+2*n),
		r.b.mem.UserSlice(r.addr.Used, 6+8*n),
	}
	return r.views[0] != nil && r.views[1] != nil && r.views[2] != nil
}

func (b *backend) setVringAddr(m *message) error {
	a := parseVringAddr(m.payload)
	r, err := b.ringAt(uint64(a.Index))
	switch {
	case err != nil:
		return err
	case a.Flags&^vringAddrLog != 0:
		return refusef("ring %d: address flags %#x", a.Index, a.Flags)
	case a.Desc%16 != 0 || a.Avail%2 != 0 || a.Used%4 != 0: // virtio 1.3, 2.7
		return refusef("ring %d: misaligned: descriptors %#x, avail %#x, used %#x", a.Index, a.Desc, a.Avail, a.Used)
	}
	old := r.addr
	r.addr = a
	// Without memory or size there is nothing to check against yet; then try
	// decides later. Some frontends are in no particular order here.
	if b.mem != nil && r.state.Has&HasNum != 0 && !r.resolve() {
		r.addr = old
		return refusef("ring %d: not inside guest memory: descriptors %#x, avail %#x, used %#x, size %d",
			a.Index, a.Desc, a.Avail, a.Used, r.size)
	}
	ev := EvMove
	if a.Desc == old.Desc && a.Avail == old.Avail && a.Used == old.Used {
		ev = EvAddr
	}
	return b.apply(r, ev)
}

// setLogBase replaces the dirty log, also while it is in use. It is answered
// even without NEED_REPLY (vhost-user, "Communication"), so a refusal is, too.
func (b *backend) setLogBase(m *message) error {
	size, offset := order.Uint64(m.payload), order.Uint64(m.payload[8:])
	l, err := guestmem.MapLog(m.fds[0], size, offset)
	if err == nil && !l.Covers(b.mem) {
		l.Close()
		err = refusef("log of %d bytes does not cover guest memory", size)
	}
	if err != nil {
		b.logf("SET_LOG_BASE refused: %v", err)
		return m.answer(1)
	}
	old := b.log
	b.log = l
	b.relogAll()
	old.Close()
	return m.answer(0)
}

// setLogFD takes the descriptor on which the frontend wants to hear of changes
// in the log. It is optional, and no frontend is known to wait on it, so it gets
// a plain period instead of a place on the data path.
func (b *backend) setLogFD(m *message) error {
	if err := prepareEvent(m.fds[0], toWrite); err != nil {
		return refusal{err}
	}
	b.closeLogFD()
	b.logFD = m.take(0)
	b.armLogTick()
	return nil
}

func (b *backend) closeLogFD() {
	if b.logFD >= 0 {
		unix.Close(b.logFD)
		b.logFD = -1
	}
}

func (b *backend) armLogTick() {
	if b.logFD >= 0 && b.activeLog() != nil {
		b.loop.Timers().Set(b.logTimer, b.loop.Now()+logPeriod)
	}
}

func (b *backend) logTick() {
	if b.logFD >= 0 && b.activeLog() != nil {
		signalEvent(b.logFD)
		b.armLogTick()
	}
}

// activeLog is the log that rings mark: none unless LOG_ALL is on.
func (b *backend) activeLog() *guestmem.Log {
	if b.features&VhostFLogAll == 0 {
		return nil
	}
	return b.log
}

func (b *backend) relog(r *ring) {
	r.q.SetLog(b.activeLog(), r.addr.Log, r.addr.Flags&vringAddrLog != 0)
}

func (b *backend) relogAll() {
	for i := range b.rings {
		if r := &b.rings[i]; r.q != nil {
			b.relog(r)
		}
	}
	b.armLogTick()
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
