package hostsocktest

import (
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
)

// What the fake host's own addresses are.
var (
	Host4 = netip.MustParseAddr("192.0.2.1")
	Host6 = netip.MustParseAddr("2001:db8::1")
)

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// bind gives s its local address: what was asked for, and for the rest an
// address that suits peer and a free port.
func (k *Kernel) bind(s *socket, want netip.AddrPort, loose bool, peer netip.AddrPort) syscall.Errno {
	addr := want.Addr().Unmap()
	if !s.listening && (!addr.IsValid() || addr.IsUnspecified()) {
		addr = sourceFor(peer.Addr())
	}
	port := want.Port()
	if port != 0 && k.taken(s, addr, port) {
		if !loose {
			return syscall.EADDRINUSE
		}
		port = 0
	}
	for port == 0 || k.taken(s, addr, port) {
		k.port++
		port = max(k.port, 1024)
	}
	s.local = netip.AddrPortFrom(addr, port)
	return 0
}

func sourceFor(peer netip.Addr) netip.Addr {
	switch {
	case peer.IsLoopback() && peer.Is4():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case peer.IsLoopback():
		return netip.IPv6Loopback()
	case peer.Is4():
		return Host4
	}
	return Host6
}

// taken says whether another open socket stands in the way of binding s.
func (k *Kernel) taken(s *socket, addr netip.Addr, port uint16) bool {
	for _, o := range k.socks {
		if o == nil || o.closed || o.proto != s.proto || o.local.Port() != port {
			continue
		}
		if s.proto == hostsock.TCP && (o.state != listening && !o.options.Bind.IsValid()) {
			continue // an accepted or freely dialled connection is told apart by its peer
		}
		same := o.local.Addr() == addr || o.local.Addr().IsUnspecified() || addr.IsUnspecified()
		if same && !(o.options.ReusePort && s.options.ReusePort) {
			return true
		}
	}
	return false
}

// listener finds who listens for TCP connections to a.
func (k *Kernel) listener(a netip.AddrPort) *socket {
	for _, s := range k.socks {
		if s != nil && !s.closed && s.state == listening && s.covers(a) {
			return s
		}
	}
	return nil
}

// covers says whether a is an address that s is bound to. An unspecified IPv6
// address covers IPv4 unless V6Only.
func (s *socket) covers(a netip.AddrPort) bool {
	l := s.local
	if l.Port() != a.Port() {
		return false
	}
	if l.Addr() == a.Addr() {
		return true
	}
	return l.Addr().IsUnspecified() && (l.Addr().Is4() == a.Addr().Is4() || l.Addr().Is6() && !s.options.V6Only)
}
