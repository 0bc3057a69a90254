package neigh

import (
	"net/netip"

	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Config fixes what the link looks like to the guest. Our own addresses and MAC
// are those of the guest.Port.
type Config struct {
	IPv4, IPv6 bool
	NDP        bool // answer neighbour solicitations (--no-ndp)
	RA         bool // advertise ourselves as router (--no-ra)
	DHCPv6     bool // RA flags M and O: addresses and more by DHCPv6

	Net4, Net6     netip.Prefix // on-link; Net6 is advertised, with A when it is a /64
	Guest4, Guest6 wire.Addr    // the guest's configured addresses
	DNS4, DNS6     wire.Addr    // the forwarder's addresses, zero for none

	RDNSS  []wire.Addr     // announced name servers
	Search func() []string // announced search list; nil: none
	MTU    uint32          // announced; 0: not announced

	Rand func() uint32 // spreads router advertisements
}

// Neighbour is the gateway as the guest's neighbour.
type Neighbour struct {
	c      Config
	port   *guest.Port
	timers *eventloop.Wheel
}

// New returns a neighbour for the guest at port. timers is the loop's wheel.
func New(c Config, port *guest.Port, timers *eventloop.Wheel) *Neighbour {
	return &Neighbour{c: c, port: port, timers: timers}
}

// Input takes an ARP packet (EtherARP) or an ICMPv6 message of types 133 to 137.
func (n *Neighbour) Input(p *wire.Packet, f *link.Frame) {}

// LinkUp sends the first probes and advertisements. port.Up is set by then.
func (n *Neighbour) LinkUp() {}

// LinkDown stops the timers.
func (n *Neighbour) LinkDown() {}

// Expired implements eventloop.Expirer.
func (n *Neighbour) Expired(cookie uint32) {}
