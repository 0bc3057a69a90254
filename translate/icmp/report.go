package icmp

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
)

// Quote is a packet of the guest that an error is about, when neither its frame
// nor its Packet is at hand: after a connect that failed, or from a socket's
// error queue.
type Quote struct {
	Src, Dst         wire.Addr // as in the packet: the guest, the remote
	Proto            uint8
	SrcPort, DstPort uint16   // TCP and UDP; echo: identifier and sequence number
	Seq              wire.Seq // TCP
	Data             []byte   // payload, as much as is known
	DataLen          int      // its true length, 0: len(Data)
}

// Report sends error e about q. The same limits hold as for Unreachable.
func Report(port *guest.Port, q *Quote, e *Error) bool {
	if !between(q.Src, q.Dst) || !port.AllowError() {
		return false
	}
	var m message
	return m.send(port, q.Src, e, q.put(m.room(!q.Dst.Is4())))
}

// ReportReason sends the error for why about q, from the gateway, or from the
// destination where the destination would be the one to say it.
func ReportReason(port *guest.Port, q *Quote, why Reason) bool {
	e := For(why, q.Dst)
	return Report(port, q, &e)
}

// put writes the packet that q describes into b, as far as it fits, and returns
// its length.
func (q *Quote) put(b []byte) int {
	var l4 [wire.TCPLen]byte
	h := q.putL4(l4[:])
	n := max(q.DataLen, len(q.Data)) + h
	var l3 int
	if q.Dst.Is4() {
		l3 = wire.PutIPv4(b, &wire.IPv4Fields{Src: q.Src, Dst: q.Dst, Proto: q.Proto, TTL: guest.DefaultTTL, PayloadLen: n})
	} else {
		l3 = wire.PutIPv6(b, &wire.IPv6Fields{Src: q.Src, Dst: q.Dst, NextHeader: q.Proto, HopLimit: guest.DefaultTTL, PayloadLen: n})
	}
	l3 += copy(b[l3:], l4[:h])
	return l3 + copy(b[l3:], q.Data)
}

// putL4 writes the L4 header. Its checksum is right when Data is complete, which
// is what a traceroute that marks its probes by checksum needs.
func (q *Quote) putL4(b []byte) int {
	n := max(q.DataLen, len(q.Data))
	switch q.Proto {
	case wire.ProtoTCP:
		return wire.PutTCP(b, &wire.TCPFields{SrcPort: q.SrcPort, DstPort: q.DstPort, Seq: q.Seq, Flags: wire.SYN})
	case wire.ProtoUDP:
		wire.PutUDP(b, q.SrcPort, q.DstPort, n, 0)
		sum := wire.Checksum(wire.PseudoHeader(q.Src, q.Dst, q.Proto, wire.UDPLen+n), b[:wire.UDPLen])
		wire.PutChecksum(b, wire.UDPCsumOff, wire.FinishUDP(wire.Checksum(sum, q.Data)))
		return wire.UDPLen
	case wire.ProtoICMP, wire.ProtoICMPv6:
		typ, sum := uint8(wire.ICMPEchoRequest), uint32(0)
		if q.Proto == wire.ProtoICMPv6 {
			typ = wire.ICMPv6EchoRequest
			sum = wire.PseudoHeader(q.Src, q.Dst, q.Proto, wire.ICMPLen+n)
		}
		wire.PutICMP(b, typ, 0, uint32(q.SrcPort)<<16|uint32(q.DstPort))
		sum = wire.Checksum(sum, b[:wire.ICMPLen])
		binary.BigEndian.PutUint16(b[wire.ICMPCsumOff:], wire.Finish(wire.Checksum(sum, q.Data)))
		return wire.ICMPLen
	}
	return 0
}

// Relay tells the guest what a socket's error queue holds about q, a packet that
// the host socket had sent to host. It reports whether a message was sent.
func Relay(port *guest.Port, q *Quote, s *hostsock.SockErr, host netip.Addr) bool {
	e, ok := translate(q, s, host)
	return ok && Report(port, q, &e)
}

// ReasonOf is what an errno of connect(2) or sendmsg(2) means to the guest.
func ReasonOf(e syscall.Errno) (Reason, bool) {
	switch e {
	case syscall.ECONNREFUSED:
		return PortUnreachable, true
	case syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ETIMEDOUT:
		return HostUnreachable, true
	case syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.ENONET:
		return NetUnreachable, true
	case syscall.EACCES, syscall.EPERM:
		return AdminProhibited, true
	case syscall.ENOPROTOOPT:
		return ProtoUnreachable, true
	case syscall.EMSGSIZE:
		return FragNeeded, true
	}
	return 0, false
}

// translate makes an error for the guest out of s. Types that would change a
// guest's routes, and unknown ones, are not passed on.
func translate(q *Quote, s *hostsock.SockErr, host netip.Addr) (Error, bool) {
	v6 := !q.Dst.Is4()
	if s.Local || s.V6 != v6 {
		// Our own host says so, or the host side speaks the other IP version.
		why, ok := ReasonOf(s.Errno)
		if !ok || why == FragNeeded && s.MTU == 0 {
			return Error{}, false
		}
		e := For(why, q.Dst)
		if why == FragNeeded {
			e.Info = s.MTU
		}
		return e, true
	}
	e := Error{Type: s.Type, Code: s.Code}
	switch {
	case v6 && s.Type == wire.ICMPv6TooBig, !v6 && s.Type == wire.ICMPUnreachable && s.Code == 4:
		e.Info = s.MTU
	case v6 && s.Type >= wire.ICMPv6Unreachable && s.Type <= wire.ICMPv6ParamProblem:
	case !v6 && (s.Type == wire.ICMPUnreachable || s.Type == wire.ICMPTimeExceeded || s.Type == wire.ICMPParamProblem):
	default:
		return Error{}, false
	}
	e.From = offender(q, s.Offender, host, v6)
	return e, true
}

// offender is the sender of a relayed error as the guest should see it; zero
// for the gateway.
func offender(q *Quote, a, host netip.Addr, v6 bool) wire.Addr {
	from := wire.FromNetip(a)
	switch {
	case !a.IsValid() || from.IsUnspecified() || from.IsMulticast() || from.Is4() == v6:
	case a.Unmap() == host.Unmap():
		return q.Dst // the target may have another address on the guest's side
	case !from.IsLoopback() && !from.IsLinkLocal():
		return from
	}
	return wire.Addr{}
}
