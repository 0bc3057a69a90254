package forward

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"guestwire/translate/wire"
)

func addr(s string) wire.Addr { return wire.FromNetip(netip.MustParseAddr(s)) }

type resolver []netip.AddrPort

func (r resolver) Upstreams() []netip.AddrPort { return r }

func policyConfig() PolicyConfig {
	return PolicyConfig{
		IPv4: true, IPv6: true,
		Gateway4: addr("10.0.2.2"), Gateway6: addr("fd67:7765:7374::2"), LinkLocal6: addr("fe80::2"),
		DNS4: addr("10.0.2.3"), DNS6: addr("fd67:7765:7374::3"),
		Guest4: addr("10.0.2.15"), Guest6: addr("fd67:7765:7374::15"),
		Net4:     netip.MustParsePrefix("10.0.2.15/24"),
		Resolver: resolver{netip.MustParseAddrPort("127.0.0.53:5353"), netip.MustParseAddrPort("192.0.2.1:53")},
	}
}

func TestOutbound(t *testing.T) {
	const tcp, udp, icmp, icmp6 = wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6
	loop := func(c *PolicyConfig) { c.MapLoopback4, c.MapLoopback6 = addr("10.0.2.2"), addr("fd67:7765:7374::fe") }
	meta := func(c *PolicyConfig) { c.AllowMetadata = true }
	self := func(c *PolicyConfig) {
		c.MapHost4, c.Host4 = addr("169.254.1.2"), netip.MustParseAddr("192.0.2.9")
		c.MapHost6, c.Host6 = addr("fd00::99"), netip.MustParseAddr("2001:db8::9")
	}
	tests := []struct {
		change func(*PolicyConfig)
		proto  uint8
		dst    string
		port   uint16
		host   string // "": refused
		v      Verdict
	}{
		{nil, tcp, "192.0.2.7", 443, "192.0.2.7:443", Allow},
		{nil, udp, "2001:db8::7", 443, "[2001:db8::7]:443", Allow},
		{nil, icmp, "192.0.2.7", 0, "192.0.2.7:0", Allow},
		{nil, icmp6, "2001:db8::7", 9, "[2001:db8::7]:0", Allow},
		{nil, tcp, "10.0.2.77", 80, "10.0.2.77:80", Allow}, // the host's own 10.0.2.0/24, if it has one
		{nil, tcp, "192.0.2.7", 0, "", RefusePort},
		{nil, udp, "192.0.2.7", 0, "", RefusePort},

		{self, tcp, "169.254.1.2", 80, "192.0.2.9:80", Allow}, // before the refusal of its network
		{self, udp, "fd00::99", 53, "[2001:db8::9]:53", Allow},
		{self, icmp, "169.254.1.2", 0, "192.0.2.9:0", Allow},
		{self, tcp, "169.254.1.3", 80, "", RefuseMetadata},

		{nil, tcp, "127.0.0.1", 80, "", RefuseLoopback},
		{nil, tcp, "127.255.255.254", 80, "", RefuseLoopback},
		{nil, tcp, "::1", 80, "", RefuseLoopback},
		{nil, tcp, "::ffff:127.0.0.1", 80, "", RefuseLoopback},
		{nil, tcp, "0.0.0.0", 80, "", RefuseUnspecified},
		{nil, tcp, "0.1.2.3", 80, "", RefuseUnspecified},
		{nil, tcp, "::", 80, "", RefuseUnspecified},
		{nil, tcp, "::ffff:0.0.0.0", 80, "", RefuseUnspecified},

		{nil, tcp, "169.254.169.254", 80, "", RefuseMetadata},
		{nil, tcp, "169.254.0.1", 80, "", RefuseMetadata},
		{nil, tcp, "169.254.170.2", 80, "", RefuseMetadata},
		{nil, tcp, "fd00:ec2::254", 80, "", RefuseMetadata},
		{nil, tcp, "fd00:ec2::23", 80, "", RefuseMetadata},
		{nil, tcp, "fd20:ce::254", 80, "", RefuseMetadata},
		{nil, tcp, "168.63.129.16", 80, "", RefuseMetadata},
		{nil, tcp, "100.100.100.200", 80, "", RefuseMetadata},
		{nil, tcp, "192.0.0.192", 80, "", RefuseMetadata},
		{meta, tcp, "169.254.169.254", 80, "169.254.169.254:80", Allow},
		{meta, tcp, "fd00:ec2::254", 80, "[fd00:ec2::254]:80", Allow},
		{meta, tcp, "127.0.0.1", 80, "", RefuseLoopback},
		{nil, tcp, "169.253.255.255", 80, "169.253.255.255:80", Allow},
		{nil, tcp, "fd00:ec3::254", 80, "[fd00:ec3::254]:80", Allow},
		{nil, tcp, "fe80::1", 80, "", RefuseLinkLocal},
		{meta, tcp, "fe80::1", 80, "", RefuseLinkLocal},

		{nil, tcp, "10.0.2.2", 80, "", RefuseGateway},
		{nil, udp, "fd67:7765:7374::2", 80, "", RefuseGateway},
		{nil, tcp, "fe80::2", 80, "", RefuseGateway},
		{nil, tcp, "10.0.2.3", 80, "", RefuseGateway},
		{nil, icmp, "10.0.2.3", 0, "", RefuseGateway},
		{nil, tcp, "224.0.0.251", 5353, "", RefuseMulticast},
		{nil, udp, "ff02::fb", 5353, "", RefuseMulticast},
		{nil, udp, "255.255.255.255", 9, "", RefuseMulticast},
		{nil, udp, "10.0.2.255", 9, "", RefuseMulticast},
		{nil, udp, "240.0.0.1", 9, "", RefuseMulticast},

		{nil, tcp, "10.0.2.3", 53, "127.0.0.53:5353", Allow},
		{nil, udp, "fd67:7765:7374::3", 53, "127.0.0.53:5353", Allow},
		{nil, tcp, "10.0.2.3", 853, "127.0.0.53:853", Allow},
		{func(c *PolicyConfig) { c.Resolver = resolver{} }, tcp, "10.0.2.3", 53, "", RefuseDNS},
		{func(c *PolicyConfig) { c.Resolver = nil }, tcp, "10.0.2.3", 53, "", RefuseDNS},
		{func(c *PolicyConfig) { c.DNS4 = addr("10.0.2.2") }, tcp, "10.0.2.2", 53, "127.0.0.53:5353", Allow},
		{func(c *PolicyConfig) { c.DNS4 = wire.Addr{} }, tcp, "10.0.2.3", 53, "10.0.2.3:53", Allow},

		{loop, tcp, "10.0.2.2", 80, "127.0.0.1:80", Allow},
		{loop, udp, "fd67:7765:7374::fe", 80, "[::1]:80", Allow},
		{loop, icmp, "10.0.2.2", 0, "127.0.0.1:0", Allow},
		{loop, tcp, "fd67:7765:7374::2", 80, "", RefuseGateway},
		{loop, tcp, "127.0.0.1", 80, "", RefuseLoopback},
		{loop, tcp, "10.0.2.2", 0, "", RefusePort},
		{func(c *PolicyConfig) { c.MapLoopback4 = addr("169.254.1.2") }, tcp, "169.254.1.2", 80, "127.0.0.1:80", Allow},

		{func(c *PolicyConfig) { c.IPv6 = false }, tcp, "2001:db8::7", 80, "", RefuseFamily},
		{func(c *PolicyConfig) { c.IPv4 = false }, tcp, "192.0.2.7", 80, "", RefuseFamily},
	}
	for _, tt := range tests {
		c := policyConfig()
		if tt.change != nil {
			tt.change(&c)
		}
		p := NewPolicy(c)
		host, v := p.Outbound(tt.proto, addr(tt.dst), tt.port)
		if v != tt.v || v == Allow && host.String() != tt.host {
			t.Errorf("%d to %s port %d: %v %v, want %q %v", tt.proto, tt.dst, tt.port, host, v, tt.host, tt.v)
		}
		if n := p.Counts(); n[tt.v] != 1 {
			t.Errorf("%s: counts %v", tt.dst, n)
		}
	}
}

