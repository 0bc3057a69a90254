package translate

import (
	"guestwire/translate/dhcp"
	"guestwire/translate/dns"
	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/icmp"
	"guestwire/translate/neigh"
	"guestwire/translate/reasm"
	"guestwire/translate/tcp"
	"guestwire/translate/udp"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Translator is the link.Handler of one guest: it composes the rooms below and
// leads every frame to the one that answers for it. Owned by the guest's loop.
type Translator struct {
	c    Config
	port guest.Port

	flows     *flow.Table
	policy    *forward.Policy
	neigh     *neigh.Neighbour
	dhcp      *dhcp.Server
	dns       *dns.Forwarder
	icmp      *icmp.Engine
	udp       *udp.Engine
	tcp       *tcp.Engine
	reasm     *reasm.Table
	listeners *forward.Listeners

	lease4, lease6 wire.Addr // the guest's configured addresses

	packet  wire.Packet // the frame at hand, parsed
	inBatch bool        // Frames runs, or a fault has cut it short
	stats   counters
}

// New composes a translator and opens the sockets of its inbound forwards. It
// fails only if one of those cannot be had.
func New(c Config, d Deps) (*Translator, error) {
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	t := &Translator{c: c, lease4: addr(c.V4.Guest.Addr()), lease6: addr(c.V6.Guest.Addr())}
	t.port = guest.Port{
		OurMAC: c.MAC, Timers: d.Timers,
		Gateway4: addr(c.V4.Gateway), Gateway6: addr(c.V6.Gateway),
	}
	if c.V6.enabled() {
		t.port.OurLL6 = addr(ourLinkLocal)
		if c.V6.Gateway.IsLinkLocalUnicast() {
			t.port.OurLL6 = t.port.Gateway6
		}
	}
	t.flows = flow.NewTable(c.MaxFlows, c.Secret)
	t.policy = forward.NewPolicy(t.policyConfig(d))
	t.services(d)
	t.engines(d)

	var err error
	t.listeners, err = forward.Listen(forward.ListenConfig{
		IPv4: c.V4.enabled(), IPv6: c.V6.enabled(),
		Host: d.Host, Timers: d.Timers, Port: &t.port,
		Lease4: t.lease4, Lease6: t.lease6,
		Policy: t.policy, TCP: t.tcp, UDP: t.udp, Local: d.Local,
		Admit: func() bool { return t.flows.Len() < c.MaxFlows }, Log: c.Log,
	}, c.Forwards)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Translator) policyConfig(d Deps) forward.PolicyConfig {
	c := &t.c
	p := forward.PolicyConfig{
		IPv4: c.V4.enabled(), IPv6: c.V6.enabled(),
		Gateway4: t.port.Gateway4, Gateway6: t.port.Gateway6, LinkLocal6: t.port.OurLL6,
		DNS4: t.dns4(), DNS6: t.dns6(),
		Guest4: t.lease4, Guest6: t.lease6, Net4: c.V4.Guest.Masked(),
		AllowMetadata: c.AllowMetadata, Resolver: d.Resolver, Log: c.Log,
	}
	for _, a := range c.MapHostLoopback {
		if a.Is4() {
			p.MapLoopback4 = addr(a)
		} else {
			p.MapLoopback6 = addr(a)
		}
	}
	for from, to := range c.MapHost {
		if from.Is4() {
			p.MapHost4, p.Host4 = addr(from), to
		} else {
			p.MapHost6, p.Host6 = addr(from), to
		}
	}
	return p
}

// services makes what is answered without a host socket per flow.
func (t *Translator) services(d Deps) {
	c := &t.c
	announce4, announce6 := t.announced()
	t.neigh = neigh.New(neigh.Config{
		IPv4: c.V4.enabled(), IPv6: c.V6.enabled(),
		NDP: !c.Off.NDP, RA: !c.Off.NDP && !c.Off.RA, DHCPv6: !c.Off.DHCPv6,
		Net4: c.V4.Guest.Masked(), Net6: c.V6.Guest.Masked(),
		Guest4: t.lease4, Guest6: t.lease6,
		DNS4: t.dns4(), DNS6: t.dns6(),
		RDNSS: announce6, Search: d.Resolver.Search, MTU: uint32(c.MTU), Rand: c.Rand,
	}, &t.port, d.Timers)

	lease := dhcp.Config{
		DNS4: announce4, DNS6: announce6, Router4: t.port.Gateway4, MTU: uint16(c.MTU),
		Hostname: c.Hostname, FQDN: c.FQDN, Search: d.Resolver.Search, Log: c.Log,
	}
	if c.V4.enabled() && !c.Off.DHCP {
		lease.Addr4, lease.Bits4 = t.lease4, c.V4.Guest.Bits()
	}
	if c.V6.enabled() && !c.Off.DHCPv6 {
		lease.Addr6, lease.Bits6 = t.lease6, c.V6.Guest.Bits()
	}
	t.dhcp = dhcp.New(lease, &t.port)
	t.dns = dns.New(dns.Config{}, dns.Deps{
		Port: &t.port, Host: d.Host, Timers: d.Timers, Resolver: d.Resolver, Rand: c.Rand, Log: c.Log,
	})
	t.reasm = reasm.New(d.Timers)
}

// engines makes the L4 translators.
func (t *Translator) engines(d Deps) {
	c := &t.c
	t.udp = udp.New(udp.Config{Outbound4: c.Outbound4, Outbound6: c.Outbound6}, udp.Deps{
		Port: &t.port, Host: d.Host, Timers: d.Timers, Flows: t.flows, Policy: t.policy, Clock: d.Clock, Log: c.Log,
	})
	t.icmp = icmp.New(icmp.Config{Outbound4: c.Outbound4, Outbound6: c.Outbound6}, icmp.Deps{
		Port: &t.port, Host: d.Host, Timers: d.Timers, Flows: t.flows, Policy: t.policy, Log: c.Log,
	})
	t.tcp = tcp.New(tcp.Config{Secret: c.Secret, Options4: c.Outbound4, Options6: c.Outbound6}, tcp.Deps{
		Port: &t.port, Host: d.Host, Timers: d.Timers, Flows: t.flows, Clock: d.Clock,
		Outbound: t.outboundTCP, Unreachable: t.unreachable, Log: c.Log,
	})
}

// dns4 and dns6 are the forwarder's addresses, zero where there is none.
func (t *Translator) dns4() wire.Addr {
	if t.c.Off.DNS || !t.c.V4.enabled() {
		return wire.Addr{}
	}
	return addr(t.c.V4.DNS)
}

func (t *Translator) dns6() wire.Addr {
	if t.c.Off.DNS || !t.c.V6.enabled() {
		return wire.Addr{}
	}
	return addr(t.c.V6.DNS)
}

// announced lists the resolvers that the guest is told, by family.
func (t *Translator) announced() (v4, v6 []wire.Addr) {
	for _, a := range t.c.Announce {
		if a.Is4() {
			v4 = append(v4, addr(a))
		} else {
			v6 = append(v6, addr(a))
		}
	}
	if len(t.c.Announce) > 0 {
		return v4, v6
	}
	if a := t.dns4(); !a.IsZero() {
		v4 = append(v4, a)
	}
	if a := t.dns6(); !a.IsZero() {
		v6 = append(v6, a)
	}
	return v4, v6
}

// Bound lists the sockets of the inbound forwards.
func (t *Translator) Bound() []forward.Bound { return t.listeners.Bound() }

// Forward opens one more inbound forward, Unforward closes one.
func (t *Translator) Forward(r forward.Rule) error { return t.listeners.Add(r) }

// Unforward reports whether there was such a forward.
func (t *Translator) Unforward(r forward.Rule) bool { return t.listeners.Remove(r) }

// ResolverChanged tells the guest about new search domains.
func (t *Translator) ResolverChanged() { t.neigh.Announce() }

// Close ends every flow and closes every socket.
func (t *Translator) Close() {
	t.reset()
	t.listeners.Close()
}

// LinkUp implements link.Handler.
func (t *Translator) LinkUp(ep link.Endpoint, fresh bool) {
	if fresh {
		t.reset()
	}
	t.port.EP, t.port.Caps, t.port.Up = ep, ep.Caps(), true
	t.neigh.LinkUp()
	t.resume()
}

// LinkDown implements link.Handler. It never comes from within Frames. When a fault
// of guest memory has cut that short, what was gathered refers to memory that may
// go, and counts as received without having been sent: no flow of it can go on.
func (t *Translator) LinkDown() {
	t.port.Up = false
	t.neigh.LinkDown()
	if t.inBatch {
		t.inBatch = false
		t.reset()
	}
}

// GuestGone implements link.Handler.
func (t *Translator) GuestGone() { t.reset() }

// Writable implements link.Handler: TCP first, since its peers wait.
func (t *Translator) Writable() {
	t.neigh.Writable()
	t.resume()
}

// resume lets the engines go on towards the guest.
func (t *Translator) resume() {
	t.tcp.Writable()
	t.udp.Writable()
	t.icmp.Writable()
}

// reset forgets a guest that is gone: its flows end with a reset towards the
// host, what was learned of it is void. Forwards keep listening.
func (t *Translator) reset() {
	t.tcp.ResetAll()
	t.udp.ResetAll()
	t.icmp.ResetAll()
	t.dns.ResetAll()
	t.reasm.Reset()
	t.port.MAC = wire.MAC{}
	t.port.Addr4, t.port.Addr6, t.port.LL6 = wire.Addr{}, wire.Addr{}, wire.Addr{}
}
