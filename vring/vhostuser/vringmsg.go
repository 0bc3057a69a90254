package vhostuser

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
)

// ringAt returns the ring with the index of a message, which is looked at in
// full width: narrowing it first has been a hole in other backends.
func (b *backend) ringAt(index uint64) (*ring, error) {
	if index >= uint64(len(b.rings)) {
		return nil, refusef("ring %d of %d", index, len(b.rings))
	}
	r := &b.rings[index]
	r.noticeBroken()
	return r, nil
}

func (b *backend) setVringNum(m *message) error {
	index, num := m.state()
	r, err := b.ringAt(uint64(index))
	switch {
	case err != nil:
		return err
	case num == 0 || num > vring.MaxSize || num&(num-1) != 0:
		return refusef("ring %d: size %d", index, num)
	case r.state.Phase == Running && r.state.Enabled && num == uint32(r.size):
		return nil
	}
	old := r.size
	r.size = uint16(num)
	if err := b.apply(r, EvNum); err != nil {
		r.size = old
		return err
	}
	return nil
}

func (b *backend) setVringBase(m *message) error {
	index, base := m.state()
	r, err := b.ringAt(uint64(index))
	switch {
	case err != nil:
		return err
	case base > 0xffff:
		return refusef("ring %d: base %#x", index, base)
	}
	if err := b.apply(r, EvBase); err != nil {
		return err
	}
	r.base = uint16(base)
	return nil
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

// getVringBase stops the ring and says how far it came: 0 if it never ran, the
// same again if it is asked again.
func (b *backend) getVringBase(m *message) error {
	index, _ := m.state()
	r, err := b.ringAt(uint64(index))
	if err != nil {
		return hostile{err} // the reply has no way to say no
	}
	b.apply(r, EvGetBase)
	m.reply = order.AppendUint32(m.reply[:0], index)
	m.reply = order.AppendUint32(m.reply, uint32(r.base))
	m.replied = true
	return nil
}

func (b *backend) setVringEnable(m *message) error {
	index, on := m.state()
	r, err := b.ringAt(uint64(index))
	switch {
	case err != nil:
		return err
	case on > 1:
		return refusef("ring %d: enable %d", index, on)
	case on == 1:
		return b.apply(r, EvEnable)
	}
	return b.apply(r, EvDisable)
}

// eventFD decodes SET_VRING_KICK, CALL and ERR: the ring and the descriptor, -1
// for none. The descriptor stays the message's until it is taken.
func (b *backend) eventFD(m *message, d direction) (*ring, int, error) {
	v := m.u64()
	if v&^(vringIndexMask|vringNoFD) != 0 {
		return nil, -1, refusef("ring %#x", v)
	}
	r, err := b.ringAt(v & vringIndexMask)
	switch noFD := v&vringNoFD != 0; {
	case err != nil:
		return nil, -1, err
	case noFD && len(m.fds) == 0:
		return r, -1, nil
	case noFD || len(m.fds) == 0:
		return nil, -1, refusef("ring %d: %d descriptors, invalid-fd flag %v", r.index, len(m.fds), noFD)
	}
	if err := prepareEvent(m.fds[0], d); err != nil {
		return nil, -1, refusef("ring %d: %w", r.index, err)
	}
	return r, m.fds[0], nil
}

func (b *backend) setVringKick(m *message) error {
	r, fd, err := b.eventFD(m, toRead)
	if err != nil {
		return err
	}
	var t eventloop.Token
	edges := fd >= 0 && isEventfd(fd)
	if fd >= 0 {
		ev := eventloop.In
		if edges {
			ev |= eventloop.Edge
		}
		if t, err = b.loop.Add(fd, ev, r, uint32(r.index)); err != nil {
			return refusef("ring %d: kick: %w", r.index, err)
		}
		m.take(0)
	}
	r.closeKick()
	r.kick, r.kickToken, r.edges = fd, t, edges
	b.loop.Timers().Stop(r.poll)
	r.armPoll()
	return b.apply(r, EvKick)
}

// setVringCall may come while the ring runs: QEMU masks and unmasks interrupts
// by exchanging call descriptors. What was signalled into the old one may not
// have been seen, so the new one is signalled once.
func (b *backend) setVringCall(m *message) error {
	r, fd, err := b.eventFD(m, toWrite)
	if err != nil {
		return err
	}
	if fd >= 0 {
		m.take(0)
	}
	old := r.call
	r.call = fd
	if r.q != nil {
		r.q.SetCall(fd) // signals it
	}
	if old >= 0 {
		unix.Close(old)
	}
	return nil
}

func (b *backend) setVringErr(m *message) error {
	r, fd, err := b.eventFD(m, toWrite)
	if err != nil {
		return err
	}
	if fd >= 0 {
		m.take(0)
	}
	old := r.errfd
	r.errfd = fd
	if r.q != nil {
		r.q.SetErr(fd)
	}
	if old >= 0 {
		unix.Close(old)
	}
	return nil
}
