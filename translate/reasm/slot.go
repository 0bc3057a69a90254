package reasm

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// add takes a fragment into s. It reports false when the datagram must die.
func (s *slot) add(p *wire.Packet, f *link.Frame) bool {
	off, n := int(p.FragOff), p.PayloadLen
	end := off + n
	limit := max4
	if p.V6 {
		limit = max6
	}
	switch {
	case end > limit:
		return false
	case s.total != 0 && end > s.total: // behind the end
		return false
	case !p.MoreFrags && s.end > end: // an end before what is there, a second end too
		return false
	case off == 0 && n < headerLen(p.Proto):
		return false
	case !s.mark(off/8, (end+7)/8):
		return false
	case wire.Copy(s.mem[base+off:base+end], f, p.PayloadOff) != n:
		return false
	}
	if off == 0 {
		s.ethSrc, s.ethDst = p.EthSrc, p.EthDst
		s.ttl, s.tos, s.nextProto = p.TTL, p.TOS, p.Proto
	}
	if !p.MoreFrags {
		s.total = end
	}
	s.end = max(s.end, end)
	return true
}

// headerLen is what the first fragment must hold.
func headerLen(proto uint8) int {
	if proto == wire.ProtoTCP {
		return wire.TCPLen
	}
	return 8 // UDP, ICMP, an extension header
}

// mark notes the units [from, to) as received. It reports false if one of them
// was already.
func (s *slot) mark(from, to int) bool {
	s.have += to - from
	for from < to {
		w := from / 64
		last := min(to, (w+1)*64)
		mask := ^uint64(0) << (from % 64)
		if k := last % 64; k != 0 {
			mask &= 1<<k - 1
		}
		if s.seen[w]&mask != 0 {
			return false
		}
		s.seen[w] |= mask
		from = last
	}
	return true
}
