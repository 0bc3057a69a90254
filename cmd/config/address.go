package config

import (
	"net/netip"
	"strconv"
	"strings"

	"guestwire/translate/hostsock"
)

func itoa(n int) string { return strconv.Itoa(n) }

// addressing reads --address, --gateway: first the guest's prefix of each
// family, then what is derived from it, then what was given explicitly.
func (n *Net) addressing(o *Options, host func() (HostNet, error)) error {
	var seen [2]bool
	for _, a := range o.Addresses {
		if a == "host" {
			if err := n.copyHost(host); err != nil {
				return err
			}
			continue
		}
		p, err := parseGuest(a)
		if err != nil {
			return err
		}
		f, i := n.family(p.Addr())
		if seen[i] {
			return wrong("--address", a, "a second address of this family: give one IPv4 and one IPv6 address at most")
		}
		if !f.Enabled {
			return wrong("--address", a, "belongs to a family that --ipv4-only or --ipv6-only switched off")
		}
		seen[i] = true
		f.Guest = p
		f.Gateway, f.DNS = derive(p, 2), derive(p, 3)
		if f.DNS == f.Gateway || f.DNS == broadcast(p) {
			f.DNS = f.Gateway // there is no room for both
		}
	}
	for _, g := range o.Gateways {
		a, err := netip.ParseAddr(g)
		if err != nil || a.Zone() != "" {
			return wrong("--gateway", g, "write an IPv4 or IPv6 address")
		}
		f, _ := n.family(a)
		f.Gateway = a
	}
	for _, f := range []*Family{&n.V4, &n.V6} {
		if f.Enabled && f.Gateway == f.Guest.Addr() {
			return wrong("--gateway", f.Gateway.String(), "is the guest's own address: choose another one of %s", f.Guest.Masked())
		}
	}
	return nil
}

func (n *Net) copyHost(host func() (HostNet, error)) error {
	h, err := host()
	if err != nil {
		return wrong("--address", "host", "the host's addresses cannot be read: %v", err)
	}
	if !h.V4.IsValid() && !h.V6.IsValid() {
		return wrong("--address", "host", "the host has no address with a default route to copy: give the guest an address of its own, like 10.0.2.15/24")
	}
	if h.V4.IsValid() && n.V4.Enabled {
		n.V4 = Family{Enabled: true, Guest: h.V4, Gateway: h.Gw4, DNS: n.V4.DNS}
	}
	if h.V6.IsValid() && n.V6.Enabled {
		n.V6 = Family{Enabled: true, Guest: h.V6, Gateway: h.Gw6, DNS: n.V6.DNS}
	}
	return nil
}

func parseGuest(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, aerr := netip.ParseAddr(s)
		if aerr != nil || a.Zone() != "" {
			return p, wrong("--address", s, "write ADDRESS/PREFIX, like 10.0.2.15/24 or fd00::15/64, or the word host")
		}
		p = netip.PrefixFrom(a, 24)
		if a.Is6() {
			p = netip.PrefixFrom(a, 64)
		}
	}
	a := p.Addr()
	switch {
	case a.Is4In6():
		return p, wrong("--address", s, "write the IPv4 address itself: %s", a.Unmap())
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback():
		return p, wrong("--address", s, "a guest needs a unicast address")
	case a.Is4() && p.Bits() > 30, a.Is6() && p.Bits() > 126:
		return p, wrong("--address", s, "the prefix leaves no room for a gateway beside the guest: use /%d or shorter", 30+96*b2i(a.Is6()))
	case a == p.Masked().Addr():
		return p, wrong("--address", s, "is the address of the network itself: give the guest one in it, like %s/%d", a.Next(), p.Bits())
	case a == broadcast(p):
		return p, wrong("--address", s, "is the broadcast address of the network: give the guest another one in it, like %s/%d", derive(p, 1), p.Bits())
	}
	return p, nil
}

