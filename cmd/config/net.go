package config

import (
	"net"
	"net/netip"
	"strings"

	"guestwire/translate/forward"
	"guestwire/vring/eventloop"
)

// Defaults of QEMU's user networking, which guests and documentation of this
// field expect, and a ULA prefix (RFC 4193) for IPv6.
var (
	defaultV4 = Family{
		Enabled: true,
		Guest:   netip.MustParsePrefix("10.0.2.15/24"),
		Gateway: netip.MustParseAddr("10.0.2.2"),
		DNS:     netip.MustParseAddr("10.0.2.3"),
	}
	defaultV6 = Family{
		Enabled: true,
		Guest:   netip.MustParsePrefix("fd67:7765:7374::15/64"),
		Gateway: netip.MustParseAddr("fd67:7765:7374::2"),
		DNS:     netip.MustParseAddr("fd67:7765:7374::3"),
	}
	defaultMAC = [6]byte{0x52, 0x55, 10, 0, 2, 2}
)

// Limits of what can be configured.
const (
	DefaultMTU      = 1500
	MinMTU          = 1280 // IPv6 (RFC 8200, section 5)
	MaxMTU          = 65520
	DefaultMaxFlows = 1 << 17
	MaxHostname     = 63 // one DNS label (RFC 1035, 2.3.4)
)

// Transport is how frames travel between guest and daemon.
type Transport string

const (
	VhostUser Transport = "vhost-user"
	Stream    Transport = "stream"
	Tap       Transport = "tap" // of `guestwire netns`
)

// Family is the addressing of one IP version.
type Family struct {
	Enabled bool
	Guest   netip.Prefix // the guest's address and its on-link prefix
	Gateway netip.Addr   // ours, as the guest's router
	DNS     netip.Addr   // where our DNS forwarder answers; invalid: nowhere
}

// AddrMap leads what the guest sends to one address to another.
type AddrMap struct{ From, To netip.Addr }

// Net is the complete, validated configuration of one guest's NIC.
type Net struct {
	SocketPath string // or FD
	FD         int    // -1 with SocketPath
	Client     bool
	Transport  Transport
	Vhost      Vhost // with Tap
	Profile    string
	Withhold   Withhold

	MAC      [6]byte
	MTU      int
	V4, V6   Family
	Hostname string
	FQDN     string

	Announce []netip.Addr     // resolvers told to the guest
	Upstream []netip.AddrPort // resolvers asked; empty: follow the host's resolv.conf
	Search   []string         // empty: follow the host's resolv.conf

	Forwards   []forward.Rule
	Outbound4  netip.Addr // source address of outbound sockets; invalid: the kernel's choice
	Outbound6  netip.Addr
	OutboundIf [2]string // device for IPv4, IPv6

	MapHostLoopback []netip.Addr
	MapHost         []AddrMap // --map-guest-addr
	AllowMetadata   bool
	Off             Off

	Pcap     string
	PcapSize int64
	MaxFlows int
	Poll     eventloop.Poll
}

// HostNet is what `--address host` copies: the host's own addresses and routers.
type HostNet struct {
	V4, V6     netip.Prefix
	Gw4, Gw6   netip.Addr
	MTU        int
	Interface4 string
	Interface6 string
}

// Resolve validates o. host is asked for only with `--address host`.
func Resolve(o *Options, host func() (HostNet, error)) (*Net, error) {
	n := &Net{
		SocketPath: o.SocketPath, FD: o.FD, Client: o.Client, Profile: o.Profile, Withhold: o.Withhold,
		MAC: defaultMAC, MTU: DefaultMTU, V4: defaultV4, V6: defaultV6,
		Hostname: o.Hostname, FQDN: o.FQDN, Search: o.Search,
		OutboundIf:    [2]string{o.OutboundIf4, o.OutboundIf6},
		AllowMetadata: o.AllowMetadata, Off: o.Off,
		Pcap: o.Pcap, PcapSize: o.PcapSize, MaxFlows: o.MaxFlows,
	}
	for _, step := range []func(*Options) error{
		n.attachment, n.families,
		func(o *Options) error { return n.addressing(o, host) },
		n.names, n.resolvers, n.policy,
		func(o *Options) error { return n.mapHost(o, host) },
		n.forwards, n.limits,
	} {
		if err := step(o); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *Net) attachment(o *Options) error {
	if err := attachment(o.SocketPath, o.FD, o.Client); err != nil {
		return err
	}
	switch t := Transport(o.Transport); t {
	case "", VhostUser:
		n.Transport = VhostUser
	case Stream:
		n.Transport = Stream
	default:
		return wrong("--transport", o.Transport, "use vhost-user (shared memory, fast) or stream (QEMU's -netdev stream)")
	}
	switch o.Profile {
	case "":
		n.Profile = "qemu"
	case "qemu", "uml", "generic":
	default:
		return wrong("--profile", o.Profile, "use qemu, uml or generic")
	}
	return nil
}

func (n *Net) families(o *Options) error {
	if o.IPv4Only && o.IPv6Only {
		return wrong("--ipv6-only", "", "excludes --ipv4-only: give one of them, or none for both families")
	}
	n.V4.Enabled, n.V6.Enabled = !o.IPv6Only, !o.IPv4Only
	return nil
}

func (n *Net) names(o *Options) error {
	for _, f := range []struct {
		opt, val string
		max      int
	}{{"--hostname", o.Hostname, MaxHostname}, {"--fqdn", o.FQDN, 253}} {
		if len(f.val) > f.max {
			return wrong(f.opt, f.val, "has %d bytes, at most %d fit", len(f.val), f.max)
		}
		if f.val != "" && !isDomain(f.val) {
			return wrong(f.opt, f.val, "write letters, digits, '-' and '_', with a '.' between labels")
		}
	}
	for _, s := range o.Search {
		if s == "" || len(s) > 253 {
			return wrong("--search", s, "write a DNS domain of at most 253 bytes, like lan.example")
		}
	}
	if o.MAC != "" {
		m, err := net.ParseMAC(o.MAC)
		if err != nil || len(m) != 6 {
			return wrong("--mac-addr", o.MAC, "write six bytes in hex, like 52:55:0a:00:02:02")
		}
		if m[0]&1 != 0 {
			return wrong("--mac-addr", o.MAC, "is a multicast address: the lowest bit of the first byte must be 0")
		}
		n.MAC = [6]byte(m)
	}
	return nil
}

// isDomain says whether s is made of labels as hosts have them (RFC 1123, 2.1, and
// the '_' that is in use). A final dot may stand behind them.
func isDomain(s string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
	}
	return true
}

func (n *Net) limits(o *Options) (err error) {
	if n.Poll, err = poll(o.Poll); err != nil {
		return err
	}
	if o.MTU != 0 {
		if o.MTU < MinMTU || o.MTU > MaxMTU {
			return wrong("--mtu", itoa(o.MTU), "use %d to %d bytes", MinMTU, MaxMTU)
		}
		n.MTU = o.MTU
	}
	switch {
	case n.MaxFlows == 0:
		n.MaxFlows = DefaultMaxFlows
	case n.MaxFlows < 16 || n.MaxFlows > 1<<20:
		return wrong("--max-flows", itoa(o.MaxFlows), "use 16 to %d", 1<<20)
	}
	if o.PcapSize < 0 {
		return wrong("--pcap-size", itoa(int(o.PcapSize)), "use a number of bytes, 0 for the default of 100 MiB")
	}
	if n.PcapSize == 0 {
		n.PcapSize = 100 << 20
	}
	return nil
}
