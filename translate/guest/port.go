package guest

import (
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Port is one guest's link and addresses.
type Port struct {
	EP   link.Endpoint
	Caps link.Caps // of EP, set at LinkUp
	Up   bool      // between LinkUp and LinkDown

	MAC, OurMAC wire.MAC // MAC is zero until the guest has been heard

	// Of the guest, zero while unknown or where the family is off.
	Addr4, Addr6, LL6 wire.Addr
	// Ours, as the guest's gateway: senders of ICMP errors, targets of local echo.
	Gateway4, Gateway6, OurLL6 wire.Addr

	Timers *eventloop.Wheel // the loop's time, for Errors; nil: no rate limit
	Errors Budget           // of ICMP errors to the guest, all rooms together

	open bool   // a reservation is
	id4  uint16 // last IPv4 identification
	id6  uint32 // last IPv6 fragment identification
}

// DefaultTTL is the TTL and hop limit of packets that have none of their own.
const DefaultTTL = 64

// L3Len is the length of the Ethernet and IP headers that PutL3 writes.
func (p *Port) L3Len(v6 bool) int {
	if v6 {
		return wire.EthLen + wire.IPv6Len
	}
	return wire.EthLen + wire.IPv4Len
}

// PutL3 writes the Ethernet and IP header of an unfragmented packet towards the
// guest with l4len bytes behind them, and returns their length (34 or 54). The
// family is that of dst.
func (p *Port) PutL3(b []byte, src, dst wire.Addr, proto uint8, ttl, tos uint8, l4len int) int {
	if !dst.Is4() {
		wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv6)
		return wire.EthLen + wire.PutIPv6(b[wire.EthLen:], &wire.IPv6Fields{
			Src: src, Dst: dst, NextHeader: proto, HopLimit: ttl, TrafficClass: tos, PayloadLen: l4len,
		})
	}
	wire.PutEthernet(b, p.to(), p.OurMAC, wire.EtherIPv4)
	p.id4++
	return wire.EthLen + wire.PutIPv4(b[wire.EthLen:], &wire.IPv4Fields{
		Src: src, Dst: dst, Proto: proto, TTL: ttl, TOS: tos, ID: p.id4,
		DontFrag: proto == wire.ProtoTCP, PayloadLen: l4len,
	})
}

// to is the destination of frames: broadcast until the guest has been heard.
func (p *Port) to() wire.MAC {
	if p.MAC.IsZero() {
		return wire.Broadcast
	}
	return p.MAC
}

// MTU is the largest L3 packet that the guest takes without GSO.
func (p *Port) MTU() int {
	if p.Caps.MTU == 0 {
		return 1500
	}
	return p.Caps.MTU
}

// OurAddr is the gateway's address of dst's family: link-local for a
// link-local destination.
func (p *Port) OurAddr(dst wire.Addr) wire.Addr {
	switch {
	case dst.Is4():
		return p.Gateway4
	case dst.IsLinkLocal() || p.Gateway6.IsZero():
		return p.OurLL6
	}
	return p.Gateway6
}

// IsOurs says whether a is an address of the gateway.
func (p *Port) IsOurs(a wire.Addr) bool {
	return !a.IsZero() && (a == p.Gateway4 || a == p.Gateway6 || a == p.OurLL6)
}

// AllowError takes one ICMP error to the guest out of the budget.
func (p *Port) AllowError() bool {
	return p.Timers == nil || p.Errors.Take(p.Timers.Now())
}