// derive gives the k-th address of a guest's prefix, or the next free one if
// that is the guest itself.
func derive(p netip.Prefix, k int) netip.Addr {
	a := p.Masked().Addr()
	for i := 0; i < k; i++ {
		a = a.Next()
	}
	if a == p.Addr() || !p.Contains(a) {
		a = p.Masked().Addr().Next()
	}
	return a
}

// broadcast is the last address of an IPv4 prefix; IPv6 has none.
func broadcast(p netip.Prefix) netip.Addr {
	if !p.Addr().Is4() {
		return netip.Addr{}
	}
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}

func (n *Net) family(a netip.Addr) (*Family, int) {
	if a.Is4() {
		return &n.V4, 0
	}
	return &n.V6, 1
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// resolvers reads --dns, --dns-forward, --dns-host.
func (n *Net) resolvers(o *Options) error {
	for _, s := range o.DNSForward {
		if s == "none" {
			n.V4.DNS, n.V6.DNS = netip.Addr{}, netip.Addr{}
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return wrong("--dns-forward", s, "write the address on which the guest reaches the DNS forwarder, or none")
		}
		f, _ := n.family(a)
		f.DNS = a
	}
	for _, s := range o.DNS {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return wrong("--dns", s, "write the address of a resolver that is told to the guest, without a zone: that would be ours")
		}
		n.Announce = append(n.Announce, a)
	}
	for _, s := range o.DNSHost {
		ap, err := parseResolver(s)
		if err != nil {
			return wrong("--dns-host", s, "write ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT of a resolver that the host can reach")
		}
		n.Upstream = append(n.Upstream, ap)
	}
	return nil
}

func parseResolver(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 53), nil
	}
	return netip.ParseAddrPort(s)
}

// mapHost reads --map-guest-addr: the host's own address is the guest's too where
// that was copied, and can then be reached under another one alone.
func (n *Net) mapHost(o *Options, host func() (HostNet, error)) error {
	for _, s := range o.MapGuestAddr {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
			return wrong("--map-guest-addr", s, "write the unicast address under which the guest shall reach the host's own address, like 169.254.1.2")
		}
		h, err := host()
		if err != nil {
			return wrong("--map-guest-addr", s, "the host's addresses cannot be read: %v", err)
		}
		to := h.V4.Addr()
		if a.Is6() {
			to = h.V6.Addr()
		}
		if !to.IsValid() {
			continue // of this family the host has none: nothing is there to be reached
		}
		n.MapHost = append(n.MapHost, AddrMap{a, to})
	}
	return nil
}

// policy reads --map-host-loopback, --outbound and the interfaces.
func (n *Net) policy(o *Options) error {
	for _, s := range o.MapHostLoopback {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() {
			return wrong("--map-host-loopback", s, "write the unicast address under which the guest shall reach the host's loopback, like %s", n.V4.Gateway)
		}
		n.MapHostLoopback = append(n.MapHostLoopback, a)
	}
	for _, s := range o.Outbound {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return wrong("--outbound", s, "write a source address of this host (an interface goes to --outbound-if4, --outbound-if6)")
		}
		if a.Is4() {
			n.Outbound4 = a
		} else {
			n.Outbound6 = a
		}
	}
	for i, name := range n.OutboundIf {
		if len(name) > 15 || strings.ContainsAny(name, "/ ") {
			return wrong([]string{"--outbound-if4", "--outbound-if6"}[i], name, "an interface name has at most 15 bytes")
		}
	}
	return nil
}

// forwards reads the port specs of both protocols; overlaps show only when all
// of one protocol are seen together.
func (n *Net) forwards(o *Options) error {
	for _, f := range []struct {
		option string
		proto  hostsock.Proto
		specs  []string
	}{{"--tcp-ports", hostsock.TCP, o.TCPPorts}, {"--udp-ports", hostsock.UDP, o.UDPPorts}} {
		rules, err := localPorts().ParseSpecs(f.proto, f.specs)
		if err != nil {
			return &Error{Option: f.option, Want: err.Error()}
		}
		n.Forwards = append(n.Forwards, rules...)
	}
	return nil
}
