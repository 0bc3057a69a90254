package dhcp

import (
	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Config fixes what the guest is told. The server's own addresses and MAC are
// those of the guest.Port.
type Config struct {
	Addr4     wire.Addr // leased; zero: no DHCPv4
	Bits4     int       // prefix length
	Router4   wire.Addr // zero: none
	DNS4      []wire.Addr
	Addr6     wire.Addr // leased; zero: no DHCPv6
	Bits6     int       // prefix length of the link
	DNS6      []wire.Addr
	MTU       uint16 // 0: not announced
	Hostname  string
	FQDN      string
	Search    func() []string // nil: none
	LeaseTime uint32          // seconds; 0: DefaultLease
	Log       func(format string, a ...any)
}

// DefaultLease is the lease time in seconds.
const DefaultLease = 24 * 60 * 60

// Server is the DHCP server of one guest.
type Server struct {
	c    Config
	port *guest.Port
}

// New returns a server for the guest at port.
func New(c Config, port *guest.Port) *Server { return &Server{c: c, port: port} }

// UDP ports that the server listens on.
const (
	Port4 = 67  // DHCPv4, from 68
	Port6 = 547 // DHCPv6, from 546
)

// Input takes a datagram to Port4 (IPv4) or Port6 (IPv6).
func (s *Server) Input(p *wire.Packet, f *link.Frame) {}
