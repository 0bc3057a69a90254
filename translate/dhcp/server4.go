package dhcp

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// input4 answers one DHCPv4 or BOOTP message.
func (s *Server) input4(msg []byte) {
	r := &s.r4
	if d, ok := r.parse(msg); !ok {
		s.drop(d)
		return
	}
	switch r.kind {
	case 0:
		s.reply4(0, &s.stats.Bootp)
	case discover4:
		if r.rapid {
			s.ack4()
		} else {
			s.reply4(offer4, &s.stats.Offers)
		}
	case request4m:
		s.request()
	case inform4:
		if r.ciaddr.IsZero() {
			s.drop(DropFormat)
			return
		}
		s.reply4(ack4, &s.stats.Acks)
	case release4:
		s.stats.Releases++
	case decline4:
		s.stats.Declines++
		if s.stats.Declines == 1 {
			s.logf("guest declined the address %s: it has seen another machine use it", s.c.Addr4)
		}
	default:
		s.drop(DropKind)
	}
}

// request answers DHCPREQUEST in the four states of RFC 2131 4.3.2: selecting has
// a server identifier, init-reboot only a requested address, renewing and
// rebinding only ciaddr. We have authority over the link, so a wish for any other
// address is refused in each of them.
func (s *Server) request() {
	r := &s.r4
	if !r.server.IsZero() && r.server != s.port.Gateway4 {
		s.drop(DropServer)
		return
	}
	wanted := r.requested
	if wanted.IsZero() {
		wanted = r.ciaddr
	}
	switch wanted {
	case wire.Addr{}:
		s.drop(DropFormat)
	case s.c.Addr4:
		s.ack4()
	default:
		s.reply4(nak4, &s.stats.Naks)
	}
}

func (s *Server) ack4() {
	s.reply4(ack4, &s.stats.Acks)
	s.port.Addr4 = s.c.Addr4
}

// reply4 sends a reply to the request at hand.
func (s *Server) reply4(kind uint8, count *uint64) {
	const head = wire.EthLen + wire.IPv4Len + wire.UDPLen
	r := &s.r4
	dst, mac := s.destination(kind)
	n := s.message4(s.out[head:head+s.limit4()], kind)

	udp := s.out[head-wire.UDPLen : head+n]
	wire.PutUDP(udp, Port4, clientPort4, n, 0)
	sum := wire.PseudoHeader(s.port.Gateway4, dst, wire.ProtoUDP, len(udp))
	wire.PutChecksum(udp, wire.UDPCsumOff, wire.FinishUDP(wire.Checksum(sum, udp)))
	wire.PutIPv4(s.out[wire.EthLen:], &wire.IPv4Fields{
		Src: s.port.Gateway4, Dst: dst, Proto: wire.ProtoUDP, TTL: 64, DontFrag: true, PayloadLen: len(udp),
	})
	wire.PutEthernet(s.out[:], mac, s.port.OurMAC, wire.EtherIPv4)
	if !s.port.Up || !link.Send(s.port.EP, s.out[:link.MaxHeader], s.out[link.MaxHeader:head+n], link.Offload{}) {
		s.drop(DropNoRoom)
		return
	}
	*count++
	if r.kind != 0 && s.port.MAC.IsZero() {
		s.port.MAC = r.chaddr
	}
}

// limit4 is how long a message may be: what the client takes (RFC 2132 9.10
// counts the IP datagram, at least 576) and what the link carries.
func (s *Server) limit4() int {
	n := max(s.r4.maxSize, 576)
	if mtu := s.port.Caps.MTU; mtu > 0 {
		n = min(n, mtu)
	}
	return max(min(n, maxMessage-wire.EthLen)-wire.IPv4Len-wire.UDPLen, minReply)
}

// destination follows RFC 2131 4.1. A client that has its address is answered
// there; one that has not is answered at the address it is given, which it
// cannot resolve yet, so at its MAC, or by broadcast if it cannot take that.
func (s *Server) destination(kind uint8) (wire.Addr, wire.MAC) {
	r := &s.r4
	switch {
	case kind == nak4:
	case !r.ciaddr.IsZero():
		return r.ciaddr, r.chaddr
	case !r.broadcast:
		return s.c.Addr4, r.chaddr
	}
	return wire.Addr4([4]byte{255, 255, 255, 255}), wire.Broadcast
}

// message4 writes the reply into b and returns its length.
func (s *Server) message4(b []byte, kind uint8) int {
	r := &s.r4
	clear(b[:fixed4])
	b[0], b[1], b[2] = 2, ethernet, 6 // BOOTREPLY
	copy(b[4:8], r.xid[:])
	copy(b[10:12], r.flags[:])
	if kind != nak4 {
		ciaddr, gateway := r.ciaddr.As4(), s.port.Gateway4.As4()
		copy(b[12:16], ciaddr[:])
		copy(b[20:24], gateway[:]) // siaddr
		if r.kind != inform4 {
			yiaddr := s.c.Addr4.As4()
			copy(b[16:20], yiaddr[:])
		}
	}
	copy(b[28:34], r.chaddr[:])
	copy(b[offMagic:fixed4], magic[:])

	w := writer4{b: b, n: fixed4}
	s.options4(&w, kind)
	b[w.n] = optEnd
	w.n++
	if w.n < minReply {
		clear(b[w.n:minReply])
		w.n = minReply
	}
	return w.n
}
