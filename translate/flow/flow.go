package flow

import (
	"net/netip"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Key is a flow as the guest sees it. For echo sessions GuestPort is the
// identifier and RemotePort 0.
type Key struct {
	Guest, Remote         wire.Addr
	GuestPort, RemotePort uint16
	Proto                 uint8 // IP protocol number
}

// Side is one of the two sides of a flow.
type Side uint8

const (
	Guest Side = iota
	Host
)

// String returns "guest" or "host".
func (s Side) String() string {
	if s == Guest {
		return "guest"
	}
	return "host"
}

// State is where a flow is in its life.
type State uint8

const (
	Free    State = iota // not a flow
	Opening              // the other side has not agreed yet
	Active               // both sides agreed
	Closing              // one side is done, the rest is being delivered
	nStates
)

// String returns the state's name in lower case.
func (s State) String() string {
	if s < nStates {
		return [nStates]string{"free", "opening", "active", "closing"}[s]
	}
	return "invalid"
}

// Flow is one entry of the table. Key, State and Last are changed only through
// the Table; the rest belongs to the protocol that inserted it.
type Flow struct {
	Key       Key
	Host      netip.AddrPort // the peer of the host socket
	HostLocal netip.AddrPort // our end of the host socket
	FD        hostsock.FD    // hostsock.None when there is no socket
	Slot      uint32         // index in the protocol's own Slab, 0 for none
	Last      eventloop.Time // last traffic (Insert, Touch)
	State     State
	Initiator Side

	hash       uint32
	prev, next uint32 // LRU neighbours, 0 for none; next is towards the newest
}
