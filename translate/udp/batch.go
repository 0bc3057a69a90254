package udp

import (
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// maxItems is how many datagrams (USO frames count once) are gathered before
// they are sent.
const maxItems = 256

// item is one frame's payload in the batch.
type item struct {
	next     uint16 // of the same flow, 0: last
	segs     uint16 // how many slices from at on
	at       uint32 // index in batch.segs
	len      int
	gso      int // datagram size of a USO frame, 0: one datagram
	ttl, tos uint8
}

// batch holds what Input has noted: per flow a list of items, and the list of
// flows, all by index.
type batch struct {
	items       []item // [0] is unused
	segs        [][]byte
	first, last uint32 // conns with items, linked by conn.next
	served      uint32 // listeners with items, linked by listener.next
}

func (b *batch) init() {
	b.items = make([]item, 1, maxItems+1)
	b.segs = make([][]byte, 0, 4*maxItems)
}

// drop forgets everything, slices of guest memory above all.
func (b *batch) drop() {
	clear(b.segs)
	b.items, b.segs = b.items[:1], b.segs[:0]
	b.first, b.last, b.served = 0, 0, 0
}

// note appends p's payload to the batch of conn i.
func (e *Engine) note(i uint32, c *conn, p *wire.Packet, f *link.Frame, gso int, ttl uint8) {
	b := &e.batch
	if len(b.items) > maxItems {
		e.EndBatch()
	}
	at := len(b.segs)
	b.segs = wire.Payload(b.segs, f, p.PayloadOff, p.PayloadLen)
	n := uint16(len(b.items))
	b.items = append(b.items, item{
		at: uint32(at), segs: uint16(len(b.segs) - at), len: p.PayloadLen, gso: gso, ttl: ttl, tos: p.TOS,
	})
	if c.listener == 0 {
		c.idle.run = 0
	} else {
		e.listeners[c.listener].idle.run = 0
	}
	if c.first != 0 {
		b.items[c.final].next = n
		c.final = n
		return
	}
	c.first, c.final, c.next = n, n, 0
	if c.listener != 0 {
		e.noteServed(i, c)
		return
	}
	if b.last != 0 {
		e.conns.At(b.last).next = i
	} else {
		b.first = i
	}
	b.last = i
}

// noteServed adds a conn to the list of its listener.
func (e *Engine) noteServed(i uint32, c *conn) {
	l := &e.listeners[c.listener]
	if l.first != 0 {
		e.conns.At(l.final).next = i
		l.final = i
		return
	}
	l.first, l.final = i, i
	l.next, e.batch.served = e.batch.served, c.listener
}

// EndBatch sends what Input has gathered. It is called before the batch's
// frames go back to the guest.
func (e *Engine) EndBatch() {
	b := &e.batch
	if len(b.items) == 1 {
		return
	}
	for i := b.first; i != 0; {
		c := e.conns.At(i)
		e.gather(i, c, e.d.Flows.At(c.flow).FD)
		e.flush(e.d.Flows.At(c.flow).FD)
		i = c.next
	}
	for n := b.served; n != 0; {
		l := &e.listeners[n]
		for i := l.first; i != 0; {
			c := e.conns.At(i)
			e.gather(i, c, l.fd)
			i = c.next
		}
		e.flush(l.fd)
		l.first, l.final = 0, 0
		n = l.next
	}
	b.drop()
}

// gather turns the items of conn i into messages.
func (e *Engine) gather(i uint32, c *conn, fd hostsock.FD) {
	e.d.Flows.Touch(c.flow, e.d.Timers.Now())
	for n := c.first; n != 0; {
		x := &e.batch.items[n]
		if x.gso != 0 && x.len > x.gso {
			e.super(i, c, n, fd)
			n = x.next
			continue
		}
		n = e.run(i, c, n, fd)
	}
	c.first, c.final = 0, 0
}
