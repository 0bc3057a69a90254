package icmp

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

// Input takes an ICMP or ICMPv6 message of the guest that is not neighbour
// discovery.
func (e *Engine) Input(p *wire.Packet, f *link.Frame) {
	if !p.IsEcho() {
		e.stats.dropType++
		return
	}
	e.stats.requests++
	if e.d.Port.IsOurs(p.Dst) {
		e.answer(p, f)
		return
	}
	host, v := e.d.Policy.Outbound(p.Proto, p.Dst, 0)
	switch v {
	case forward.Allow:
	case forward.RefuseGateway, forward.RefuseDNS: // ours, though not the gateway's
		e.answer(p, f)
		return
	default:
		e.stats.dropPolicy++
		Unreachable(e.d.Port, p, f, AdminProhibited)
		return
	}
	ttl, ok := Hop(e.d.Port, p, f)
	if !ok {
		e.stats.dropTTL++
		return
	}
	if i, ok := e.session(p, f, host, ttl); ok {
		e.request(i, p, f, ttl)
	}
}

// answer echoes a request to ourselves.
func (e *Engine) answer(p *wire.Packet, f *link.Frame) {
	if e.held != (flow.Handle{}) {
		e.stats.dropGuestFull++ // the scratch is taken, so the guest takes nothing
		return
	}
	b := e.buffer()
	n := wire.ICMPLen + wire.Copy(b[wire.ICMPLen:wire.ICMPLen+p.PayloadLen], f, p.PayloadOff)
	if !e.reply(nil, b[:n], p.Dst, p.Src, p.SrcPort, p.ICMPSeq, guest.DefaultTTL, p.TOS) {
		e.stats.dropGuestFull++
		return
	}
	e.stats.answered++
}

// reply sends an echo reply to the guest; its payload is already behind the
// header in b. st is for SendL4Partly.
func (e *Engine) reply(st *guest.Partial, b []byte, src, dst wire.Addr, id, seq uint16, ttl, tos uint8) bool {
	typ, proto, sum := uint8(wire.ICMPEchoReply), uint8(wire.ProtoICMP), uint32(0)
	if !dst.Is4() {
		typ, proto = wire.ICMPv6EchoReply, wire.ProtoICMPv6
		sum = wire.PseudoHeader(src, dst, proto, len(b))
	}
	wire.PutICMP(b, typ, 0, uint32(id)<<16|uint32(seq))
	wire.PutChecksum(b, wire.ICMPCsumOff, wire.Finish(wire.Checksum(sum, b)))
	return e.d.Port.SendL4Partly(st, src, dst, proto, ttl, tos, b)
}

// session finds or makes the session of p.
func (e *Engine) session(p *wire.Packet, f *link.Frame, host netip.AddrPort, ttl uint8) (uint32, bool) {
	k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, Proto: p.Proto}
	now := e.d.Timers.Now()
	if i, ok := e.d.Flows.Lookup(&k); ok {
		e.d.Flows.Touch(i, now)
		return e.d.Flows.At(i).Slot, true
	}
	if e.d.Flows.LenProto(p.Proto) >= e.c.MaxFlows {
		e.evict()
	}
	i, ok := e.d.Flows.Insert(&k, now)
	if !ok && e.evict() {
		i, ok = e.d.Flows.Insert(&k, now)
	}
	if !ok {
		e.stats.dropFlows++
		return 0, false
	}
	fd, errno := e.dial(host, ttl)
	if errno != 0 {
		e.d.Flows.Remove(i)
		e.dialFailed(p, f, errno)
		return 0, false
	}
	return e.open(i, fd, host, ttl, now), true
}

// dial makes a ping socket, in the place of the oldest one if there are no more
// descriptors.
func (e *Engine) dial(host netip.AddrPort, ttl uint8) (hostsock.FD, syscall.Errno) {
	o := e.c.Outbound4
	if host.Addr().Is6() {
		o = e.c.Outbound6
	}
	if host.Addr().IsLoopback() {
		o.Bind = netip.AddrPort{}
	}
	o.TTL = ttl
	fd, errno := e.d.Host.Dial(hostsock.Ping, host, &o)
	if (errno == syscall.EMFILE || errno == syscall.ENFILE) && e.evict() {
		fd, errno = e.d.Host.Dial(hostsock.Ping, host, &o)
	}
	return fd, errno
}

// open makes the session of flow i.
func (e *Engine) open(i uint32, fd hostsock.FD, host netip.AddrPort, ttl uint8, now eventloop.Time) uint32 {
	slot, s := e.slab.Get()
	s.flow, s.ttl = i, ttl
	s.timer = e.d.Timers.New(e, slot)
	e.d.Timers.Set(s.timer, now+e.c.Idle)
	fl := e.d.Flows.At(i)
	fl.FD, fl.Host, fl.Slot = fd, host, slot
	if errno := e.d.Host.Watch(fd, eventloop.In|eventloop.Edge, e, slot); errno != 0 {
		e.stats.hostErrors++ // replies will not come; the session ends by itself
	}
	e.stats.sessions++
	return slot
}

// evict ends the session that has been idle longest.
func (e *Engine) evict() bool {
	i, ok := e.d.Flows.OldestIdle(wire.ProtoICMP)
	if !ok || e.d.Flows.At(i).Slot == 0 {
		return false
	}
	e.stats.evicted++
	e.end(e.d.Flows.At(i).Slot)
	return true
}

// dialFailed tells the guest, and once the operator, why there is no socket.
func (e *Engine) dialFailed(p *wire.Packet, f *link.Frame, errno syscall.Errno) {
	e.stats.hostErrors++
	if errno == syscall.EACCES || errno == syscall.EPERM {
		e.stats.forbidden++
		if !e.refused && e.d.Log != nil {
			e.d.Log("the host forbids ping sockets, so the guest cannot ping beyond its gateway; to allow it: sysctl -w net.ipv4.ping_group_range=\"0 2147483647\" (it governs IPv6 too)")
		}
		e.refused = true
	}
	if why, ok := ReasonOf(errno); ok && why != FragNeeded {
		Unreachable(e.d.Port, p, f, why)
	}
}

// request sends p on its session's socket.
func (e *Engine) request(i uint32, p *wire.Packet, f *link.Frame, ttl uint8) {
	s := e.slab.At(i)
	fd := e.d.Flows.At(s.flow).FD
	if ttl != s.ttl {
		if errno := e.d.Host.SetTTL(fd, ttl); errno != 0 {
			e.stats.hostErrors++
		}
		s.ttl = ttl
	}
	typ := uint8(wire.ICMPEchoRequest)
	if p.V6 {
		typ = wire.ICMPv6EchoRequest
	}
	wire.PutICMP(e.head[:], typ, 0, uint32(p.SrcPort)<<16|uint32(p.ICMPSeq))
	e.bufs = wire.Payload(append(e.bufs[:0], e.head[:]), f, p.PayloadOff, p.PayloadLen)
	e.out[0] = hostsock.Message{Bufs: e.bufs, TOS: p.TOS}
	n, errno := e.d.Host.Send(fd, e.out[:])
	if n == 0 && errno != syscall.EAGAIN {
		// What an earlier request met is reported in the place of this one.
		e.errors(i)
		n, errno = e.d.Host.Send(fd, e.out[:])
	}
	clear(e.bufs) // guest memory goes back after the batch
	if n == 1 {
		return
	}
	e.stats.hostErrors++
	if why, ok := ReasonOf(errno); ok && why != FragNeeded {
		Unreachable(e.d.Port, p, f, why)
	}
}
