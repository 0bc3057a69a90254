package tcp

import (
	"net/netip"
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// This file begins connections: of the guest's SYN, and of a socket that a
// listener has accepted.

// syn takes the guest's SYN of a connection that does not exist. The SYN-ACK
// waits for the target. Data on it is not taken (T18): the guest sends it again.
func (e *Engine) syn(p *wire.Packet) {
	now := e.now()
	remote, ok := e.deps.Outbound(p.Dst, p.DstPort)
	switch {
	case !ok:
		e.drop(DropRefused)
		e.resetStranger(p)
		return
	case !e.synTokens.take(now):
		e.drop(DropSynRate)
		return
	case !e.roomForHalfOpen(now):
		e.drop(DropSynLimit)
		return
	}
	k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, RemotePort: p.DstPort, Proto: wire.ProtoTCP}
	c := e.newConn(&k, Connecting)
	if c == nil {
		e.drop(DropFlowLimit)
		return
	}
	e.stats.Accepted++
	e.stats.Outbound++
	fl := e.flows.At(c.flow)
	fl.Host, fl.Initiator = remote, flow.Guest
	e.takeSyn(c, p)
	c.rtxAt = now + eventloop.Time(e.cfg.ConnectTimeout)
	e.dial(c, remote)
	if c.state != Closed {
		e.arm(c)
	}
}

// takeSyn takes sequence number and options of the guest's SYN or SYN-ACK.
func (e *Engine) takeSyn(c *conn, p *wire.Packet) {
	t := &p.TCP
	c.set(fPeerSeq)
	c.irs, c.rcvNxt, c.wrNxt, c.edge = t.Seq, t.Seq+1, t.Seq+1, t.Seq+1
	mss := int(t.MSS)
	if mss == 0 {
		mss = defaultMSS
	}
	c.mss = uint16(min(max(mss, minMSS), 0xffff))
	c.clear(fSACK)
	if t.SACKPermitted {
		c.set(fSACK)
	}
	c.shift, c.rshift = 0, 0
	if t.WScale >= 0 { // in both SYNs, or in none (RFC 7323 2.2)
		c.shift, c.rshift = uint8(min(t.WScale, maxShift)), e.shift
	}
	c.allow = min(startWindow, uint32(0xffff)<<c.rshift)
	c.wnd = uint32(t.Window) // never scaled on a SYN
	c.maxWnd, c.wl1, c.wl2 = c.wnd, t.Seq, t.Ack
}

// dial begins to connect c to its target. Without a descriptor to be had, a
// connection that is half open for long gives up its own.
func (e *Engine) dial(c *conn, remote netip.AddrPort) {
	o := &e.cfg.Options4
	if !remote.Addr().Unmap().Is4() {
		o = &e.cfg.Options6
	}
	fd, errno := e.host.Dial(hostsock.TCP, remote, o)
	if (errno == syscall.EMFILE || errno == syscall.ENFILE) && e.evictHalfOpen(e.now()) {
		fd, errno = e.host.Dial(hostsock.TCP, remote, o)
	}
	if errno == 0 {
		errno = e.adopt(c, fd)
	}
	if errno != 0 {
		e.connectFailed(c, errno)
	}
}

// adopt makes fd the host socket of c.
func (e *Engine) adopt(c *conn, fd hostsock.FD) syscall.Errno {
	c.fd = fd
	e.flows.At(c.flow).FD = fd
	return e.host.Watch(fd, watched, e, c.slot)
}

// connected looks at the outcome of connect(2): a failure never comes as Out
// alone.
func (e *Engine) connected(c *conn, ev eventloop.Events) {
	if ev&(eventloop.Err|eventloop.HUP) == 0 {
		e.event(c, HostUp)
		return
	}
	if errno := e.host.SocketError(c.fd); errno != 0 {
		e.connectFailed(c, errno)
		return
	}
	e.event(c, HostUp)
}

// connectFailed tells the guest in the way that fits the error best (T28).
func (e *Engine) connectFailed(c *conn, errno syscall.Errno) {
	e.stats.ConnectErrors++
	switch errno {
	case syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.EINVAL:
		c.why = HostUnreach
	case syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EAFNOSUPPORT:
		c.why = NetUnreach
	case syscall.EACCES, syscall.EPERM:
		c.why = AdminProhibited
	case syscall.ETIMEDOUT, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAGAIN,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		// A repeated SYN is another try; in the end the guest's own timer decides.
		e.event(c, HostSilent)
		return
	default: // ECONNREFUSED, ECONNRESET, ...
		e.event(c, HostRefused)
		return
	}
	if e.deps.Unreachable == nil {
		e.event(c, HostRefused)
		return
	}
	e.event(c, HostUnreachable)
}

