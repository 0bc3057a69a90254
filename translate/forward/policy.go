package forward

import (
	"net/netip"

	"guestwire/translate/wire"
)

// Verdict is what Policy says about an outbound destination.
type Verdict uint8

const (
	Allow             Verdict = iota
	RefuseLoopback            // 127.0.0.0/8, ::1
	RefuseMetadata            // 169.254.0.0/16 and what else clouds serve credentials on
	RefuseGateway             // an address of ours that serves nothing there
	RefuseMulticast           // multicast, broadcast, 240.0.0.0/4
	RefuseUnspecified         // 0.0.0.0/8, ::
	RefusePort                // port 0
	RefuseLinkLocal           // fe80::/10 other than ours: a link of the host's, not the guest's
	RefuseFamily              // an IP version that is switched off
	RefuseDNS                 // the DNS address while the host has no resolver
	NumVerdicts
)

var verdictNames = [NumVerdicts]string{
	"allow", "loopback", "metadata", "gateway", "multicast", "unspecified", "port", "link-local", "family", "dns",
}

// String is the name of the counter.
func (v Verdict) String() string {
	if v < NumVerdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// Ports of name service that the DNS addresses lead to the host's resolver on.
const (
	portDNS       = 53
	portDNSSecure = 853 // DNS over TLS (RFC 7858) and over QUIC (RFC 9250)
)

// Resolver names the host's name servers, the best first. dns.Resolver is one.
type Resolver interface {
	Upstreams() []netip.AddrPort
}

// PolicyConfig fixes a Policy. Zero addresses mean "none".
type PolicyConfig struct {
	IPv4, IPv6 bool // IP versions in use

	Gateway4, Gateway6 wire.Addr // ours; sources of what comes from the host itself
	LinkLocal6         wire.Addr // ours, fe80::2
	DNS4, DNS6         wire.Addr // where the guest finds the forwarder (--dns-forward)
	Guest4, Guest6     wire.Addr // the guest's configured addresses
	Net4               netip.Prefix

	MapLoopback4, MapLoopback6 wire.Addr // --map-host-loopback
	MapHost4, MapHost6         wire.Addr // --map-guest-addr, which leads to
	Host4, Host6               netip.Addr
	AllowMetadata              bool // --allow-metadata

	Resolver Resolver                      // nil: no DNS mapping
	Log      func(format string, a ...any) // nil: silent
}

// Policy decides where the guest may go and under which address the world
// appears to it.
type Policy struct {
	c      PolicyConfig
	counts [NumVerdicts]uint64
	logged [NumVerdicts]bool
}

// NewPolicy returns a policy.
func NewPolicy(c PolicyConfig) *Policy { return &Policy{c: c} }

// Outbound says where on the host side a flow of the guest to dst and port
// goes. port is the destination port of TCP and UDP and ignored for other
// protocols. host is only valid with Allow.
func (p *Policy) Outbound(proto uint8, dst wire.Addr, port uint16) (host netip.AddrPort, v Verdict) {
	host, v = p.outbound(proto, dst, port)
	p.counts[v]++
	if v != Allow && !p.logged[v] {
		p.logged[v] = true
		p.explain(v, dst, port)
	}
	return host, v
}

// Counts returns how often each verdict was given.
func (p *Policy) Counts() [NumVerdicts]uint64 { return p.counts }

func (p *Policy) outbound(proto uint8, dst wire.Addr, port uint16) (netip.AddrPort, Verdict) {
	ported := proto == wire.ProtoTCP || proto == wire.ProtoUDP
	switch {
	case ported && port == 0:
		return netip.AddrPort{}, RefusePort
	case !ported:
		port = 0
	}
	if dst.Is4() && !p.c.IPv4 || !dst.Is4() && !p.c.IPv6 {
		return netip.AddrPort{}, RefuseFamily
	}
	if ported && p.IsDNS(dst) && (port == portDNS || port == portDNSSecure) {
		return p.dns(port)
	}
	// What the administrator mapped comes before every refusal: the mapped
	// address may well be the gateway's.
	switch {
	case dst.IsUnspecified():
	case dst == p.c.MapLoopback4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), Allow
	case dst == p.c.MapLoopback6:
		return netip.AddrPortFrom(netip.IPv6Loopback(), port), Allow
	case dst == p.c.MapHost4:
		return netip.AddrPortFrom(p.c.Host4, port), Allow
	case dst == p.c.MapHost6:
		return netip.AddrPortFrom(p.c.Host6, port), Allow
	}
	if v := p.refuse(dst); v != Allow {
		return netip.AddrPort{}, v
	}
	return dst.AddrPort(port), Allow
}

