package icmp

import (
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

// Unreachable tells the guest that orig, which f carries, cannot be delivered.
// f may be nil when the frame is gone: the quote is then what Head holds. It
// reports whether a message was sent: not about ICMP errors, broadcasts and
// multicasts (RFC 1122 3.2.2, RFC 4443 2.4), not beyond the rate limit, and not
// when the guest has no room.
func Unreachable(port *guest.Port, orig *wire.Packet, f *link.Frame, why Reason) bool {
	return false
}

// TooBig tells the guest that orig was longer than mtu.
func TooBig(port *guest.Port, orig *wire.Packet, f *link.Frame, mtu int) bool { return false }

// Hop takes one hop off orig: it returns the TTL or hop limit to send it on
// with, or tells the guest that time was exceeded, the gateway being the first
// hop of every path, and reports false.
func Hop(port *guest.Port, orig *wire.Packet, f *link.Frame) (ttl uint8, ok bool) {
	return orig.TTL - 1, orig.TTL > 1
}

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
func Report(port *guest.Port, q *Quote, e *Error) bool { return false }

// ReportReason sends the error for why about q, from the gateway, or from the
// destination where the destination would be the one to say it.
func ReportReason(port *guest.Port, q *Quote, why Reason) bool { return false }