// report sends the ICMP error about the guest's SYN, which is put together anew
// from what is known of it.
func (e *Engine) report(c *conn) {
	k := e.key(c)
	p := &e.quote
	*p = wire.Packet{
		EthSrc: e.port.MAC, EthDst: e.port.OurMAC, EtherType: wire.EtherIPv4,
		Src: k.Guest, Dst: k.Remote, Proto: wire.ProtoTCP, TTL: 64,
		SrcPort: k.GuestPort, DstPort: k.RemotePort,
	}
	p.TCP.Seq, p.TCP.Flags = c.irs, wire.SYN
	h := p.Head[:]
	n := wire.PutEthernet(h, p.EthDst, p.EthSrc, wire.EtherIPv4)
	if c.has(fV6) {
		p.EtherType, p.V6, p.L3Len = wire.EtherIPv6, true, wire.IPv6Len
		wire.PutEthernet(h, p.EthDst, p.EthSrc, wire.EtherIPv6)
		n += wire.PutIPv6(h[n:], &wire.IPv6Fields{
			Src: k.Guest, Dst: k.Remote, NextHeader: wire.ProtoTCP, HopLimit: 64, PayloadLen: wire.TCPLen,
		})
	} else {
		p.L3Len = wire.IPv4Len
		n += wire.PutIPv4(h[n:], &wire.IPv4Fields{
			Src: k.Guest, Dst: k.Remote, Proto: wire.ProtoTCP, TTL: 64, DontFrag: true, PayloadLen: wire.TCPLen,
		})
	}
	p.L4Off = n
	n += wire.PutTCP(h[n:], &wire.TCPFields{SrcPort: k.GuestPort, DstPort: k.RemotePort, Seq: c.irs, Flags: wire.SYN})
	p.PayloadOff, p.HeadLen = n, n
	e.deps.Unreachable(p, c.why)
}

// inbound begins the connection of an accepted socket with a SYN to the guest.
// Data of the peer waits in the kernel.
func (e *Engine) inbound(fd hostsock.FD, peer, local netip.AddrPort, k flow.Key) {
	if badAddr(k.Guest) || badAddr(k.Remote) || k.GuestPort == 0 || k.Guest.Is4() != k.Remote.Is4() || !e.port.Up {
		e.refuseInbound(fd)
		return
	}
	if k.RemotePort == 0 {
		k.RemotePort = 1024
	}
	if !e.roomForHalfOpen(e.now()) {
		e.refuseInbound(fd)
		return
	}
	c := e.newConn(&k, SynSent)
	for range portProbes { // another listener may have the same peer port
		if c != nil {
			break
		}
		if _, taken := e.flows.Lookup(&k); !taken {
			break // full, not taken
		}
		k.RemotePort = max(k.RemotePort+1, 1024)
		c = e.newConn(&k, SynSent)
	}
	if c == nil {
		e.refuseInbound(fd)
		return
	}
	e.stats.Inbound++
	fl := e.flows.At(c.flow)
	fl.Host, fl.HostLocal, fl.Initiator = peer, local, flow.Host
	c.set(fInbound | fSACK)
	c.rshift = e.shift
	c.allow = min(startWindow, uint32(0xffff)<<c.rshift)
	c.iss = e.isn(&k)
	e.startSend(c)
	if errno := e.adopt(c, fd); errno != 0 {
		e.event(c, HostError)
		return
	}
	e.handshakeSegment(c)
	e.startRetransmit(c)
	e.arm(c)
}

func (e *Engine) refuseInbound(fd hostsock.FD) {
	e.stats.InboundRefused++
	e.host.Close(fd, true)
}

// startSend sets our send sequence variables behind the SYN that is to be sent.
func (e *Engine) startSend(c *conn) {
	c.una, c.nxt, c.max = c.iss, c.iss+1, c.iss+1
	c.base, c.known = c.iss+1, c.iss+1
	c.hint = minRead
}

// synAck answers the guest's SYN: the target is there.
func (e *Engine) synAck(c *conn) {
	c.iss = e.isn(e.key(c))
	e.startSend(c)
	e.handshakeSegment(c)
	e.startRetransmit(c)
}

// open begins to move data: both sides have agreed.
func (e *Engine) open(c *conn) {
	e.stats.Established++
	e.unlink(halfOpen, c)
	e.flows.Advance(c.flow, flow.Active)
	c.rtxAt, c.retries = 0, 0
	c.heard, c.moved = e.now(), e.now()
	e.startIdle(c)
}

// newConn makes a connection with key k, nil when there is no room for one. A
// full table gives up what lingers, then what is half open for long.
func (e *Engine) newConn(k *flow.Key, s State) *conn {
	now := e.now()
	i, ok := e.flows.Insert(k, now)
	if !ok {
		if _, taken := e.flows.Lookup(k); taken || !e.evict(now) {
			return nil
		}
		if i, ok = e.flows.Insert(k, now); !ok {
			return nil
		}
	}
	slot, c := e.conns.Get()
	*c = conn{
		state: s, slot: slot, flow: i, fd: hostsock.None, mss: defaultMSS,
		heard: now, moved: now, timer: e.timers.New(e, slot), answers: e.answers,
	}
	if !k.Guest.Is4() {
		c.set(fV6)
	}
	e.flows.At(i).Slot = slot
	e.push(halfOpen, c)
	return c
}

// evict gives up one connection that is worth least, and says whether it did.
func (e *Engine) evict(now eventloop.Time) bool {
	c := e.first(lingering)
	if c == nil || c.state == TimeWait && !c.has(fFlushed) {
		return e.evictHalfOpen(now)
	}
	e.stats.Evicted++
	e.end(c)
	return true
}

// evictHalfOpen gives up the connection that has been half open for longest,
// once it has had its chance (T1).
func (e *Engine) evictHalfOpen(now eventloop.Time) bool {
	c := e.first(halfOpen)
	if c == nil || now-c.heard < eventloop.Time(halfOpenGrace) {
		return false
	}
	e.stats.Evicted++
	e.end(c)
	return true
}

// roomForHalfOpen keeps the number of half-open connections within its limit.
func (e *Engine) roomForHalfOpen(now eventloop.Time) bool {
	return e.lists[halfOpen].n < e.cfg.MaxHalfOpen || e.evictHalfOpen(now)
}

// end gives a connection up for good, even if the guest has no room for a RST.
func (e *Engine) end(c *conn) {
	e.event(c, GiveUp)
	if c.state == Aborted {
		e.event(c, GiveUp)
	}
}
