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
	NDP        bool // take part in neighbour discovery at all (--no-ndp)
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

// Drop says why a message was not acted on. Each is a counter.
type Drop uint8

const (
	DropShort    Drop = iota // ends before its fixed part does
	DropFormat               // a field that must have another value
	DropHopLimit             // hop limit is not 255
	DropOption               // option of length 0 or beyond the message
	DropClaim                // the guest claims an address of ours
	DropRouter               // router advertisement or redirect from the guest
	DropOther                // asks for an address that is not on this link, or the guest's own
	DropRate                 // more than the rate limit
	DropNoRoom               // the guest had no buffer for the answer
	NumDrops
)

var dropNames = [NumDrops]string{"short", "format", "hop-limit", "nd-opt", "claim", "router", "other", "rate", "no-room"}

// String is the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Stats are counters.
type Stats struct {
	ARPReplies     uint64 // sent
	Advertisements uint64 // neighbour advertisements sent
	RouterAdverts  uint64 // router advertisements sent
	Probes         uint64 // ARP requests and neighbour solicitations sent
	Drops          [NumDrops]uint64
}

// Cookies of the two timers.
const (
	timerAdvert = iota
	timerProbe
)

// Neighbour is the gateway as the guest's neighbour.
type Neighbour struct {
	c      Config
	port   *guest.Port
	timers *eventloop.Wheel
	limit  bucket
	stats  Stats

	advert, probe eventloop.TimerID
	adverts       int  // unsolicited router advertisements since link up
	probes        int  // rounds of probes since link up
	owesAdvert    bool // an advertisement that was due found no room
	owesProbe     bool // likewise a round of probes

	msg [maxMessage]byte // the message at hand, copied from the guest
	out [maxFrame]byte   // the frame being built
}

const (
	maxMessage = 1500
	maxFrame   = wire.EthLen + 1280 // the smallest IPv6 MTU takes it (RFC 8200 5)
)

// New returns a neighbour for the guest at port. timers is the loop's wheel.
func New(c Config, port *guest.Port, timers *eventloop.Wheel) *Neighbour {
	n := &Neighbour{c: c, port: port, timers: timers}
	n.limit = bucket{tokens: burst, last: timers.Now()}
	n.advert = timers.New(n, timerAdvert)
	n.probe = timers.New(n, timerProbe)
	return n
}

// Stats returns the counters.
func (n *Neighbour) Stats() Stats { return n.stats }

// Each calls f with the name and value of every counter.
func (n *Neighbour) Each(f func(name string, value uint64)) {
	f("arp_replies", n.stats.ARPReplies)
	f("advertisements", n.stats.Advertisements)
	f("router_adverts", n.stats.RouterAdverts)
	f("probes", n.stats.Probes)
	for d := range NumDrops {
		f("drop_"+d.String(), n.stats.Drops[d])
	}
}

// Input takes an ARP packet (EtherARP) or an ICMPv6 message of types 133 to 137.
func (n *Neighbour) Input(p *wire.Packet, f *link.Frame) {
	switch {
	case p.EtherType == wire.EtherARP:
		if n.c.IPv4 {
			n.arp(p)
		}
	case n.c.IPv6 && n.c.NDP:
		n.ndp(p, f)
	}
}

// LinkUp looks for the guest and announces the router. port.Up is set by then.
func (n *Neighbour) LinkUp() {
	n.adverts, n.probes = 0, 0
	n.Expired(timerAdvert)
	n.Expired(timerProbe)
}

// Writable is called when the guest has posted buffers. A driver has none when
// the link comes up, before its interface does: what found no room then is said
// now. Only what was not sent at all is owed, so that an answer to the guest's
// last buffer cannot ask for the next one.
func (n *Neighbour) Writable() {
	if n.owesAdvert {
		n.owesAdvert = false
		n.Expired(timerAdvert)
	}
	if n.owesProbe {
		n.owesProbe = false
		n.Expired(timerProbe)
	}
}

// LinkDown stops the timers.
func (n *Neighbour) LinkDown() {
	n.timers.Stop(n.advert)
	n.timers.Stop(n.probe)
}

// Announce sends a router advertisement now: what it says has changed.
func (n *Neighbour) Announce() {
	if n.port.Up && n.advertises() {
		n.sendAdvert(allNodes, wire.MAC{0x33, 0x33, 0, 0, 0, 1})
	}
}

// Expired implements eventloop.Expirer.
func (n *Neighbour) Expired(cookie uint32) {
	if !n.port.Up {
		return
	}
	if cookie == timerProbe {
		n.sendProbes()
		return
	}
	if n.advertises() {
		sent := n.stats.RouterAdverts
		n.Announce()
		if n.owesAdvert = n.stats.RouterAdverts == sent; !n.owesAdvert {
			n.adverts++
		}
		n.timers.Set(n.advert, n.timers.Now()+n.advertInterval())
	}
}

func (n *Neighbour) advertises() bool { return n.c.IPv6 && n.c.NDP && n.c.RA }

func (n *Neighbour) drop(d Drop) { n.stats.Drops[d]++ }

// learn notes that the guest holds a at mac. The lease is the address that
// inbound forwards should use, so it replaces another one.
func (n *Neighbour) learn(a wire.Addr, mac wire.MAC) {
	p := n.port
	switch {
	case a.Is4():
		if !learnable(a, n.c.Guest4, n.c.Net4) {
			return
		}
		learnInto(&p.Addr4, a, n.c.Guest4)
	case a.IsLinkLocal():
		learnInto(&p.LL6, a, wire.Addr{})
	default:
		if !learnable(a, n.c.Guest6, n.c.Net6) {
			return
		}
		learnInto(&p.Addr6, a, n.c.Guest6)
	}
	if p.MAC.IsZero() {
		p.MAC = mac
	}
}

// learnable: the lease, or another address of the link, which a guest that was
// set up by hand may hold.
func learnable(a, lease wire.Addr, on netip.Prefix) bool {
	return a == lease || on.IsValid() && on.Contains(a.ToNetip())
}

func learnInto(field *wire.Addr, a, lease wire.Addr) {
	if field.IsZero() || a == lease {
		*field = a
	}
}

// isOurs says whether we hold a on this link.
func (n *Neighbour) isOurs(a wire.Addr) bool {
	return n.port.IsOurs(a) || !a.IsZero() && (a == n.c.DNS4 || a == n.c.DNS6)
}

// isGuest says whether a is the guest's.
func (n *Neighbour) isGuest(a wire.Addr) bool {
	p := n.port
	return !a.IsZero() && (a == n.c.Guest4 || a == n.c.Guest6 || a == p.Addr4 || a == p.Addr6 || a == p.LL6)
}

// send sends the first k bytes of out. Frames are padded to what Ethernet
// carries at least, 60 bytes: some drivers insist.
func (n *Neighbour) send(k int) bool {
	for ; k < minFrame; k++ {
		n.out[k] = 0
	}
	head := min(k, link.MaxHeader)
	if !n.port.Up || !link.Send(n.port.EP, n.out[:head], n.out[head:k], link.Offload{}) {
		n.drop(DropNoRoom)
		return false
	}
	return true
}

const minFrame = 60
