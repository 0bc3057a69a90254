package wire

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

// Parse reads the headers of f into p. A verdict other than OK means that the
// frame must be dropped; p is then good for nothing but EthSrc and EtherType.
func Parse(p *Packet, f *link.Frame) Verdict {
	p.copyHead(f)
	if p.HeadLen < EthLen {
		return Short
	}
	h := &p.Head
	p.EthDst = MAC(h[0:6])
	p.EthSrc = MAC(h[6:12])
	p.EtherType = binary.BigEndian.Uint16(h[12:])
	switch p.EtherType {
	case EtherIPv4:
		return p.ipv4(f)
	case EtherIPv6:
		return p.ipv6(f)
	case EtherARP:
		p.L4Off, p.PayloadOff, p.PayloadLen, p.Frag = EthLen, EthLen, f.Len-EthLen, false
		return OK
	case etherVLAN, etherQinQ:
		return VLAN
	}
	return EtherType
}

// copyHead gathers the first bytes of the frame.
func (p *Packet) copyHead(f *link.Frame) {
	n := 0
	for _, s := range f.Segs {
		n += copy(p.Head[n:], s)
		if n == HeadSize {
			break
		}
	}
	p.HeadLen = min(n, f.Len)
}
