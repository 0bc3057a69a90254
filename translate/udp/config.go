package udp

import (
	"net/netip"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Policy says where the guest may go and how the world appears to it.
// *forward.Policy is one.
type Policy interface {
	Outbound(proto uint8, dst wire.Addr, port uint16) (host netip.AddrPort, v forward.Verdict)
	InboundSource(peer netip.AddrPort) wire.Addr
}

// Config fixes an Engine. Zero fields take their defaults.
type Config struct {
	MaxFlows  int              // of UDP; 0: what the flow table allows
	Unreplied eventloop.Time   // idle time of a flow with traffic one way only; default 30 s
	Stream    eventloop.Time   // idle time of a flow with traffic both ways; default 120 s
	Outbound4 hostsock.Options // Device and Bind address of outbound sockets
	Outbound6 hostsock.Options
}

// RFC 4787 4.3 asks for two minutes; flows that nobody answers are mostly
// lookups and probes.
const (
	defaultUnreplied = eventloop.Time(30e9)
	defaultStream    = eventloop.Time(120e9)
)

// Deps are what an Engine works with.
type Deps struct {
	Port   *guest.Port
	Host   hostsock.Host
	Timers *eventloop.Wheel
	Flows  *flow.Table
	Policy Policy
	Clock  eventloop.Clock               // the loop: the time of this turn; nil: streaming sockets do not rest
	Log    func(format string, a ...any) // nil: silent
}
