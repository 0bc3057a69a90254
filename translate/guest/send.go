package guest

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// maxPacket is the largest L4 packet of either family, in bytes: IPv4's length
// field counts its header too.
func maxPacket(v6 bool) int {
	if v6 {
		return 65535
	}
	return 65535 - wire.IPv4Len
}

// Reserve is Endpoint.Reserve; it returns nothing while the link is down.
func (p *Port) Reserve(header, payload, n int) []link.Slot {
	if !p.Up || p.EP == nil {
		return nil
	}
	slots := p.EP.Reserve(header, payload, n)
	p.open = len(slots) > 0
	return slots
}

// Commit is Endpoint.Commit for slots that Reserve of the Port has returned.
func (p *Port) Commit(k int) {
	p.open = false
	p.EP.Commit(k)
}

// Abandon gives back a reservation that a fault in guest memory has left open.
// Whoever recovers from such a fault calls it first.
func (p *Port) Abandon() {
	if p.open {
		p.Commit(0)
	}
}

// SendL4 sends one L4 packet whose checksum is complete. It is cut into IP
// fragments when it is longer than the MTU. It reports false, and nothing is
// sent, when the guest has no room, the link is down, or the packet is longer
// than IP can carry.
func (p *Port) SendL4(src, dst wire.Addr, proto uint8, ttl, tos uint8, l4 []byte) bool {
	return p.send(nil, src, dst, proto, ttl, tos, l4, nil)
}

// SendUDP sends one datagram, fragmented like SendL4.
func (p *Port) SendUDP(src wire.Addr, srcPort uint16, dst wire.Addr, dstPort uint16, payload []byte, ttl, tos uint8) bool {
	return p.SendUDPPartly(nil, src, srcPort, dst, dstPort, payload, ttl, tos)
}

// send sends the packet made of head and body, all or nothing when st is nil.
func (p *Port) send(st *Partial, src, dst wire.Addr, proto uint8, ttl, tos uint8, head, body []byte) bool {
	n := len(head) + len(body)
	if n > maxPacket(!dst.Is4()) {
		return false
	}
	l3 := p.L3Len(!dst.Is4())
	if l3-wire.EthLen+n > p.MTU() {
		return p.sendFragments(st, src, dst, proto, ttl, tos, head, body)
	}
	slots := p.Reserve(l3, n, 1)
	if len(slots) == 0 {
		return false
	}
	s := &slots[0]
	p.PutL3(s.Header, src, dst, proto, ttl, tos, n)
	s.Used = fill(s, head, body)
	s.Off = link.Offload{}
	p.Commit(1)
	return true
}

// cut returns the bytes [off, off+n) of a followed by b.
func cut(a, b []byte, off, n int) ([]byte, []byte) {
	if off >= len(a) {
		off -= len(a)
		return nil, b[off : off+n]
	}
	a = a[off:]
	if len(a) >= n {
		return a[:n], nil
	}
	return a, b[:n-len(a)]
}

// fill copies a, then b, into the payload room of s and returns their length.
func fill(s *link.Slot, a, b []byte) int {
	n := 0
	for _, seg := range s.Payload {
		k := copy(seg, a)
		a = a[k:]
		m := copy(seg[k:], b)
		b = b[m:]
		n += k + m
	}
	return n
}

// Fill copies b into the payload room of s and sets Used.
func Fill(s *link.Slot, b []byte) { s.Used = fill(s, b, nil) }
