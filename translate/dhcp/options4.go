package dhcp

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"guestwire/translate/dns"
	"guestwire/translate/wire"
)

// writer4 appends options and always leaves room for the end option. What does
// not fit is left out.
type writer4 struct {
	b []byte
	n int
}

func (w *writer4) put(code uint8, value ...byte) {
	if len(value) == 0 || len(value) > 255 || w.n+2+len(value) >= len(w.b) {
		return
	}
	w.b[w.n], w.b[w.n+1] = code, byte(len(value))
	w.n += 2 + copy(w.b[w.n+2:], value)
}

func (w *writer4) addr(code uint8, a wire.Addr) {
	if !a.IsZero() {
		v := a.As4()
		w.put(code, v[:]...)
	}
}

func (w *writer4) u32(code uint8, v uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	w.put(code, b[:]...)
}

// options4 writes the options of a reply, the most important first. The message
// type comes before all others: some clients look only there.
func (s *Server) options4(w *writer4, kind uint8) {
	r := &s.r4
	if kind != 0 {
		w.put(optKind, kind)
		w.addr(optServerID, s.port.Gateway4)
		// RFC 6842: the client's identifier comes back in every reply.
		w.put(optClientID, r.clientID.bytes()...)
	}
	if kind == nak4 {
		return
	}
	if kind != 0 && r.kind != inform4 {
		s.times4(w)
	}
	if r.kind == discover4 && kind == ack4 {
		// No value; RFC 4039 4.
		if w.n+2 < len(w.b) {
			w.b[w.n], w.b[w.n+1] = optRapidCommit, 0
			w.n += 2
		}
	}
	s.network4(w)
	s.names4(w)
}

func (s *Server) times4(w *writer4) {
	t := s.c.LeaseTime
	w.u32(optLease, t)
	if t != 1<<32-1 { // infinite
		w.u32(optT1, t/2)
		w.u32(optT2, t/8*7)
	}
}

// network4 writes mask, router, name servers and MTU. The mask comes before the
// router (RFC 2132 3.3). A router outside the subnet is only reachable with a
// route of its own, which RFC 3442 can say and option 3 cannot.
func (s *Server) network4(w *writer4) {
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-s.c.Bits4))
	w.put(optMask, mask[:]...)
	if router := s.c.Router4; !router.IsZero() {
		if !netip.PrefixFrom(s.c.Addr4.ToNetip(), s.c.Bits4).Masked().Contains(router.ToNetip()) {
			a := router.As4()
			w.put(optRoutes, 32, a[0], a[1], a[2], a[3], 0, 0, 0, 0, 0, a[0], a[1], a[2], a[3])
		}
		w.addr(optRouter, router)
	}
	var servers [4 * maxServers]byte
	n := 0
	for _, a := range s.c.DNS4 {
		if v := a.As4(); a.Is4() && n < len(servers) {
			n += copy(servers[n:], v[:])
		}
	}
	w.put(optDNS, servers[:n]...)
	if s.c.MTU >= 68 { // RFC 2132 5.1
		w.put(optMTU, byte(s.c.MTU>>8), byte(s.c.MTU))
	}
}

// names4 writes what the guest is called and where it looks for names.
func (s *Server) names4(w *writer4) {
	w.put(optHostname, []byte(s.c.Hostname)...)
	if _, domain, ok := strings.Cut(strings.TrimSuffix(s.c.FQDN, "."), "."); ok {
		w.put(optDomain, []byte(domain)...)
	}
	if s.r4.wantsFQDN {
		s.fqdn4(w)
	}
	var list [255]byte
	n := 0
	for _, domain := range s.search() {
		if names, ok := dns.AppendName(list[:n:n], domain); ok && len(names) <= len(list) {
			n = copy(list[:], names)
		}
	}
	w.put(optSearch, list[:n]...)
}

// Flags of the FQDN option, the same in RFC 4702 2.1 and, without E, in RFC 4704
// 4.1.
const (
	fqdnS = 1 // the server updates the forward zone
	fqdnO = 2 // the server overrode S
	fqdnE = 4 // the name is in wire form
	fqdnN = 8 // the server updates nothing
)

// fqdnFlags answers the client's flags: we update nothing.
func fqdnFlags(client, n, o, s uint8) uint8 {
	flags := n
	if client&s != 0 {
		flags |= o
	}
	return flags
}

func (s *Server) fqdn4(w *writer4) {
	wireForm := true // where the client only listed the option as wanted
	var client uint8
	if s.r4.fqdn.n > 0 {
		client = s.r4.fqdn.b[0]
		wireForm = client&fqdnE != 0
	}
	var b [maxFQDN]byte
	b[0] = fqdnFlags(client, fqdnN, fqdnO, fqdnS)
	b[1], b[2] = 255, 255 // RCODE1, RCODE2: deprecated
	if wireForm {
		b[0] |= fqdnE
		if v, ok := dns.AppendName(b[:3], s.c.FQDN); ok && len(v) <= 255 {
			w.put(optFQDN, v...)
		}
		return
	}
	if name := strings.TrimSuffix(s.c.FQDN, "."); name != "" && len(name) <= 252 {
		w.put(optFQDN, append(b[:3], name...)...)
	}
}

const maxFQDN = 3 + 256
