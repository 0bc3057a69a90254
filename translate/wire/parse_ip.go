package wire

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

// IPv6 next-header values that the walk steps over (RFC 8200 4).
const (
	extHopByHop = 0
	extRouting  = 43
	extFragment = ProtoIPv6Fragment
	extDstOpts  = 60
)

// maxExt is how many extension headers one packet may have.
const maxExt = 8

func (p *Packet) ipv4(f *link.Frame) Verdict {
	if p.HeadLen < EthLen+IPv4Len {
		return Short
	}
	h := p.Head[EthLen:p.HeadLen]
	hl := int(h[0]&15) * 4
	if h[0]>>4 != 4 || hl < IPv4Len {
		return IPHeader
	}
	if len(h) < hl {
		return Short
	}
	if sumHeader(h[:hl]) != 0xffff {
		return IPChecksum
	}
	total := int(binary.BigEndian.Uint16(h[2:]))
	if total == 0 && f.Off.GSO != link.GSONone {
		total = f.Len - EthLen // a super-frame's length may be left to the segmenter
	}
	if total < hl || total > f.Len-EthLen {
		return Length
	}
	p.V6 = false
	p.TOS, p.TTL, p.Proto = h[1], h[8], h[9]
	p.ID = uint32(binary.BigEndian.Uint16(h[4:]))
	p.Src.set4(h[12:16])
	p.Dst.set4(h[16:20])
	p.L3Len = hl
	p.L4Off = EthLen + hl

	frag := binary.BigEndian.Uint16(h[6:])
	p.DontFrag = frag&0x4000 != 0
	p.Frag = frag&0x3fff != 0
	if p.Frag {
		return p.fragment(f, int(frag&0x1fff)*8, frag&0x2000 != 0, p.ID, total-hl)
	}
	return p.layer4(f, total-hl)
}

func (p *Packet) ipv6(f *link.Frame) Verdict {
	if p.HeadLen < EthLen+IPv6Len {
		return Short
	}
	h := p.Head[EthLen : EthLen+IPv6Len]
	first := binary.BigEndian.Uint32(h)
	if first>>28 != 6 {
		return IPHeader
	}
	n := int(binary.BigEndian.Uint16(h[4:]))
	if n == 0 && f.Off.GSO != link.GSONone {
		n = f.Len - EthLen - IPv6Len
	}
	if n > f.Len-EthLen-IPv6Len {
		return Length
	}
	p.V6 = true
	p.TOS, p.TTL, p.Proto = uint8(first>>20), h[7], h[6]
	p.ID = 0
	p.Src, p.Dst = Addr(h[8:24]), Addr(h[24:40])
	if p.Src.Is4() || p.Dst.Is4() {
		// v4-mapped addresses stand for IPv4 everywhere behind this. They belong
		// into programs, not on a wire (RFC 4291 2.5.5.2).
		return IPHeader
	}
	p.DontFrag, p.Frag = true, false
	p.L3Len = IPv6Len
	p.L4Off = EthLen + IPv6Len
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoICMPv6:
		return p.layer4(f, n)
	}
	return p.extensions(f, n)
}

// extensions walks the chain behind an IPv6 header whose payload has n bytes.
func (p *Packet) extensions(f *link.Frame, n int) Verdict {
	for i := 0; ; i++ {
		switch p.Proto {
		case extHopByHop, extRouting, extDstOpts, extFragment:
		default:
			return p.layer4(f, n)
		}
		if i == maxExt || p.Proto == extHopByHop && i != 0 {
			return Extension
		}
		if n < 8 {
			return Length
		}
		if p.HeadLen < p.L4Off+8 {
			return HeadersLong
		}
		x := p.Head[p.L4Off : p.L4Off+8]
		size := 8
		switch p.Proto {
		case extFragment:
			off := binary.BigEndian.Uint16(x[2:])
			if off&^6 != 0 { // not an atomic fragment (RFC 6946)
				p.Frag = true
				p.Proto = x[0]
				p.L3Len += size
				p.L4Off += size
				return p.fragment(f, int(off&^7), off&1 != 0, binary.BigEndian.Uint32(x[4:]), n-size)
			}
		case extRouting:
			if x[3] != 0 { // segments left: we are no waypoint (RFC 5095)
				return Extension
			}
			size = (int(x[1]) + 1) * 8
		default:
			size = (int(x[1]) + 1) * 8
		}
		if size > n {
			return Length
		}
		p.Proto = x[0]
		p.L3Len += size
		p.L4Off += size
		n -= size
	}
}

// fragment ends the parse of a fragment with n bytes of data.
func (p *Packet) fragment(f *link.Frame, off int, more bool, id uint32, n int) Verdict {
	if f.Off.NeedsCsum || f.Off.GSO != link.GSONone {
		return Offload
	}
	// Every fragment but the last has a multiple of 8 bytes, and none reaches
	// beyond the largest packet.
	if n == 0 || more && n&7 != 0 || off+n > 65535 {
		return Fragment
	}
	p.FragOff, p.MoreFrags, p.FragID = uint16(off), more, id
	p.PayloadOff, p.PayloadLen = p.L4Off, n
	return OK
}

// sumHeader is the folded sum of an IPv4 header, of any byte order.
func sumHeader(h []byte) uint16 {
	if len(h) != IPv4Len {
		return sumLE(h)
	}
	le := binary.LittleEndian
	return fold64(uint64(le.Uint32(h)) + uint64(le.Uint32(h[4:])) + uint64(le.Uint32(h[8:])) +
		uint64(le.Uint32(h[12:])) + uint64(le.Uint32(h[16:])))
}
