package dhcp

import (
	"encoding/binary"

	"guestwire/translate/dns"
	"guestwire/translate/wire"
)

// writer6 appends options. What does not fit is left out.
type writer6 struct {
	b []byte
	n int
}

func (w *writer6) header(kind uint8, xid [3]byte) {
	w.b[0] = kind
	w.n = 1 + copy(w.b[1:], xid[:])
}

// put writes an option; a nil value is none.
func (w *writer6) put(code uint16, value []byte) {
	if value == nil || w.n+4+len(value) > len(w.b) {
		return
	}
	binary.BigEndian.PutUint16(w.b[w.n:], code)
	binary.BigEndian.PutUint16(w.b[w.n+2:], uint16(len(value)))
	w.n += 4 + copy(w.b[w.n+4:], value)
}

func (w *writer6) status(code uint16) {
	w.put(opt6Status, []byte{byte(code >> 8), byte(code)})
}

// assocs6 answers every identity association. The first for ordinary addresses
// gets the lease; whatever else the client believes to have in it ends now
// (lifetimes of 0, RFC 8415 18.3.4). There is nothing for the others.
func (s *Server) assocs6(w *writer6) {
	leased := false
	for i := range s.r6.assocs[:s.r6.n] {
		a := &s.r6.assocs[i]
		switch {
		case a.option == opt6IAPD:
			s.refuse6(w, a, statusNoPrefix)
		case a.option == opt6IATA || leased:
			s.refuse6(w, a, statusNoAddrs)
		default:
			leased = true
			s.lease6(w, a)
		}
	}
}

func (s *Server) refuse6(w *writer6, a *assoc, status uint16) {
	v := append(make([]byte, 0, 20), a.iaid[:]...)
	if a.option != opt6IATA {
		v = append(v, make([]byte, 8)...) // T1, T2: left to the client
	}
	w.put(a.option, append(v, 0, opt6Status, 0, 2, byte(status>>8), byte(status)))
}

func (s *Server) lease6(w *writer6, a *assoc) {
	t := s.c.LeaseTime
	v := append(make([]byte, 0, 12+28*(maxAddrs+1)), a.iaid[:]...)
	if t == 1<<32-1 { // infinite
		v = binary.BigEndian.AppendUint32(v, t)
		v = binary.BigEndian.AppendUint32(v, t)
	} else {
		v = binary.BigEndian.AppendUint32(v, t/2)
		v = binary.BigEndian.AppendUint32(v, t/5*4)
	}
	v = appendAddress(v, s.c.Addr6, t)
	for _, other := range a.addrs[:a.n] {
		// A Solicit's addresses are only hints (18.2.1), so there is nothing to end.
		if other != s.c.Addr6 && !other.IsZero() && s.r6.kind != solicit6 {
			v = appendAddress(v, other, 0)
		}
	}
	w.put(opt6IANA, v)
}

// appendAddress appends an IA Address option with equal lifetimes.
func appendAddress(v []byte, a wire.Addr, lifetime uint32) []byte {
	v = append(v, 0, opt6Address, 0, 24)
	v = append(v, a[:]...)
	v = binary.BigEndian.AppendUint32(v, lifetime)
	return binary.BigEndian.AppendUint32(v, lifetime)
}

// network6 writes name servers, search list and name.
func (s *Server) network6(w *writer6) {
	var servers []byte
	for _, a := range s.c.DNS6 {
		if !a.Is4() && len(servers) < 16*maxServers {
			servers = append(servers, a[:]...)
		}
	}
	w.put(opt6DNS, servers)
	if s.r6.wantsFQDN {
		flags := fqdnFlags(s.r6.fqdnFlags, 4, 2, 1) // N, O, S; RFC 4704 4.1
		if v, ok := dns.AppendName([]byte{flags}, s.c.FQDN); ok {
			w.put(opt6FQDN, v)
		}
	}
	var list []byte
	for _, domain := range s.search() {
		if names, ok := dns.AppendName(list, domain); ok && len(names) <= maxSearch6 {
			list = names
		}
	}
	w.put(opt6Search, list)
}

const maxSearch6 = 512
