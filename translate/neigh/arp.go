package neigh

import (
	"encoding/binary"

	"guestwire/translate/wire"
)

// ARP for IPv4 over Ethernet (RFC 826): hardware type 1, protocol 0x0800,
// lengths 6 and 4, in 28 bytes.
const (
	arpLen     = 28
	arpRequest = 1
	arpReply   = 2
)

var arpFixed = [6]byte{0, 1, 0x08, 0x00, 6, 4}

// arpPacket is the variable part.
type arpPacket struct {
	op        uint16
	senderMAC wire.MAC
	sender    wire.Addr
	targetMAC wire.MAC
	target    wire.Addr
}

func parseARP(b []byte) (a arpPacket, d Drop, ok bool) {
	if len(b) < arpLen {
		return a, DropShort, false
	}
	if [6]byte(b[:6]) != arpFixed {
		return a, DropFormat, false
	}
	a.op = binary.BigEndian.Uint16(b[6:])
	a.senderMAC = wire.MAC(b[8:14])
	a.sender = wire.Addr4([4]byte(b[14:18]))
	a.targetMAC = wire.MAC(b[18:24])
	a.target = wire.Addr4([4]byte(b[24:28]))
	return a, 0, true
}

func putARP(b []byte, a *arpPacket) int {
	copy(b, arpFixed[:])
	binary.BigEndian.PutUint16(b[6:], a.op)
	copy(b[8:14], a.senderMAC[:])
	sender, target := a.sender.As4(), a.target.As4()
	copy(b[14:18], sender[:])
	copy(b[18:24], a.targetMAC[:])
	copy(b[24:28], target[:])
	return arpLen
}

func (n *Neighbour) arp(p *wire.Packet) {
	a, d, ok := parseARP(p.Head[wire.EthLen:max(p.HeadLen, wire.EthLen)])
	switch {
	case !ok:
		n.drop(d)
		return
	case a.senderMAC != p.EthSrc, a.senderMAC.IsMulticast(), a.sender.IsMulticast(), a.sender.IsBroadcast(),
		a.op != arpRequest && a.op != arpReply:
		n.drop(DropFormat)
		return
	case n.isOurs(a.sender):
		n.drop(DropClaim)
		return
	}
	n.learn(a.sender, a.senderMAC)
	// An announcement (sender is target) is no question, and nobody caches it
	// here.
	if a.op == arpReply || a.sender == a.target {
		return
	}
	if !n.answersARP(&a) {
		n.drop(DropOther)
		return
	}
	if !n.limit.take(n.timers.Now()) {
		n.drop(DropRate)
		return
	}
	n.sendARP(p.EthSrc, &arpPacket{
		op: arpReply, senderMAC: n.port.OurMAC, sender: a.target, targetMAC: a.senderMAC, target: a.sender,
	}, &n.stats.ARPReplies)
}

// answersARP says whether the target is ours to answer for. A probe for a
// conflict (RFC 5227 2.1.1: no sender address) asks whether somebody really
// holds the address.
func (n *Neighbour) answersARP(a *arpPacket) bool {
	switch {
	case n.isOurs(a.target):
		return true
	case n.isGuest(a.target), a.sender.IsUnspecified():
		return false
	}
	t := a.target.ToNetip()
	if !n.c.Net4.IsValid() || !n.c.Net4.Contains(t) {
		return false
	}
	// Below /31 the first and last address name the link itself.
	hostBits := uint32(1)<<(32-n.c.Net4.Bits()) - 1
	host := binary.BigEndian.Uint32(a.target[12:]) & hostBits
	return n.c.Net4.Bits() >= 31 || host != 0 && host != hostBits
}

func (n *Neighbour) sendARP(dst wire.MAC, a *arpPacket, count *uint64) {
	k := wire.PutEthernet(n.out[:], dst, n.port.OurMAC, wire.EtherARP)
	k += putARP(n.out[k:], a)
	if n.send(k) {
		*count++
	}
}
