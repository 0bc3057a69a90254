package translate

import (
	"net/netip"

	"guestwire/translate/dns"
	"guestwire/translate/forward"
	"guestwire/translate/icmp"
	"guestwire/translate/tcp"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Ports of the services that the guest finds at the gateway.
const (
	portDHCPv4 = 67
	portDHCPv6 = 547
)

// Frames implements link.Handler.
func (t *Translator) Frames(batch []link.Frame) {
	t.inBatch = true
	for i := range batch {
		t.frame(&batch[i])
	}
	t.tcp.EndBatch()
	t.udp.EndBatch()
	t.inBatch = false
}

// frame leads one frame to the room that answers for it.
func (t *Translator) frame(f *link.Frame) {
	p := &t.packet
	if v := wire.Parse(p, f); v != wire.OK {
		t.stats.parse[v]++
		return
	}
	if d := t.admitLink(p); d != Admitted {
		t.stats.drops[d]++
		return
	}
	if p.EtherType == wire.EtherARP {
		t.neigh.Input(p, f)
		return
	}
	if t.answered(p, f) {
		return
	}
	if d := t.admitSource(p); d != Admitted {
		t.stats.drops[d]++
		return
	}
	if p.Frag {
		t.fragment(p, f)
		return
	}
	t.forward(p, f)
}

// fragment collects p, and starts over with the datagram that it completes. The
// pieces of UDP batches refer to the frame's memory, so they are sent before
// the slot is used again.
func (t *Translator) fragment(p *wire.Packet, f *link.Frame) {
	whole := t.reasm.Input(p, f)
	if whole == nil {
		return
	}
	if v := wire.Parse(p, whole); v != wire.OK || p.Frag {
		t.stats.parse[v]++
		return
	}
	if !t.answered(p, whole) {
		t.forward(p, whole)
	}
	t.tcp.EndBatch()
	t.udp.EndBatch()
}

// answered handles what is for ourselves and may come from a guest that has no
// address yet. It reports whether the frame was one of these.
func (t *Translator) answered(p *wire.Packet, f *link.Frame) bool {
	if p.Frag {
		return false
	}
	switch {
	case p.Proto == wire.ProtoICMPv6 && p.V6 && isNeighbour(p.ICMPType):
		t.neigh.Input(p, f)
	case p.Proto == wire.ProtoICMPv6 && p.V6 && isListener(p.ICMPType):
		t.stats.drops[DropMulticast]++ // MLD: there is no multicast router here
	case p.Proto == wire.ProtoUDP && !p.V6 && p.DstPort == portDHCPv4 && t.isServer(p.Dst):
		t.dhcp.Input(p, f)
	case p.Proto == wire.ProtoUDP && p.V6 && p.DstPort == portDHCPv6 && t.isServer(p.Dst):
		t.dhcp.Input(p, f)
	default:
		return false
	}
	return true
}

// isNeighbour: RS, RA, NS, NA and redirect (RFC 4861).
func isNeighbour(icmpType uint8) bool { return icmpType >= 133 && icmpType <= 137 }

// isListener: multicast listener query, report, done and version 2 report
// (RFC 2710, RFC 3810).
func isListener(icmpType uint8) bool {
	return icmpType >= 130 && icmpType <= 132 || icmpType == 143
}

// isServer: a DHCP client sends to the server or to all of them.
func (t *Translator) isServer(dst wire.Addr) bool {
	return dst.IsBroadcast() || dst.IsMulticast() || t.policy.IsOurs(dst)
}

// forward gives a whole packet from a good source to its L4 translator.
func (t *Translator) forward(p *wire.Packet, f *link.Frame) {
	switch {
	case p.Proto == wire.ProtoTCP && !t.c.Off.TCP:
		if t.hop(p, f) {
			t.tcp.Input(p, f)
		}
	case p.Proto == wire.ProtoUDP && p.DstPort == dns.Port && t.policy.IsDNS(p.Dst):
		t.dns.Input(p, f)
	case p.Proto == wire.ProtoUDP && !t.c.Off.UDP:
		t.udp.Input(p, f)
	case (p.Proto == wire.ProtoICMP || p.Proto == wire.ProtoICMPv6) && !t.c.Off.ICMP:
		t.icmp.Input(p, f)
	default:
		t.stats.drops[DropProtocol]++
	}
}

// hop spends one hop of a TCP segment, as a router does (RFC 1812, 5.3.1).
func (t *Translator) hop(p *wire.Packet, f *link.Frame) bool {
	if p.TTL > 1 {
		return true
	}
	_, ok := icmp.Hop(&t.port, p, f)
	return ok
}

// outboundTCP asks the policy for the host side of a guest's connection.
func (t *Translator) outboundTCP(dst wire.Addr, port uint16) (netip.AddrPort, bool) {
	host, v := t.policy.Outbound(wire.ProtoTCP, dst, port)
	return host, v == forward.Allow
}

// unreachable tells the guest why its SYN got nowhere.
func (t *Translator) unreachable(orig *wire.Packet, why tcp.Why) {
	reason := icmp.HostUnreachable
	switch why {
	case tcp.NetUnreach:
		reason = icmp.NetUnreachable
	case tcp.AdminProhibited:
		reason = icmp.AdminProhibited
	}
	icmp.Unreachable(&t.port, orig, nil, reason)
}
