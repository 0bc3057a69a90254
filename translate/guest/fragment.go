package guest

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Partial is how far a packet of many fragments has got. The zero value has not
// begun.
type Partial struct {
	off int    // bytes of L4 that are sent
	id  uint32 // identification of its fragments
}

// SendL4Partly is SendL4, but sends as many fragments as the guest has room for
// now. It reports true when the last one is sent, and st is zero again;
// otherwise the same call, made once more after Writable, goes on from there. A
// guest's ring may have room for fewer fragments than a packet has. st may be
// nil: all or nothing.
func (p *Port) SendL4Partly(st *Partial, src, dst wire.Addr, proto uint8, ttl, tos uint8, l4 []byte) bool {
	return p.send(st, src, dst, proto, ttl, tos, l4, nil)
}

// SendUDPPartly is SendUDP in the manner of SendL4Partly.
func (p *Port) SendUDPPartly(st *Partial, src wire.Addr, srcPort uint16, dst wire.Addr, dstPort uint16, payload []byte, ttl, tos uint8) bool {
	var h [wire.UDPLen]byte
	wire.PutUDP(h[:], srcPort, dstPort, len(payload), 0)
	sum := wire.PseudoHeader(src, dst, wire.ProtoUDP, wire.UDPLen+len(payload))
	sum = wire.Checksum(sum, h[:])
	wire.PutChecksum(h[:], wire.UDPCsumOff, wire.FinishUDP(wire.Checksum(sum, payload)))
	return p.send(st, src, dst, wire.ProtoUDP, ttl, tos, h[:], payload)
}

// sendFragments sends a packet as IP fragments: all or none when st is nil.
func (p *Port) sendFragments(st *Partial, src, dst wire.Addr, proto uint8, ttl, tos uint8, head, body []byte) bool {
	h := p.L3Len(!dst.Is4())
	if !dst.Is4() {
		h += wire.IPv6FragLen
	}
	step := (p.MTU() + wire.EthLen - h) &^ 7 // every fragment but the last: a multiple of 8
	if step <= 0 {
		return false
	}
	var at Partial
	if st != nil {
		at = *st
	}
	if at.off == 0 {
		at.id = p.fragmentID(dst.Is4())
	}
	n := len(head) + len(body)
	count := (n - at.off + step - 1) / step
	slots := p.Reserve(h, step, count)
	if len(slots) < count && st == nil {
		p.Abandon()
		return false
	}
	if len(slots) == 0 {
		return false
	}
	for i := range slots {
		k := min(step, n-at.off)
		s := &slots[i]
		p.putFragment(s.Header, src, dst, proto, ttl, tos, at, k, at.off+k < n)
		a, b := cut(head, body, at.off, k)
		s.Used = fill(s, a, b)
		s.Off = link.Offload{}
		at.off += k
	}
	p.Commit(len(slots))
	if at.off == n {
		at = Partial{}
	}
	if st != nil {
		*st = at
	}
	return at.off == 0
}

func (p *Port) fragmentID(v4 bool) uint32 {
	if v4 {
		p.id4++
		return uint32(p.id4)
	}
	p.id6++
	return p.id6
}

// putFragment writes the headers of a fragment with n bytes from at on.
func (p *Port) putFragment(b []byte, src, dst wire.Addr, proto uint8, ttl, tos uint8, at Partial, n int, more bool) {
	if dst.Is4() {
		wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv4)
		wire.PutIPv4(b[wire.EthLen:], &wire.IPv4Fields{
			Src: src, Dst: dst, Proto: proto, TTL: ttl, TOS: tos,
			ID: uint16(at.id), FragOff: at.off, MoreFrags: more, PayloadLen: n,
		})
		return
	}
	wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv6)
	wire.PutIPv6(b[wire.EthLen:], &wire.IPv6Fields{
		Src: src, Dst: dst, NextHeader: wire.ProtoIPv6Fragment, HopLimit: ttl, TrafficClass: tos,
		PayloadLen: wire.IPv6FragLen + n,
	})
	wire.PutIPv6Fragment(b[wire.EthLen+wire.IPv6Len:], proto, at.off, more, at.id)
}