// Nothing that a guest can put into a packet leads to the host's loopback.
func FuzzOutbound(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::1", "10.0.2.2", "0.0.0.0", "::127.0.0.1", "169.254.169.254"} {
		a := addr(s)
		f.Add(a[:], uint16(80), uint8(wire.ProtoTCP))
	}
	f.Fuzz(func(t *testing.T, b []byte, port uint16, proto uint8) {
		if len(b) != 16 {
			return
		}
		c := policyConfig()
		c.Resolver = nil
		host, v := NewPolicy(c).Outbound(proto, wire.Addr(b), port)
		if v != Allow {
			return
		}
		a := host.Addr()
		if a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Is4In6() {
			t.Errorf("%x leads to %s", b, host)
		}
	})
}

func TestInboundSource(t *testing.T) {
	loop := func(c *PolicyConfig) { c.MapLoopback4 = addr("10.0.2.100") }
	tests := []struct {
		change     func(*PolicyConfig)
		peer, want string
	}{
		{nil, "198.51.100.7", "198.51.100.7"},
		{nil, "2001:db8::7", "2001:db8::7"},
		{nil, "::ffff:198.51.100.7", "198.51.100.7"},
		{nil, "127.0.0.1", "10.0.2.2"},
		{nil, "127.1.2.3", "10.0.2.2"},
		{nil, "::1", "fd67:7765:7374::2"},
		{loop, "127.0.0.1", "10.0.2.100"},
		{loop, "::1", "fd67:7765:7374::2"},
		{nil, "10.0.2.15", "10.0.2.2"},                    // the guest's own address, as with --address host
		{nil, "10.0.2.3", "10.0.2.2"},                     // a neighbour of the host's with an address of ours
		{nil, "fd67:7765:7374::15", "fd67:7765:7374::2"},  //
		{nil, "fe80::1234%eth0", "fe80::2"},               //
		{nil, "fe80::2%eth0", "fd67:7765:7374::2"},        //
		{nil, "0.0.0.0", "10.0.2.2"},                      //
		{nil, "10.0.2.77", "10.0.2.77"},                   // on-link for the guest, answered by us
		{nil, "fd67:7765:7374::77", "fd67:7765:7374::77"}, //
	}
	for _, tt := range tests {
		c := policyConfig()
		if tt.change != nil {
			tt.change(&c)
		}
		peer := netip.AddrPortFrom(netip.MustParseAddr(tt.peer), 5000)
		if got := NewPolicy(c).InboundSource(peer); got != addr(tt.want) {
			t.Errorf("%s appears as %s, want %s", tt.peer, got, tt.want)
		}
	}
}

