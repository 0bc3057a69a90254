package vhostuser

import "guestwire/vring/guestmem"

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