// dns sends name service to the first upstream: the same port where the
// resolver was given one for plain DNS, 853 for the secured kind.
func (p *Policy) dns(port uint16) (netip.AddrPort, Verdict) {
	if p.c.Resolver == nil {
		return netip.AddrPort{}, RefuseDNS
	}
	up := p.c.Resolver.Upstreams()
	if len(up) == 0 {
		return netip.AddrPort{}, RefuseDNS
	}
	if port == portDNSSecure {
		return netip.AddrPortFrom(up[0].Addr(), portDNSSecure), Allow
	}
	return up[0], Allow
}

// refuse judges an address that nothing maps.
func (p *Policy) refuse(dst wire.Addr) Verdict {
	switch {
	case dst.Is4() && dst[12] == 0, dst.IsUnspecified():
		// connect(2) to 0.0.0.0 or :: reaches the host's loopback.
		return RefuseUnspecified
	case dst.IsLoopback():
		return RefuseLoopback
	case p.IsOurs(dst):
		return RefuseGateway
	case dst.IsMulticast(), dst.Is4() && dst[12] >= 240, p.isDirectedBroadcast(dst):
		return RefuseMulticast
	case !p.c.AllowMetadata && isMetadata(dst):
		return RefuseMetadata
	case !dst.Is4() && dst.IsLinkLocal():
		return RefuseLinkLocal
	}
	return Allow
}

// IsOurs says whether a is an address that we hold on the guest's link.
func (p *Policy) IsOurs(a wire.Addr) bool {
	return !a.IsZero() && (a == p.c.Gateway4 || a == p.c.Gateway6 || a == p.c.LinkLocal6 || p.IsDNS(a))
}

// IsDNS says whether a is an address of the forwarder.
func (p *Policy) IsDNS(a wire.Addr) bool {
	return !a.IsZero() && (a == p.c.DNS4 || a == p.c.DNS6)
}

func (p *Policy) isDirectedBroadcast(a wire.Addr) bool {
	n := p.c.Net4
	if !a.Is4() || !n.IsValid() || n.Bits() >= 31 || !n.Contains(a.ToNetip()) {
		return false
	}
	return be32(a) == be32(wire.FromNetip(n.Addr()))|(1<<(32-n.Bits())-1)
}

func be32(a wire.Addr) uint32 {
	return uint32(a[12])<<24 | uint32(a[13])<<16 | uint32(a[14])<<8 | uint32(a[15])
}

// InboundSource returns the address under which the guest sees peer: its own,
// so that services keep their clients' addresses, unless the guest could not
// answer to it.
func (p *Policy) InboundSource(peer netip.AddrPort) wire.Addr {
	a := wire.FromNetip(peer.Addr())
	loopback, gateway := p.c.MapLoopback6, p.c.Gateway6
	if a.Is4() {
		loopback, gateway = p.c.MapLoopback4, p.c.Gateway4
	}
	switch {
	case a.IsLoopback():
		// The guest can then talk back to where the connection came from, as far
		// as it may.
		if !loopback.IsZero() {
			return loopback
		}
		return gateway
	case a.IsUnspecified(), a.IsMulticast(), a.IsBroadcast(),
		a == p.c.Guest4, a == p.c.Guest6, p.IsOurs(a):
		// With --address host the guest holds the host's address: it would take
		// an answer to that for its own.
		return gateway
	case !a.Is4() && a.IsLinkLocal() && !p.c.LinkLocal6.IsZero():
		// A neighbour of the host's. Its link-local address means another machine,
		// or nothing, on the guest's link.
		return p.c.LinkLocal6
	}
	return a
}

// explain names, once per kind, the flag that would allow what was refused.
func (p *Policy) explain(v Verdict, dst wire.Addr, port uint16) {
	if p.c.Log == nil {
		return
	}
	switch v {
	case RefuseMetadata:
		p.c.Log("guest refused to reach %s (port %d), an address that clouds serve metadata and credentials on; --allow-metadata would allow it", dst, port)
	case RefuseGateway:
		p.c.Log("guest refused to reach %s (port %d), an address of ours that serves nothing there; --map-host-loopback %s would lead it to the host's loopback", dst, port, dst)
	case RefuseLoopback:
		p.c.Log("guest refused to send to loopback address %s over its link; to reach services on the host's loopback use --map-host-loopback ADDR and have the guest connect to ADDR", dst)
	case RefuseFamily:
		p.c.Log("guest refused to reach %s: its IP version is switched off (--ipv4-only, --ipv6-only)", dst)
	case RefuseDNS:
		p.c.Log("guest asked %s for names but the host has no resolver; --dns-host ADDR would name one", dst)
	}
}