// The first refusal of each kind says which flag would allow it, and only the
// first.
func TestExplain(t *testing.T) {
	var log []string
	c := policyConfig()
	c.Resolver = resolver{}
	c.Log = func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
	p := NewPolicy(c)
	tests := []struct {
		dst  string
		port uint16
		flag string
	}{
		{"169.254.169.254", 80, "--allow-metadata"},
		{"10.0.2.2", 80, "--map-host-loopback 10.0.2.2"},
		{"127.0.0.1", 80, "--map-host-loopback ADDR"},
		{"10.0.2.3", 53, "--dns-host ADDR"},
	}
	for _, tt := range tests {
		log = nil
		for range 1000 {
			p.Outbound(wire.ProtoTCP, addr(tt.dst), tt.port)
		}
		if len(log) != 1 || !strings.Contains(log[0], tt.flag) || !strings.Contains(log[0], tt.dst) {
			t.Errorf("%s: log %q", tt.dst, log)
		}
	}
	log = nil
	p.Outbound(wire.ProtoTCP, addr("224.0.0.1"), 80) // nothing would allow it
	if len(log) != 0 {
		t.Errorf("log %q", log)
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := range NumVerdicts {
		if s := v.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("verdict %d is called %q", v, s)
		} else {
			seen[s] = true
		}
	}
}
