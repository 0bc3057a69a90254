package udp

import (
	"net/netip"
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/translate/icmp"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

// Input takes a datagram of the guest. Its frame must stay valid until EndBatch.
func (e *Engine) Input(p *wire.Packet, f *link.Frame) {
	if p.SrcPort == 0 || p.DstPort == 0 {
		e.stats.dropPort++
		return
	}
	gso := int(f.Off.SegSize)
	if f.Off.GSO != link.GSOUDP {
		gso = 0
	} else if p.PayloadLen > gso*maxGuestSegs {
		e.stats.dropGSO++
		return
	}
	ttl, ok := icmp.Hop(e.d.Port, p, f)
	if !ok {
		e.stats.dropTTL++
		return
	}
	i, ok := e.find(p, f, ttl)
	if !ok {
		return
	}
	c := e.conns.At(i)
	if c.listener == 0 && ttl != c.ttl {
		e.setTTL(c, ttl)
	}
	e.note(i, c, p, f, gso, ttl)
}

// maxGuestSegs is how many datagrams one USO frame may become: UDP_MAX_SEGMENTS
// of Linux.
const maxGuestSegs = 128

// find returns the conn of p's flow, which begins if there is none.
func (e *Engine) find(p *wire.Packet, f *link.Frame, ttl uint8) (uint32, bool) {
	k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, RemotePort: p.DstPort, Proto: wire.ProtoUDP}
	if k == e.last && e.conns.Resolve(e.lastConn) != nil {
		return e.lastConn.Index, true
	}
	var slot uint32
	if i, ok := e.d.Flows.Lookup(&k); ok {
		slot = e.d.Flows.At(i).Slot
		if fl := e.d.Flows.At(i); fl.Initiator == flow.Host && fl.State == flow.Opening {
			e.d.Flows.Advance(i, flow.Active)
		}
	} else if slot, ok = e.outbound(&k, p, f, ttl); !ok {
		return 0, false
	}
	e.last, e.lastConn = k, e.conns.Handle(slot)
	return slot, true
}

// setTTL changes the TTL of a flow's own socket, behind what is to go out with
// the old one.
func (e *Engine) setTTL(c *conn, ttl uint8) {
	if c.first != 0 {
		e.EndBatch()
	}
	if errno := e.d.Host.SetTTL(e.d.Flows.At(c.flow).FD, ttl); errno != 0 {
		e.stats.hostErrors++
	}
	c.ttl = ttl
}

// outbound begins a flow of the guest's.
func (e *Engine) outbound(k *flow.Key, p *wire.Packet, f *link.Frame, ttl uint8) (uint32, bool) {
	host, v := e.d.Policy.Outbound(wire.ProtoUDP, k.Remote, k.RemotePort)
	switch v {
	case forward.Allow:
	case forward.RefuseGateway: // a station that does not serve this port
		e.stats.dropPolicy++
		icmp.Unreachable(e.d.Port, p, f, icmp.PortUnreachable)
		return 0, false
	default:
		e.stats.dropPolicy++
		icmp.Unreachable(e.d.Port, p, f, icmp.AdminProhibited)
		return 0, false
	}
	i, ok := e.insert(k)
	if !ok {
		e.stats.dropFlows++
		return 0, false
	}
	fd, errno := e.dial(host, k.GuestPort, ttl)
	if errno != 0 {
		e.d.Flows.Remove(i)
		e.stats.hostErrors++
		e.stats.dropHost++
		if why, ok := icmp.ReasonOf(errno); ok && why != icmp.FragNeeded {
			icmp.Unreachable(e.d.Port, p, f, why)
		}
		return 0, false
	}
	slot, c := e.begin(i)
	c.ttl = ttl
	fl := e.d.Flows.At(i)
	fl.FD, fl.Host = fd, host
	if errno := e.d.Host.Watch(fd, eventloop.In|eventloop.Edge, e, slot); errno != 0 {
		e.stats.hostErrors++ // nothing will come back; the flow ends by itself
	}
	return slot, true
}

// insert puts a flow into the table, in the place of an idle one if it is full.
func (e *Engine) insert(k *flow.Key) (uint32, bool) {
	now := e.d.Timers.Now()
	i, ok := e.d.Flows.Insert(k, now)
	if !ok && e.evict() {
		i, ok = e.d.Flows.Insert(k, now)
	}
	return i, ok
}

// dial makes a connected socket with the guest's source port if the host has it
// to give. Sockets of one guest port with different targets share it.
func (e *Engine) dial(host netip.AddrPort, port uint16, ttl uint8) (hostsock.FD, syscall.Errno) {
	o := e.c.Outbound4
	wildcard := netip.IPv4Unspecified()
	if host.Addr().Is6() {
		o = e.c.Outbound6
		wildcard = netip.IPv6Unspecified()
	}
	bind := o.Bind.Addr()
	if !bind.IsValid() || host.Addr().IsLoopback() {
		bind = wildcard // loopback does not answer to other addresses
	}
	o.Bind = netip.AddrPortFrom(bind, port)
	o.BindLoose, o.ReusePort, o.TTL = true, true, ttl
	fd, errno := e.d.Host.Dial(hostsock.UDP, host, &o)
	if scarce(errno) {
		e.sayScarce(errno)
	}
	if scarce(errno) && e.evict() {
		fd, errno = e.d.Host.Dial(hostsock.UDP, host, &o)
	}
	return fd, errno
}

// sayScarce tells the operator, once, that flows end early for want of sockets.
func (e *Engine) sayScarce(errno syscall.Errno) {
	if !e.scarce && e.d.Log != nil {
		e.d.Log("no more sockets for the guest's UDP flows (%v): the longest idle ones end early; a higher limit of open files (ulimit -n) would allow more", errno)
	}
	e.scarce = true
}

// scarce says whether ending another flow may help.
func scarce(e syscall.Errno) bool {
	return e == syscall.EMFILE || e == syscall.ENFILE || e == syscall.ENOBUFS || e == syscall.ENOMEM
}
