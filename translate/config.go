package translate

import (
	"net/netip"

	"guestwire/translate/dns"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Net is the addressing of one IP version. The zero value is "switched off".
type Net struct {
	Guest   netip.Prefix // the guest's address with its on-link prefix
	Gateway netip.Addr   // ours
	DNS     netip.Addr   // where the forwarder answers; invalid: nowhere
}

// Off switches services and protocols off.
type Off struct {
	DHCP, DHCPv6, RA, NDP, DNS, TCP, UDP, ICMP bool
}

// Config is what a Translator is made from. It does not change.
type Config struct {
	MAC    wire.MAC // ours
	MTU    int      // announced to the guest, bytes
	V4, V6 Net

	Hostname, FQDN string
	Announce       []netip.Addr // resolvers told to the guest; empty: the forwarder

	Forwards        []forward.Rule
	Outbound4       hostsock.Options // Device and Bind address of sockets to IPv4 targets
	Outbound6       hostsock.Options
	MapHostLoopback []netip.Addr
	MapHost         map[netip.Addr]netip.Addr // the guest's name for addresses of the host; one of each family counts
	AllowMetadata   bool
	Off             Off
	MaxFlows        int
	Secret          [16]byte      // random, per process
	Rand            func() uint32 // unpredictable
	Log             func(format string, a ...any)
}

// Deps are what a Translator works with.
type Deps struct {
	Host     hostsock.Host
	Timers   *eventloop.Wheel
	Clock    eventloop.Clock
	Resolver dns.Resolver
	// Local takes over what comes to a forward from the host's own loopback, where
	// the guest has a shorter way: forward.ListenConfig. nil: nothing.
	Local func(fd hostsock.FD, v4 bool, port uint16) bool
}

// ourLinkLocal is the router's link-local address, the source of its
// advertisements (RFC 4861, 4.2).
var ourLinkLocal = netip.MustParseAddr("fe80::2")

func (n *Net) enabled() bool { return n.Guest.IsValid() }

// addr converts, with the zero Addr for an invalid one.
func addr(a netip.Addr) wire.Addr {
	if !a.IsValid() {
		return wire.Addr{}
	}
	return wire.FromNetip(a)
}
