package dns

import (
	"net/netip"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Resolver says what the host's resolver configuration is now.
type Resolver interface {
	Upstreams() []netip.AddrPort // best first; the caller must not keep the slice
	Search() []string
}

// Config fixes a Forwarder.
type Config struct {
	MaxPending int // queries in flight; 0: DefaultMaxPending
}

// DefaultMaxPending bounds the queries in flight.
const DefaultMaxPending = 1024

// Deps is what a Forwarder works with.
type Deps struct {
	Port     *guest.Port
	Host     hostsock.Host
	Timers   *eventloop.Wheel
	Resolver Resolver
	Rand     func() uint32 // unpredictable
	Log      func(format string, a ...any)
}

// Forwarder relays queries and answers.
type Forwarder struct {
	c Config
	d Deps
}

// Port is the UDP port that the translator gives to Input.
const Port = 53

// New returns a forwarder.
func New(c Config, d Deps) *Forwarder { return &Forwarder{c: c, d: d} }

// Input takes a datagram of the guest to a --dns-forward address, port 53.
func (r *Forwarder) Input(p *wire.Packet, f *link.Frame) {}

// Ready implements eventloop.Source for the upstream sockets.
func (r *Forwarder) Ready(cookie uint32, ev eventloop.Events) {}

// Expired implements eventloop.Expirer.
func (r *Forwarder) Expired(cookie uint32) {}

// ResetAll forgets all queries; the guest has started anew.
func (r *Forwarder) ResetAll() {}
