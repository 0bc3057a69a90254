package dhcp

import (
	"bytes"
	"net/netip"

	"guestwire/translate/wire"
)

// allAgents is All_DHCP_Relay_Agents_and_Servers (RFC 8415 7.1).
var allAgents = wire.Addr{0: 0xff, 1: 0x02, 13: 1, 15: 2}

// Status codes (RFC 8415 21.13).
const (
	statusSuccess       = 0
	statusNoAddrs       = 2
	statusNotOnLink     = 4
	statusUseMulticast  = 5
	statusNoPrefix      = 6
	preferenceImmediate = 255 // the client need not wait for other servers (21.8)
)

// input6 answers one DHCPv6 message.
func (s *Server) input6(p *wire.Packet, msg []byte) {
	r := &s.r6
	if d, ok := r.parse(msg); !ok {
		s.drop(d)
		return
	}
	// Clients send from a link-local address (RFC 8415 13).
	if !p.Src.IsLinkLocal() {
		s.drop(DropFormat)
		return
	}
	if d, ok := s.valid6(p.Dst == allAgents); !ok {
		s.drop(d)
		return
	}
	switch r.kind {
	case release6:
		s.stats.Releases++
	case decline6:
		s.stats.Declines++
		if s.stats.Declines == 1 {
			s.logf("guest declined the address %s: it has seen another machine use it", s.c.Addr6)
		}
	}
	kind, count := uint8(reply6), &s.stats.Replies
	if r.kind == solicit6 && !r.rapid {
		kind, count = advertise6, &s.stats.Advertises
	}
	w := writer6{b: s.out[:s.limit6()]}
	w.header(kind, r.xid)
	w.put(opt6ClientID, r.clientID)
	w.put(opt6ServerID, s.duid())
	multicast := p.Dst == allAgents
	if !multicast {
		w.status(statusUseMulticast)
	} else if !s.answer6(&w) {
		s.drop(DropFormat)
		return
	}
	if s.port.MAC.IsZero() {
		s.port.MAC = p.EthSrc
	}
	if !s.port.SendUDP(s.port.OurLL6, Port6, p.Src, clientPort6, w.b[:w.n], 64, 0) {
		s.drop(DropNoRoom)
		return
	}
	*count++
	if multicast && kind == reply6 && (r.kind == solicit6 || r.kind == request6m || r.kind == renew6 || r.kind == rebind6) && s.leases() {
		s.port.Addr6 = s.c.Addr6
	}
}

// valid6 applies RFC 8415 16 and, for messages that were not multicast, 18.4.
func (s *Server) valid6(multicast bool) (Drop, bool) {
	r := &s.r6
	needsServer := false
	switch r.kind {
	case solicit6, confirm6, rebind6:
		if r.serverID != nil || r.clientID == nil || !multicast {
			return DropFormat, false
		}
	case request6m, renew6, release6, decline6:
		needsServer = true
		if r.clientID == nil {
			return DropFormat, false
		}
	case information6:
		if r.n > 0 || !multicast {
			return DropFormat, false
		}
	default:
		return DropKind, false
	}
	if needsServer && r.serverID == nil {
		return DropFormat, false
	}
	if r.serverID != nil && !bytes.Equal(r.serverID, s.duid()) {
		return DropServer, false
	}
	return 0, true
}

// leases says whether the message at hand asks for an address.
func (s *Server) leases() bool {
	for _, a := range s.r6.assocs[:s.r6.n] {
		if a.option == opt6IANA {
			return true
		}
	}
	return false
}

// answer6 writes what the kind of message asks for. false: no answer is due.
func (s *Server) answer6(w *writer6) bool {
	r := &s.r6
	switch r.kind {
	case confirm6:
		status, ok := s.confirm()
		if !ok {
			return false
		}
		w.status(status)
		return true
	case release6, decline6:
		// RFC 8415 18.3.7, 18.3.8: success, even for addresses we never leased.
		w.status(statusSuccess)
		return true
	case solicit6:
		if r.rapid {
			w.put(opt6RapidCommit, []byte{})
		} else {
			w.put(opt6Preference, []byte{preferenceImmediate})
		}
	}
	s.assocs6(w)
	s.network6(w)
	return true
}

// confirm says whether all addresses that the client has belong to this link
// (RFC 8415 18.3.3). Without addresses there is nothing to confirm.
func (s *Server) confirm() (status uint16, ok bool) {
	link := netip.PrefixFrom(s.c.Addr6.ToNetip(), s.c.Bits6).Masked()
	for i := range s.r6.assocs[:s.r6.n] {
		a := &s.r6.assocs[i]
		for _, addr := range a.addrs[:a.n] {
			ok = true
			if !link.Contains(addr.ToNetip()) {
				return statusNotOnLink, true
			}
		}
	}
	return statusSuccess, ok
}

// limit6 is how long a message may be so that it needs no fragments.
func (s *Server) limit6() int {
	mtu := 1280
	if m := s.port.Caps.MTU; m > mtu {
		mtu = min(m, maxMessage)
	}
	return mtu - wire.IPv6Len - wire.UDPLen
}

// duid is our DUID-LL (RFC 8415 11.4): type 3, hardware type 1, the MAC.
func (s *Server) duid() []byte {
	m := s.port.OurMAC
	return []byte{0, 3, 0, 1, m[0], m[1], m[2], m[3], m[4], m[5]}
}
