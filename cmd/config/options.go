package config

// Options is the command line of `guestwire net`, as typed. Zero values mean
// "not given".
type Options struct {
	// How the guest is attached.
	SocketPath string
	FD         int // -1: not given
	Client     bool
	Transport  string
	Profile    string

	// Addressing.
	Addresses []string
	Gateways  []string
	MAC       string
	MTU       int
	IPv4Only  bool
	IPv6Only  bool
	Hostname  string
	FQDN      string

	// DNS.
	DNS        []string
	DNSForward []string
	DNSHost    []string
	Search     []string

	// Forwards and outbound.
	TCPPorts    []string
	UDPPorts    []string
	Outbound    []string
	OutboundIf4 string
	OutboundIf6 string

	// Policy.
	MapHostLoopback []string
	AllowMetadata   bool

	Off      Off
	Withhold Withhold

	Pcap     string
	PcapSize int64
	MaxFlows int
}

// Off switches services and protocols off.
type Off struct {
	DHCP, DHCPv6, RA, NDP, DNS, TCP, UDP, ICMP bool
}

// Withhold keeps device features from the guest, for odd guests and for tests.
type Withhold struct {
	TSO, Csum, USO, MrgRxbuf, EventIdx, Indirect, InOrder bool
}
