package udp

import (
	"net/netip"
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
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

// Deps are what an Engine works with.
type Deps struct {
	Port   *guest.Port
	Host   hostsock.Host
	Timers *eventloop.Wheel
	Flows  *flow.Table
	Policy Policy
	Log    func(format string, a ...any) // nil: silent
}

// Engine is the UDP translator of one guest.
type Engine struct {
	c Config
	d Deps
}

// New returns an engine.
func New(c Config, d Deps) *Engine { return &Engine{c: c, d: d} }

// Input takes a datagram of the guest. Its frame must stay valid until EndBatch.
func (e *Engine) Input(p *wire.Packet, f *link.Frame) {}

// EndBatch sends what Input has gathered. It is called before the batch's
// frames go back to the guest.
func (e *Engine) EndBatch() {}

// Writable continues towards the guest after it has posted buffers, and after
// LinkUp.
func (e *Engine) Writable() {}

// Ready implements eventloop.Source for the host sockets.
func (e *Engine) Ready(cookie uint32, ev eventloop.Events) {}

// Expired implements eventloop.Expirer.
func (e *Engine) Expired(cookie uint32) {}

// Serve watches fd, a receiving socket bound to local, and leads its datagrams
// to guestPort of guestAddr, the guest's own address of the peer's family where
// that is zero. Answers leave through fd. fd stays open until Unserve.
func (e *Engine) Serve(fd hostsock.FD, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16) syscall.Errno {
	return 0
}

// Unserve ends the flows of fd and stops watching it; the caller closes it.
func (e *Engine) Unserve(fd hostsock.FD) {}

// ResetAll ends all flows: the guest has started anew. Served sockets stay.
func (e *Engine) ResetAll() {}

// Stats are counters since the start.
type Stats struct{}

// Stats returns the counters.
func (e *Engine) Stats() Stats { return Stats{} }
