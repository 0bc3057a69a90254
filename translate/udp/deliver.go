package udp

import (
	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// maxRunSlots is how many frames are reserved at a time.
const maxRunSlots = 64

// shape is how a stretch of the received messages goes to the guest.
type shape uint8

const (
	nobody shape = iota // its flow has ended
	plain               // a frame per datagram
	super               // one USO frame for a whole message
	pieces              // IP fragments
	never               // too long for the guest's IP version
)

// deliver passes on what was read. It reports false when the guest has no room
// for the rest.
func (e *Engine) deliver() bool {
	r := &e.rx
	for r.i < r.n {
		var ok bool
		switch c, sh := e.shape(r.i, r.off); sh {
		case nobody:
			e.stats.dropGone++
			r.part = guest.Partial{}
			e.next()
			continue
		case never:
			e.stats.dropLong++
			e.next()
			continue
		case super:
			ok = e.superFrame(c)
		case pieces:
			ok = e.fragments(c)
		default:
			ok = e.frames()
		}
		if !ok {
			return false
		}
	}
	return true
}

// next goes on to the next message.
func (e *Engine) next() { e.rx.i, e.rx.off = e.rx.i+1, 0 }

// size is the datagram size of message i; the last of a run may be shorter.
func (r *incoming) size(i int) int {
	m := &r.msgs[i]
	if m.SegSize > 0 && m.SegSize < m.N {
		return m.SegSize
	}
	return m.N
}

// shape looks at message i from offset off on.
func (e *Engine) shape(i, off int) (*conn, shape) {
	r := &e.rx
	c := e.conns.Resolve(r.conn[i])
	if c == nil {
		return nil, nobody
	}
	v6 := !e.d.Flows.At(c.flow).Key.Remote.Is4()
	l3 := e.d.Port.L3Len(v6) - wire.EthLen
	size := r.size(i)
	switch {
	case !v6 && size+wire.UDPLen+l3 > 65535, r.msgs[i].Trunc:
		return c, never
	case l3+wire.UDPLen+size > e.d.Port.MTU():
		return c, pieces
	case e.d.Port.Caps.USO && e.d.Port.Caps.Csum && r.msgs[i].N-off > size:
		return c, super
	}
	return c, plain
}

// frames sends datagrams of the plain shape, of one IP version, as many as
// there are in a row.
func (e *Engine) frames() bool {
	r := &e.rx
	first := e.conns.Resolve(r.conn[r.i])
	v6 := !e.d.Flows.At(first.flow).Key.Remote.Is4()
	n, longest := e.count(v6)
	slots := e.d.Port.Reserve(e.d.Port.L3Len(v6)+wire.UDPLen, longest, n)
	if len(slots) == 0 {
		return false
	}
	for k := range slots {
		c := e.conns.Resolve(r.conn[r.i])
		m := &r.msgs[r.i]
		b := r.bufs[r.i][0][r.off:min(m.N, r.off+r.size(r.i))]
		e.frame(&slots[k], c, m.TTL, m.TOS, b, 0)
		if r.off += len(b); r.off >= m.N {
			e.next()
		}
	}
	e.d.Port.Commit(len(slots))
	e.stats.toGuest += uint64(len(slots))
	return len(slots) == n
}

// count says how many frames of the same IP version come in a row, and how long
// the longest payload is.
func (e *Engine) count(v6 bool) (n, longest int) {
	r := &e.rx
	off := r.off
	for i := r.i; i < r.n; i++ {
		c, sh := e.shape(i, off)
		if sh != plain || e.d.Flows.At(c.flow).Key.Remote.Is4() == v6 {
			break
		}
		size := r.size(i)
		longest = max(longest, min(size, r.msgs[i].N-off))
		if size > 0 {
			n += (r.msgs[i].N - off + size - 1) / size
		} else {
			n++
		}
		off = 0
		if n >= maxRunSlots {
			return maxRunSlots, longest
		}
	}
	return n, longest
}

// frame fills a slot with one datagram, or with a run of datagrams of gso bytes.
func (e *Engine) frame(s *link.Slot, c *conn, ttl, tos uint8, b []byte, gso int) {
	k := &e.d.Flows.At(c.flow).Key
	if ttl == 0 {
		ttl = guest.DefaultTTL
	}
	n := wire.UDPLen + len(b)
	l3 := e.d.Port.PutL3(s.Header, k.Remote, k.Guest, wire.ProtoUDP, ttl, tos, n)
	sum := wire.PseudoHeader(k.Remote, k.Guest, wire.ProtoUDP, n)
	u := s.Header[l3 : l3+wire.UDPLen]
	wire.PutUDP(u, k.RemotePort, k.GuestPort, len(b), wire.Fold(sum))
	guest.Fill(s, b)
	if e.d.Port.Caps.Csum {
		s.Off = link.Offload{NeedsCsum: true, CsumStart: uint16(l3), CsumOff: wire.UDPCsumOff}
		if gso > 0 {
			s.Off.GSO, s.Off.SegSize = link.GSOUDP, uint16(gso)
		}
		return
	}
	s.Off = link.Offload{}
	wire.PutChecksum(u, wire.UDPCsumOff, 0)
	sum = wire.Checksum(wire.Checksum(sum, u), b)
	wire.PutChecksum(u, wire.UDPCsumOff, wire.FinishUDP(sum))
}

// superFrame sends the rest of a message as one USO frame.
func (e *Engine) superFrame(c *conn) bool {
	r := &e.rx
	m := &r.msgs[r.i]
	size := r.size(r.i)
	h := e.d.Port.L3Len(!e.d.Flows.At(c.flow).Key.Remote.Is4()) + wire.UDPLen
	n := min(m.N-r.off, (65535+wire.EthLen-h)/size*size)
	slots := e.d.Port.Reserve(h, n, 1)
	if len(slots) == 0 {
		return false
	}
	e.frame(&slots[0], c, m.TTL, m.TOS, r.bufs[r.i][0][r.off:r.off+n], size)
	e.d.Port.Commit(1)
	e.stats.toGuest += uint64((n + size - 1) / size)
	if r.off += n; r.off >= m.N {
		e.next()
	}
	return true
}

// fragments sends one datagram longer than the guest's MTU, in as many goes as
// the guest's room makes it take.
func (e *Engine) fragments(c *conn) bool {
	r := &e.rx
	m := &r.msgs[r.i]
	k := &e.d.Flows.At(c.flow).Key
	b := r.bufs[r.i][0][r.off:min(m.N, r.off+r.size(r.i))]
	ttl := m.TTL
	if ttl == 0 {
		ttl = guest.DefaultTTL
	}
	if !e.d.Port.SendUDPPartly(&r.part, k.Remote, k.RemotePort, k.Guest, k.GuestPort, b, ttl, m.TOS) {
		return false
	}
	e.stats.toGuest++
	e.stats.fragmented++
	if r.off += len(b); r.off >= m.N {
		e.next()
	}
	return true
}
