package proto

import (
	"fmt"
	"net/netip"
	"strings"
)

// Limits of a Network.
const (
	MaxAddresses = 16
	MaxRoutes    = 64
	MaxDNS       = 8
	MaxSearch    = 32
	MaxOffloads  = 32
	MaxQueues    = 256
	MaxHostname  = 64 // bytes: what the kernel keeps (utsname)
	MinBuffer    = 4 << 10
	MaxBuffer    = 1 << 30

	minMTU  = 68   // IPv4 (RFC 791, 3.2)
	minMTU6 = 1280 // IPv6 (RFC 8200, section 5)
	maxMTU  = 65535
)

// Network is the configuration of a guest. What is zero is left alone.
type Network struct {
	Link        string          `json:"link,omitempty" yaml:"link"` // name or MAC address; "": the only network card
	Addresses   []netip.Prefix  `json:"addresses,omitempty" yaml:"addresses"`
	Routes      []Route         `json:"routes,omitempty" yaml:"routes"`
	MTU         int             `json:"mtu,omitempty" yaml:"mtu"`
	Hostname    string          `json:"hostname,omitempty" yaml:"hostname"`
	DNS         []netip.Addr    `json:"dns,omitempty" yaml:"dns"`
	Search      []string        `json:"search,omitempty" yaml:"search"`
	Queues      int             `json:"queues,omitempty" yaml:"queues"`             // pairs in use
	Offloads    map[string]bool `json:"offloads,omitempty" yaml:"offloads"`         // by the kernel's names, or setup's short ones
	VsockBuffer int             `json:"vsock_buffer,omitempty" yaml:"vsock_buffer"` // bytes, for the agent's own sockets
}

// Route is where packets to a prefix go.
type Route struct {
	To  netip.Prefix `json:"to" yaml:"to"`
	Via netip.Addr   `json:"via,omitzero" yaml:"via"` // invalid: on the link itself
}

// Check says what of it is not allowed.
func (n *Network) Check() error {
	for _, check := range []func() error{n.counts, n.addressing, n.routing, n.mtu, n.names, n.resolvers, n.device} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) counts() error {
	for _, c := range []struct {
		name     string
		is, most int
	}{
		{"addresses", len(n.Addresses), MaxAddresses}, {"routes", len(n.Routes), MaxRoutes}, {"dns", len(n.DNS), MaxDNS},
		{"search", len(n.Search), MaxSearch}, {"offloads", len(n.Offloads), MaxOffloads},
	} {
		if c.is > c.most {
			return fmt.Errorf("%s: %d are too many, at most %d", c.name, c.is, c.most)
		}
	}
	return nil
}

func (n *Network) addressing() error {
	for i, p := range n.Addresses {
		a := p.Addr()
		switch {
		case !p.IsValid():
			return fmt.Errorf("addresses: write each as ADDRESS/LENGTH")
		case a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			return fmt.Errorf("addresses: %v is not one that a guest can have", a)
		}
		for _, other := range n.Addresses[:i] {
			if other.Addr() == a {
				return fmt.Errorf("addresses: %v is there twice", a)
			}
		}
	}
	return nil
}

func (n *Network) routing() error {
	for i, r := range n.Routes {
		switch {
		case !r.To.IsValid() || r.To.Addr().Is4In6():
			return fmt.Errorf("routes: a route needs the prefix that it is to")
		case r.To != r.To.Masked():
			return fmt.Errorf("routes: %v has bits beyond its length: write %v", r.To, r.To.Masked())
		case !r.Via.IsValid():
		case r.Via.Zone() != "" || r.Via.Is4() != r.To.Addr().Is4() || r.Via.IsUnspecified() || r.Via.IsMulticast():
			return fmt.Errorf("routes: %v cannot be reached via %v", r.To, r.Via)
		}
		for _, other := range n.Routes[:i] {
			if other.To == r.To {
				return fmt.Errorf("routes: there are two to %v", r.To)
			}
		}
	}
	return nil
}

func (n *Network) mtu() error {
	least := minMTU
	for _, p := range n.Addresses {
		if p.Addr().Is6() {
			least = minMTU6
		}
	}
	if n.MTU != 0 && (n.MTU < least || n.MTU > maxMTU) {
		return fmt.Errorf("mtu: %d is not within %d to %d", n.MTU, least, maxMTU)
	}
	return nil
}

func (n *Network) names() error {
	if len(n.Link) > MaxName || strings.ContainsFunc(n.Link, notIn(letters+digits+"-_.:@")) || strings.Trim(n.Link, ".") != n.Link {
		return fmt.Errorf("link: %.40q is neither a name nor a MAC address", n.Link)
	}
	if n.Hostname != "" && !isDomain(n.Hostname, MaxHostname) {
		return fmt.Errorf("hostname: %.80q: write labels of letters, digits and '-', at most %d bytes", n.Hostname, MaxHostname)
	}
	for _, s := range n.Search {
		if !isDomain(strings.TrimSuffix(s, "."), 253) {
			return fmt.Errorf("search: %.80q is not a domain", s)
		}
	}
	return nil
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

func notIn(set string) func(rune) bool {
	return func(r rune) bool { return !strings.ContainsRune(set, r) }
}

// isDomain holds names to the letters that hosts have (RFC 1123, 2.1), and the
// underscore that some have anyway: they go into files and command lines.
func isDomain(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, notIn(letters+digits+"-_")) {
			return false
		}
	}
	return true
}

func (n *Network) resolvers() error {
	for _, a := range n.DNS {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || len(a.Zone()) > 15 || strings.ContainsFunc(a.Zone(), notIn(letters+digits+"-_.")) {
			return fmt.Errorf("dns: %.80q is not the address of a resolver", a)
		}
	}
	return nil
}

func (n *Network) device() error {
	if n.Queues < 0 || n.Queues > MaxQueues {
		return fmt.Errorf("queues: %d is not within 1 to %d", n.Queues, MaxQueues)
	}
	for name := range n.Offloads {
		if name == "" || len(name) > 31 || strings.ContainsFunc(name, notIn(letters+digits+"-")) { // ETH_GSTRING_LEN
			return fmt.Errorf("offloads: %.40q is not the name of one", name)
		}
	}
	if b := n.VsockBuffer; b != 0 && (b < MinBuffer || b > MaxBuffer) {
		return fmt.Errorf("vsock_buffer: %d is not within %d to %d bytes", b, MinBuffer, MaxBuffer)
	}
	return nil
}
