package config

// Options is the command line of `guestwire net`, as typed, or the section `net`
// of a guest in a file. Zero values mean "not given". The tags are the names of
// the flags, which are the keys of the file as well.
type Options struct {
	// How the guest is attached.
	SocketPath string `key:"socket-path"`
	FD         int    `key:"fd"` // -1: not given
	Client     bool   `key:"client"`
	Transport  string `key:"transport"`
	Profile    string `key:"profile"`

	// Addressing.
	Addresses []string `key:"address"`
	Gateways  []string `key:"gateway"`
	MAC       string   `key:"mac-addr"`
	MTU       int      `key:"mtu"`
	IPv4Only  bool     `key:"ipv4-only"`
	IPv6Only  bool     `key:"ipv6-only"`
	Hostname  string   `key:"hostname"`
	FQDN      string   `key:"fqdn"`

	// DNS.
	DNS        []string `key:"dns"`
	DNSForward []string `key:"dns-forward"`
	DNSHost    []string `key:"dns-host"`
	Search     []string `key:"search"`

	// Forwards and outbound.
	TCPPorts    []string `key:"tcp-ports"`
	UDPPorts    []string `key:"udp-ports"`
	Outbound    []string `key:"outbound"`
	OutboundIf4 string   `key:"outbound-if4"`
	OutboundIf6 string   `key:"outbound-if6"`

	// Policy.
	MapHostLoopback []string `key:"map-host-loopback"`
	MapGuestAddr    []string `key:"map-guest-addr"`
	AllowMetadata   bool     `key:"allow-metadata"`

	Off      Off
	Withhold Withhold

	Pcap     string `key:"pcap"`
	PcapSize int64  `key:"pcap-size"`
	MaxFlows int    `key:"max-flows"`
	Poll     string `key:"poll"`
}

// Off switches services and protocols off.
type Off struct {
	DHCP   bool `key:"no-dhcp"`
	DHCPv6 bool `key:"no-dhcpv6"`
	RA     bool `key:"no-ra"`
	NDP    bool `key:"no-ndp"`
	DNS    bool `key:"no-dns"`
	TCP    bool `key:"no-tcp"`
	UDP    bool `key:"no-udp"`
	ICMP   bool `key:"no-icmp"`
}

// Withhold keeps device features from the guest, for odd guests and for tests.
type Withhold struct {
	TSO      bool `key:"no-tso"`
	Csum     bool `key:"no-csum"`
	USO      bool `key:"no-uso"`
	MrgRxbuf bool `key:"no-mrg-rxbuf"`
	EventIdx bool `key:"no-event-idx"`
	Indirect bool `key:"no-indirect"`
	InOrder  bool `key:"no-in-order"`
}
