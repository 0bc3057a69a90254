package dhcp

import (
	"encoding/binary"

	"guestwire/translate/wire"
)

// Layout of a message (RFC 2131 2), bytes.
const (
	offSname = 44
	offFile  = 108
	offMagic = 236
	fixed4   = 240 // with magic cookie
	minReply = 300 // what BOOTP clients expect at least (RFC 1542 2.1)
	ethernet = 1   // hardware type
)

var magic = [4]byte{99, 130, 83, 99}

// Message types, option 53. 0 is BOOTP, which has none.
const (
	discover4 = 1
	offer4    = 2
	request4m = 3
	decline4  = 4
	ack4      = 5
	nak4      = 6
	release4  = 7
	inform4   = 8
)

// Options used here (RFC 2132 and later).
const (
	optPad         = 0
	optMask        = 1
	optRouter      = 3
	optDNS         = 6
	optHostname    = 12
	optDomain      = 15
	optMTU         = 26
	optRequested   = 50
	optLease       = 51
	optOverload    = 52
	optKind        = 53
	optServerID    = 54
	optParameters  = 55
	optMaxSize     = 57
	optT1          = 58
	optT2          = 59
	optClientID    = 61
	optRapidCommit = 80 // RFC 4039
	optFQDN        = 81 // RFC 4702
	optSearch      = 119
	optRoutes      = 121
	optEnd         = 255
)

// request4 is what the server needs of a client's message.
type request4 struct {
	kind              uint8
	xid               [4]byte
	flags             [2]byte
	broadcast         bool
	ciaddr            wire.Addr // zero for 0.0.0.0
	chaddr            wire.MAC
	requested, server wire.Addr // zero: no such option
	maxSize           int       // bytes of IP datagram
	rapid             bool
	clientID, fqdn    text
	wantsFQDN         bool
}

// text is an option of variable length, joined from its parts (RFC 3396).
type text struct {
	n   int
	b   [255]byte
	set bool
}

func (t *text) bytes() []byte { return t.b[:t.n] }

func (t *text) add(b []byte) bool {
	if len(b) > len(t.b)-t.n {
		return false
	}
	t.n += copy(t.b[t.n:], b)
	t.set = true
	return true
}

// addr4 reads an address; 0.0.0.0 gives zero, "none".
func addr4(b []byte) wire.Addr {
	a := wire.Addr4([4]byte(b))
	if a.IsUnspecified() {
		return wire.Addr{}
	}
	return a
}

// parse fills r from a message.
func (r *request4) parse(b []byte) (Drop, bool) {
	r.reset()
	switch {
	case len(b) < fixed4:
		return DropShort, false
	case b[0] != 1: // BOOTREQUEST
		return DropFormat, false
	case b[1] != ethernet || b[2] != 6:
		return DropHardware, false
	case [4]byte(b[offMagic:fixed4]) != magic:
		return DropMagic, false
	case addr4(b[24:28]) != wire.Addr{}: // giaddr
		return DropRelay, false
	}
	r.xid, r.flags = [4]byte(b[4:8]), [2]byte(b[10:12])
	r.broadcast = b[10]&0x80 != 0
	r.ciaddr = addr4(b[12:16])
	r.chaddr = wire.MAC(b[28:34])
	if r.chaddr.IsMulticast() || r.chaddr.IsZero() {
		return DropHardware, false
	}
	overload := uint8(0)
	if !r.options(b[fixed4:], &overload) ||
		overload&1 != 0 && !r.options(b[offFile:offMagic], nil) ||
		overload&2 != 0 && !r.options(b[offSname:offFile], nil) {
		return DropOption, false
	}
	return 0, true
}

// reset clears r, but not the text buffers.
func (r *request4) reset() {
	r.kind, r.broadcast, r.rapid, r.wantsFQDN, r.maxSize = 0, false, false, false, 0
	r.requested, r.server = wire.Addr{}, wire.Addr{}
	r.clientID.n, r.clientID.set, r.fqdn.n, r.fqdn.set = 0, false, 0, false
}

// options walks one option area. The end option may be missing. overload is nil
// where option 52 has no meaning.
func (r *request4) options(b []byte, overload *uint8) bool {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		if len(b) < 2 || int(b[1]) > len(b)-2 {
			return false
		}
		code, value := b[0], b[2:2+int(b[1])]
		b = b[2+len(value):]
		if code == optOverload && overload != nil && len(value) == 1 {
			*overload = value[0]
			continue
		}
		if !r.option(code, value) {
			return false
		}
	}
	return true
}

// option notes one option. Of an option that is repeated although it has a fixed
// length, the last counts: it is no text to be joined.
func (r *request4) option(code uint8, v []byte) bool {
	switch code {
	case optKind:
		if len(v) != 1 || v[0] == 0 {
			return false
		}
		r.kind = v[0]
	case optRequested:
		if len(v) != 4 {
			return false
		}
		r.requested = addr4(v)
	case optServerID:
		if len(v) != 4 {
			return false
		}
		r.server = addr4(v)
	case optMaxSize:
		if len(v) != 2 {
			return false
		}
		r.maxSize = int(binary.BigEndian.Uint16(v))
	case optRapidCommit:
		r.rapid = true
	case optClientID:
		return r.clientID.add(v)
	case optFQDN:
		r.wantsFQDN = true
		return r.fqdn.add(v)
	case optParameters:
		for _, code := range v {
			r.wantsFQDN = r.wantsFQDN || code == optFQDN
		}
	}
	return true
}
