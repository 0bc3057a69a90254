package icmp

import (
	"encoding/binary"

	"guestwire/translate/guest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Reason is what an error tells the guest.
type Reason uint8

const (
	NetUnreachable Reason = iota
	HostUnreachable
	PortUnreachable
	ProtoUnreachable
	AdminProhibited
	HopsExceeded // TTL or hop limit ran out
	FragNeeded   // IPv4 "fragmentation needed", IPv6 "packet too big"
	numReasons
)

// Error is one ICMP or ICMPv6 error towards the guest.
type Error struct {
	Type, Code uint8
	Info       uint32    // second word of the header: the MTU of FragNeeded
	From       wire.Addr // sender; zero: the gateway
}

// Types and codes of RFC 792 (with RFC 1812's "administratively prohibited")
// and RFC 4443. IPv6 says an unknown protocol with a pointer to the field.
var (
	errors4 = [numReasons]Error{
		NetUnreachable:   {Type: wire.ICMPUnreachable, Code: 0},
		HostUnreachable:  {Type: wire.ICMPUnreachable, Code: 1},
		ProtoUnreachable: {Type: wire.ICMPUnreachable, Code: 2},
		PortUnreachable:  {Type: wire.ICMPUnreachable, Code: 3},
		FragNeeded:       {Type: wire.ICMPUnreachable, Code: 4},
		AdminProhibited:  {Type: wire.ICMPUnreachable, Code: 13},
		HopsExceeded:     {Type: wire.ICMPTimeExceeded, Code: 0},
	}
	errors6 = [numReasons]Error{
		NetUnreachable:   {Type: wire.ICMPv6Unreachable, Code: 0},
		AdminProhibited:  {Type: wire.ICMPv6Unreachable, Code: 1},
		HostUnreachable:  {Type: wire.ICMPv6Unreachable, Code: 3},
		PortUnreachable:  {Type: wire.ICMPv6Unreachable, Code: 4},
		FragNeeded:       {Type: wire.ICMPv6TooBig, Code: 0},
		HopsExceeded:     {Type: wire.ICMPv6TimeExceeded, Code: 0},
		ProtoUnreachable: {Type: wire.ICMPv6ParamProblem, Code: 1, Info: 6},
	}
)

// For is the error that says why about a packet from src to dst. Port and
// protocol are refused by the destination itself, all else by the gateway.
func For(why Reason, dst wire.Addr) Error {
	e := errors6[why]
	if dst.Is4() {
		e = errors4[why]
	}
	if why == PortUnreachable || why == ProtoUnreachable {
		e.From = dst
	}
	return e
}

// Unreachable tells the guest that orig, which f carries, cannot be delivered.
// f may be nil when the frame is gone: the quote is then what Head holds. It
// reports whether a message was sent: not about ICMP errors, broadcasts and
// multicasts (RFC 1122 3.2.2, RFC 4443 2.4), not beyond the rate limit, and not
// when the guest has no room.
func Unreachable(port *guest.Port, orig *wire.Packet, f *link.Frame, why Reason) bool {
	e := For(why, orig.Dst)
	return about(port, orig, f, &e)
}

// TooBig tells the guest that orig was longer than mtu.
func TooBig(port *guest.Port, orig *wire.Packet, f *link.Frame, mtu int) bool {
	e := For(FragNeeded, orig.Dst)
	e.Info = uint32(mtu)
	return about(port, orig, f, &e)
}

// Hop takes one hop off orig: it returns the TTL or hop limit to send it on
// with, or tells the guest that time was exceeded, the gateway being the first
// hop of every path, and reports false.
func Hop(port *guest.Port, orig *wire.Packet, f *link.Frame) (ttl uint8, ok bool) {
	if orig.TTL > 1 {
		return orig.TTL - 1, true
	}
	Unreachable(port, orig, f, HopsExceeded)
	return 0, false
}

// about sends e with orig quoted.
func about(port *guest.Port, orig *wire.Packet, f *link.Frame, e *Error) bool {
	if !answerable(orig) || !port.AllowError() {
		return false
	}
	var m message
	q := m.room(!orig.Dst.Is4())
	end := orig.End()
	n := copy(q, orig.Head[wire.EthLen:min(orig.HeadLen, end)])
	if f != nil && n < len(q) && wire.EthLen+n < end {
		n += wire.Copy(q[n:min(len(q), end-wire.EthLen)], f, wire.EthLen+n)
	}
	return m.send(port, orig.Src, e, n)
}

// answerable says whether an error about p may be sent at all.
func answerable(p *wire.Packet) bool {
	switch {
	case p.EthDst.IsMulticast(), p.Frag && p.FragOff != 0:
		return false
	case !p.Frag && p.Proto == wire.ProtoICMP && !p.V6:
		if p.ICMPType != wire.ICMPEchoRequest {
			return false
		}
	case !p.Frag && p.Proto == wire.ProtoICMPv6 && p.V6:
		if p.ICMPType < 128 {
			return false
		}
	}
	return between(p.Src, p.Dst)
}

// between says whether src and dst are both the address of one station.
func between(src, dst wire.Addr) bool {
	return !src.IsUnspecified() && !src.IsMulticast() && !src.IsBroadcast() && src.Is4() == dst.Is4() &&
		!dst.IsUnspecified() && !dst.IsMulticast() && !dst.IsBroadcast()
}

// Most that an error quotes, so that it stays within 576 bytes (RFC 1812
// 4.3.2.3) and 1280 bytes (RFC 4443 2.4 (c)).
const (
	quote4 = 576 - wire.IPv4Len - wire.ICMPLen
	quote6 = 1280 - wire.IPv6Len - wire.ICMPLen
)

// message is room for one error.
type message [wire.ICMPLen + quote6]byte

// room is where the quote goes.
func (m *message) room(v6 bool) []byte {
	if v6 {
		return m[wire.ICMPLen:]
	}
	return m[wire.ICMPLen : wire.ICMPLen+quote4]
}

// send sends e with the first n bytes of room as its quote to dst.
func (m *message) send(port *guest.Port, dst wire.Addr, e *Error, n int) bool {
	b := m[:wire.ICMPLen+n]
	wire.PutICMP(b, e.Type, e.Code, e.Info)
	from := e.From
	if from.IsZero() {
		from = port.OurAddr(dst)
	}
	proto, sum := uint8(wire.ProtoICMP), uint32(0)
	if !dst.Is4() {
		proto = wire.ProtoICMPv6
		sum = wire.PseudoHeader(from, dst, proto, len(b))
	}
	binary.BigEndian.PutUint16(b[wire.ICMPCsumOff:], wire.Finish(wire.Checksum(sum, b)))
	return port.SendL4(from, dst, proto, guest.DefaultTTL, 0, b)
}
