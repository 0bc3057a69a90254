package translate

import (
	"guestwire/translate/wire"
)

// Drop says why a well-formed frame goes no further here.
type Drop uint8

const (
	Admitted      Drop = iota
	DropMAC            // source MAC is multicast, ours, or not the one that the guest began with
	DropSource         // source address is not the guest's: unspecified, multicast, loopback, ours or foreign
	DropMulticast      // multicast or broadcast destination that no service takes
	DropFamily         // IP version is switched off
	DropProtocol       // IP protocol is not carried, or switched off
	NumDrops
)

var dropNames = [NumDrops]string{"", "mac", "addr-source", "multicast", "family", "protocol"}

// String is the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// admitLink checks the Ethernet header and learns the guest's MAC address: the
// first one counts, so that nobody behind the guest's port can take its frames.
// A guest that changes its address says so by DHCP or ARP.
func (t *Translator) admitLink(p *wire.Packet) Drop {
	switch {
	case p.EthSrc[0]&1 != 0, p.EthSrc == t.port.OurMAC, p.EthSrc == wire.MAC{}:
		return DropMAC
	case p.EthSrc == t.port.MAC:
		return Admitted
	case t.port.MAC == wire.MAC{}, p.EtherType == wire.EtherARP, t.isDiscover(p):
		t.port.MAC = p.EthSrc
		return Admitted
	}
	return DropMAC
}

// isDiscover: a DHCP client that may have changed its hardware address.
func (t *Translator) isDiscover(p *wire.Packet) bool {
	return !p.Frag && p.Proto == wire.ProtoUDP && p.EtherType != wire.EtherARP &&
		(p.DstPort == portDHCPv4 && !p.V6 || p.DstPort == portDHCPv6 && p.V6)
}

// admitSource checks that a packet that wants to leave the link comes from an
// address that the guest may hold: one of its prefix that is not ours, or a
// link-local one. It runs before any hashing of the addresses.
func (t *Translator) admitSource(p *wire.Packet) Drop {
	net := &t.c.V4
	if p.V6 {
		net = &t.c.V6
	}
	src := p.Src
	switch {
	case !net.enabled():
		return DropFamily
	case src.IsUnspecified(), src.IsMulticast(), src.IsLoopback(), src.IsBroadcast(), t.policy.IsOurs(src):
		return DropSource
	case p.Dst.IsMulticast(), p.Dst.IsBroadcast():
		return DropMulticast
	case p.V6 && src.IsLinkLocal():
		return Admitted
	case !net.Guest.Contains(src.ToNetip()):
		return DropSource
	}
	t.follow(p.V6, src)
	return Admitted
}

// follow notes where inbound forwards find the guest: at its leased address if
// it uses that, else at the one that it was last heard from (a guest without a
// DHCPv6 client has chosen its own, and may choose another one tomorrow).
func (t *Translator) follow(v6 bool, src wire.Addr) {
	at, lease := &t.port.Addr4, t.lease4
	if v6 {
		at, lease = &t.port.Addr6, t.lease6
	}
	if *at != src && (*at != lease || src == lease) {
		*at = src
	}
}
