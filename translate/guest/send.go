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
	return p.send(src, dst, proto, ttl, tos, l4, nil)
}

// SendUDP sends one datagram, fragmented like SendL4.
func (p *Port) SendUDP(src wire.Addr, srcPort uint16, dst wire.Addr, dstPort uint16, payload []byte, ttl, tos uint8) bool {
	var h [wire.UDPLen]byte
	wire.PutUDP(h[:], srcPort, dstPort, len(payload), 0)
	sum := wire.PseudoHeader(src, dst, wire.ProtoUDP, wire.UDPLen+len(payload))
	sum = wire.Checksum(sum, h[:])
	wire.PutChecksum(h[:], wire.UDPCsumOff, wire.FinishUDP(wire.Checksum(sum, payload)))
	return p.send(src, dst, wire.ProtoUDP, ttl, tos, h[:], payload)
}

// send sends the packet made of head and body.
func (p *Port) send(src, dst wire.Addr, proto uint8, ttl, tos uint8, head, body []byte) bool {
	n := len(head) + len(body)
	if n > maxPacket(!dst.Is4()) {
		return false
	}
	l3 := p.L3Len(!dst.Is4())
	if l3-wire.EthLen+n > p.MTU() {
		return p.sendFragments(src, dst, proto, ttl, tos, head, body)
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

// sendFragments sends a packet as IP fragments, all or none of them.
func (p *Port) sendFragments(src, dst wire.Addr, proto uint8, ttl, tos uint8, head, body []byte) bool {
	h := p.L3Len(!dst.Is4())
	if !dst.Is4() {
		h += wire.IPv6FragLen
	}
	step := (p.MTU() + wire.EthLen - h) &^ 7 // every fragment but the last: a multiple of 8
	if step <= 0 {
		return false
	}
	n := len(head) + len(body)
	count := (n + step - 1) / step
	slots := p.Reserve(h, step, count)
	if len(slots) < count {
		if len(slots) > 0 {
			p.Commit(0)
		}
		return false
	}
	p.id4++
	p.id6++
	for i := range slots {
		off := i * step
		k := min(step, n-off)
		s := &slots[i]
		p.putFragment(s.Header, src, dst, proto, ttl, tos, off, k, off+k < n)
		a, b := cut(head, body, off, k)
		s.Used = fill(s, a, b)
		s.Off = link.Offload{}
	}
	p.Commit(count)
	return true
}

// putFragment writes the headers of a fragment with n bytes from offset off.
func (p *Port) putFragment(b []byte, src, dst wire.Addr, proto uint8, ttl, tos uint8, off, n int, more bool) {
	if dst.Is4() {
		wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv4)
		wire.PutIPv4(b[wire.EthLen:], &wire.IPv4Fields{
			Src: src, Dst: dst, Proto: proto, TTL: ttl, TOS: tos,
			ID: p.id4, FragOff: off, MoreFrags: more, PayloadLen: n,
		})
		return
	}
	wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv6)
	wire.PutIPv6(b[wire.EthLen:], &wire.IPv6Fields{
		Src: src, Dst: dst, NextHeader: wire.ProtoIPv6Fragment, HopLimit: ttl, TrafficClass: tos,
		PayloadLen: wire.IPv6FragLen + n,
	})
	wire.PutIPv6Fragment(b[wire.EthLen+wire.IPv6Len:], proto, off, more, p.id6)
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
