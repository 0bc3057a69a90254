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
	Search    func() []string               // nil: none
	LeaseTime uint32                        // seconds; 0: DefaultLease
	Log       func(format string, a ...any) // nil: silent
}

// DefaultLease is the lease time in seconds.
const DefaultLease = 24 * 60 * 60

// UDP ports that the server listens on, and those of clients.
const (
	Port4 = 67
	Port6 = 547

	clientPort4 = 68
	clientPort6 = 546
)

const (
	maxMessage = 1500
	maxServers = 8
)

// Drop says why a message got no answer. Each is a counter.
type Drop uint8

const (
	DropOff      Drop = iota // this IP version is not served
	DropLong                 // beyond 1500 bytes
	DropShort                // ends before its fixed part does
	DropFormat               // a field that must have another value
	DropHardware             // not an Ethernet client, or no unicast address
	DropMagic                // no magic cookie
	DropOption               // option of a wrong length or beyond the message
	DropRelay                // from a relay
	DropServer               // meant for another server
	DropKind                 // no message that servers answer
	DropNoRoom               // the guest had no buffer for the answer
	NumDrops
)

var dropNames = [NumDrops]string{
	"off", "long", "short", "format", "hardware", "magic", "option", "relay", "server", "kind", "no-room",
}

// String is the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Stats are counters.
type Stats struct {
	Offers, Acks, Naks, Bootp uint64 // IPv4, sent
	Advertises, Replies       uint64 // IPv6, sent
	Releases, Declines        uint64 // both, received
	Drops                     [NumDrops]uint64
}

// Server is the DHCP server of one guest.
type Server struct {
	c     Config
	port  *guest.Port
	stats Stats

	in  [maxMessage]byte // the message at hand, copied from the guest
	out [maxMessage]byte // the answer: whole frame (IPv4), datagram (IPv6)
	r4  request4
	r6  request6
}

// New returns a server for the guest at port.
func New(c Config, port *guest.Port) *Server {
	if c.LeaseTime == 0 {
		c.LeaseTime = DefaultLease
	}
	return &Server{c: c, port: port}
}

// Stats returns the counters.
func (s *Server) Stats() Stats { return s.stats }

// Input takes a datagram to Port4 (IPv4) or Port6 (IPv6).
func (s *Server) Input(p *wire.Packet, f *link.Frame) {
	switch {
	case p.V6 && s.c.Addr6.IsZero(), !p.V6 && s.c.Addr4.IsZero():
		s.drop(DropOff)
		return
	case p.PayloadLen > len(s.in):
		s.drop(DropLong)
		return
	}
	msg := s.in[:p.PayloadLen]
	if wire.Copy(msg, f, p.PayloadOff) < len(msg) {
		s.drop(DropShort)
		return
	}
	if p.V6 {
		s.input6(p, msg)
	} else {
		s.input4(msg)
	}
}

func (s *Server) drop(d Drop) { s.stats.Drops[d]++ }

func (s *Server) logf(format string, a ...any) {
	if s.c.Log != nil {
		s.c.Log(format, a...)
	}
}

func (s *Server) search() []string {
	if s.c.Search == nil {
		return nil
	}
	return s.c.Search()
}

// Each calls f with the name and value of every counter.
func (s *Server) Each(f func(name string, value uint64)) {
	f("offers", s.stats.Offers)
	f("acks", s.stats.Acks)
	f("naks", s.stats.Naks)
	f("bootp", s.stats.Bootp)
	f("advertises", s.stats.Advertises)
	f("replies", s.stats.Replies)
	f("releases", s.stats.Releases)
	f("declines", s.stats.Declines)
	for d := range NumDrops {
		f("drop_"+d.String(), s.stats.Drops[d])
	}
}
