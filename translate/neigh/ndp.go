package neigh

import (
	"encoding/binary"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

const (
	icmpRedirect = 137 // the other types are in wire

	optSourceLL = 1
	optTargetLL = 2

	naRouter    = 1 << 31 // flags of a neighbour advertisement, RFC 4861 4.4
	naSolicited = 1 << 30
	naOverride  = 1 << 29

	hopLimit = 255 // proves that a message did not cross a router
)

var (
	allNodes        = wire.Addr{0: 0xff, 1: 0x02, 15: 1}
	solicitedPrefix = [13]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff} // ff02::1:ff00:0/104
)

// options are those of a message that matter here.
type options struct {
	source, target       wire.MAC
	hasSource, hasTarget bool
}

// parseOptions walks the options. Lengths are in units of 8 bytes and cover type
// and length, so 0 is illegal (RFC 4861 4.6) and every step advances.
func parseOptions(b []byte) (o options, ok bool) {
	for len(b) > 0 {
		if len(b) < 2 {
			return o, false
		}
		n := int(b[1]) * 8
		if n == 0 || n > len(b) {
			return o, false
		}
		switch b[0] {
		case optSourceLL:
			o.source, o.hasSource = wire.MAC(b[2:8]), true
		case optTargetLL:
			o.target, o.hasTarget = wire.MAC(b[2:8]), true
		}
		b = b[n:]
	}
	return o, true
}

// fixed is the length of each message without options.
func fixed(icmpType uint8) int {
	if icmpType == wire.ICMPv6RouterSolicit {
		return 8
	}
	return 24 // neighbour solicitation and advertisement: a target address follows
}

// ndp validates what all messages have in common (RFC 4861 6.1.1, 7.1.1, 7.1.2).
func (n *Neighbour) ndp(p *wire.Packet, f *link.Frame) {
	switch {
	case p.ICMPType == wire.ICMPv6RouterAdvert || p.ICMPType == icmpRedirect:
		n.drop(DropRouter)
		return
	case p.TTL != hopLimit:
		n.drop(DropHopLimit)
		return
	case p.Frag || p.ICMPCode != 0 || p.L4Len() > len(n.msg): // RFC 6980: no fragments
		n.drop(DropFormat)
		return
	case p.L4Len() < fixed(p.ICMPType):
		n.drop(DropShort)
		return
	}
	msg := n.msg[:wire.Copy(n.msg[:p.L4Len()], f, p.L4Off)]
	if len(msg) < p.L4Len() {
		n.drop(DropShort)
		return
	}
	o, ok := parseOptions(msg[fixed(p.ICMPType):])
	switch {
	case !ok:
		n.drop(DropOption)
		return
	case o.hasSource && (p.Src.IsZero() || o.source != p.EthSrc), p.Src.IsMulticast():
		n.drop(DropFormat)
		return
	case n.isOurs(p.Src):
		n.drop(DropClaim)
		return
	}
	switch p.ICMPType {
	case wire.ICMPv6RouterSolicit:
		n.routerSolicit(p)
	case wire.ICMPv6NeighSolicit:
		n.neighSolicit(p, wire.Addr(msg[8:24]))
	case wire.ICMPv6NeighAdvert:
		n.neighAdvert(p, wire.Addr(msg[8:24]), &o)
	default:
		n.drop(DropFormat)
	}
}

// neighSolicit answers for target. Without a source address it is duplicate
// address detection (RFC 4862 5.4.3): the guest is about to take target.
func (n *Neighbour) neighSolicit(p *wire.Packet, target wire.Addr) {
	dad := p.Src.IsZero()
	if target.IsMulticast() || target.Is4() || dad && [13]byte(p.Dst[:13]) != solicitedPrefix {
		n.drop(DropFormat)
		return
	}
	if !dad {
		n.learn(p.Src, p.EthSrc)
	} else if !n.isOurs(target) {
		n.learn(target, p.EthSrc) // a guest that only serves says no more than this
	}
	if !n.answersNDP(target, p.Src, dad) {
		n.drop(DropOther)
		return
	}
	if !n.limit.take(n.timers.Now()) {
		n.drop(DropRate)
		return
	}
	if dad {
		n.sendNA(target, allNodes, wire.MAC{0x33, 0x33, 0, 0, 0, 1}, 0)
		return
	}
	n.sendNA(target, p.Src, p.EthSrc, naSolicited)
}

func (n *Neighbour) answersNDP(target, src wire.Addr, dad bool) bool {
	switch {
	case n.isOurs(target):
		return true
	case dad, n.isGuest(target), target == src, target.IsUnspecified(), target.IsLoopback():
		return false
	}
	return target.IsLinkLocal() && !target.Is4() || n.c.Net6.IsValid() && n.c.Net6.Contains(target.ToNetip())
}

// neighAdvert learns the guest's address from an answer to our probe, or from an
// announcement.
func (n *Neighbour) neighAdvert(p *wire.Packet, target wire.Addr, o *options) {
	switch {
	case n.isOurs(target):
		n.drop(DropClaim)
	case target.IsMulticast(), target.Is4(), o.hasTarget && o.target != p.EthSrc:
		n.drop(DropFormat)
	default:
		n.learn(target, p.EthSrc)
	}
}

// sendNA advertises target. Override is left out for what we only stand in for
// (RFC 4861 7.2.8), Router is set for what we are.
func (n *Neighbour) sendNA(target, dst wire.Addr, mac wire.MAC, flags uint32) {
	if n.isOurs(target) {
		flags |= naRouter | naOverride
	}
	b := n.out[n.port.L3Len(true):]
	k := wire.PutICMP(b, wire.ICMPv6NeighAdvert, 0, flags)
	k += copy(b[k:], target[:])
	k += putLL(b[k:], optTargetLL, n.port.OurMAC)
	if n.sendICMP(target, dst, mac, k) {
		n.stats.Advertisements++
	}
}

// sendNS asks the guest for target.
func (n *Neighbour) sendNS(target wire.Addr) {
	dst := target
	copy(dst[:13], solicitedPrefix[:])
	b := n.out[n.port.L3Len(true):]
	k := wire.PutICMP(b, wire.ICMPv6NeighSolicit, 0, 0)
	k += copy(b[k:], target[:])
	k += putLL(b[k:], optSourceLL, n.port.OurMAC)
	mac := wire.MAC{0x33, 0x33, dst[12], dst[13], dst[14], dst[15]} // RFC 2464 7
	if n.sendICMP(n.port.OurLL6, dst, mac, k) {
		n.stats.Probes++
	}
}

func putLL(b []byte, option uint8, mac wire.MAC) int {
	b[0], b[1] = option, 1
	copy(b[2:8], mac[:])
	return 8
}

// sendICMP completes the message of k bytes that lies in out behind the headers.
func (n *Neighbour) sendICMP(src, dst wire.Addr, mac wire.MAC, k int) bool {
	head := wire.PutEthernet(n.out[:], mac, n.port.OurMAC, wire.EtherIPv6)
	head += wire.PutIPv6(n.out[head:], &wire.IPv6Fields{
		Src: src, Dst: dst, NextHeader: wire.ProtoICMPv6, HopLimit: hopLimit, PayloadLen: k,
	})
	msg := n.out[head : head+k]
	binary.BigEndian.PutUint16(msg[wire.ICMPCsumOff:], 0)
	sum := wire.PseudoHeader(src, dst, wire.ProtoICMPv6, k)
	wire.PutChecksum(msg, wire.ICMPCsumOff, wire.Finish(wire.Checksum(sum, msg)))
	return n.send(head + k)
}
