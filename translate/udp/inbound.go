package udp

import (
	"net/netip"
	"syscall"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// listener is a served socket. Index 0 of Engine.listeners is none.
type listener struct {
	fd      hostsock.FD
	gen     uint32
	guest   wire.Addr // zero: the guest's own
	port    uint16
	waiting bool
	idle    idle

	// In the batch being gathered: conns, linked by conn.next, and the next
	// listener with some.
	first, final uint32
	next         uint32
}

// served marks the cookie of a listener, which is its index.
const served = 1 << 31

// Serve watches fd, a receiving socket bound to local, and leads its datagrams
// to guestPort of guestAddr, the guest's own address of the peer's family where
// that is zero. Answers leave through fd. fd stays open until Unserve.
func (e *Engine) Serve(fd hostsock.FD, local netip.AddrPort, guestAddr wire.Addr, guestPort uint16) syscall.Errno {
	n := 1
	for n < len(e.listeners) && e.listeners[n].fd != hostsock.None {
		n++
	}
	if n == len(e.listeners) {
		e.listeners = append(e.listeners, listener{fd: hostsock.None})
	}
	l := &e.listeners[n]
	*l = listener{fd: fd, gen: l.gen + 1, guest: guestAddr, port: guestPort}
	if errno := e.d.Host.Watch(fd, eventloop.In|eventloop.Edge, e, served|uint32(n)); errno != 0 {
		l.fd = hostsock.None
		return errno
	}
	return 0
}

// rewatch puts a listener that the loop has taken off its hands back on it.
func (e *Engine) rewatch(n uint32) {
	if int(n) >= len(e.listeners) || e.listeners[n].fd == hostsock.None {
		return
	}
	e.listeners[n].idle = idle{}
	if errno := e.d.Host.Watch(e.listeners[n].fd, eventloop.In|eventloop.Edge, e, served|n); errno != 0 {
		e.stats.hostErrors++
	}
}

// Unserve ends the flows of fd and stops watching it; the caller closes it.
func (e *Engine) Unserve(fd hostsock.FD) {
	for n := 1; n < len(e.listeners); n++ {
		if e.listeners[n].fd != fd {
			continue
		}
		e.EndBatch()
		e.conns.All(func(i uint32, c *conn) bool {
			if c.listener == uint32(n) {
				e.end(i)
			}
			return true
		})
		e.d.Host.Rewatch(fd, 0)
		e.listeners[n].fd = hostsock.None
		e.listeners[n].gen++
	}
}

// aliases is how many remote ports are tried for a peer whose address the guest
// sees as another's that has the same port.
const aliases = 16

func nextPort(p uint16) uint16 {
	if p == 65535 {
		return 1024
	}
	return p + 1
}

// servedKey is the key under which the guest sees peer, while no other peer has
// taken it.
func (e *Engine) servedKey(l *listener, peer netip.AddrPort) (flow.Key, bool) {
	k := flow.Key{Guest: l.guest, GuestPort: l.port, RemotePort: peer.Port(), Proto: wire.ProtoUDP}
	k.Remote = e.d.Policy.InboundSource(peer)
	if k.Guest.IsZero() {
		k.Guest = e.d.Port.Addr6
		if k.Remote.Is4() && !e.d.Port.Addr4.IsZero() || k.Guest.IsZero() {
			k.Guest = e.d.Port.Addr4
		}
	}
	if k.Guest.Is4() != k.Remote.Is4() {
		k.Remote = e.d.Port.OurAddr(k.Guest) // the guest has no address of this family
	}
	ok := !k.Guest.IsUnspecified() && !k.Remote.IsUnspecified() && k.RemotePort != 0
	return k, ok
}

// seek finds the flow of peer on listener n. Without one, i is 0, and k is the
// key that it may have, the zero Key if there is none.
func (e *Engine) seek(n uint32, peer netip.AddrPort) (k flow.Key, i uint32) {
	k, ok := e.servedKey(&e.listeners[n], peer)
	if !ok {
		return flow.Key{}, 0
	}
	for range aliases {
		i, ok := e.d.Flows.Lookup(&k)
		if !ok {
			return k, 0
		}
		if e.d.Flows.At(i).Host == peer {
			return k, i
		}
		k.RemotePort = nextPort(k.RemotePort)
	}
	return flow.Key{}, 0
}

// place finds or begins the flow of a datagram that came in on listener n.
func (e *Engine) place(n uint32, m *hostsock.Message) (uint32, bool) {
	k, i := e.seek(n, m.Addr)
	switch {
	case k == flow.Key{}:
		e.stats.dropPort++
		return 0, false
	case i == 0:
		return e.beginServed(n, &k, m)
	}
	if e.d.Flows.At(i).Initiator == flow.Guest {
		e.d.Flows.Advance(i, flow.Active)
	}
	return e.d.Flows.At(i).Slot, true
}

func (e *Engine) beginServed(n uint32, k *flow.Key, m *hostsock.Message) (uint32, bool) {
	i, ok := e.insert(k)
	if !ok {
		e.stats.dropFlows++
		return 0, false
	}
	slot, c := e.begin(i)
	c.listener = n
	f := e.d.Flows.At(i)
	f.Initiator, f.Host, f.HostLocal = flow.Host, m.Addr, m.Local
	return slot, true
}
