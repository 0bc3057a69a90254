package dhcp

import (
	"encoding/binary"

	"guestwire/translate/wire"
)

// Message types (RFC 8415 7.3).
const (
	solicit6     = 1
	advertise6   = 2
	request6m    = 3
	confirm6     = 4
	renew6       = 5
	rebind6      = 6
	reply6       = 7
	release6     = 8
	decline6     = 9
	information6 = 11
	relayForw6   = 12
	relayRepl6   = 13
)

// Options (RFC 8415 21 and later).
const (
	opt6ClientID    = 1
	opt6ServerID    = 2
	opt6IANA        = 3
	opt6IATA        = 4
	opt6Address     = 5
	opt6ORO         = 6
	opt6Preference  = 7
	opt6Status      = 13
	opt6RapidCommit = 14
	opt6DNS         = 23 // RFC 3646
	opt6Search      = 24
	opt6IAPD        = 25
	opt6FQDN        = 39 // RFC 4704
)

// Bounds on what one message makes us do.
const (
	maxDUID  = 130 // RFC 8415 11.1: 128 bytes behind the type
	maxIAs   = 4
	maxAddrs = 8
)

// assoc is one identity association of the client's message.
type assoc struct {
	option uint16 // opt6IANA, opt6IATA or opt6IAPD
	iaid   [4]byte
	addrs  [maxAddrs]wire.Addr
	n      int
}

// request6 is what the server needs of a client's message. Slices point into the
// private copy of the message.
type request6 struct {
	kind               uint8
	xid                [3]byte
	clientID, serverID []byte // nil: no such option
	assocs             [maxIAs]assoc
	n                  int
	rapid, wantsFQDN   bool
	fqdnFlags          uint8
}

// parse fills r from a message.
func (r *request6) parse(b []byte) (Drop, bool) {
	if len(b) < 4 {
		return DropShort, false
	}
	*r = request6{kind: b[0], xid: [3]byte(b[1:4])}
	if r.kind == relayForw6 || r.kind == relayRepl6 {
		return DropRelay, false
	}
	for b = b[4:]; len(b) > 0; {
		code, value, rest, ok := option6(b)
		if !ok || !r.option(code, value) {
			return DropOption, false
		}
		b = rest
	}
	return 0, true
}

// option6 cuts the first option off b.
func option6(b []byte) (code uint16, value, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > len(b)-4 {
		return 0, nil, nil, false
	}
	return binary.BigEndian.Uint16(b), b[4 : 4+n], b[4+n:], true
}

// option notes one option. Options that may appear once count the first time.
func (r *request6) option(code uint16, v []byte) bool {
	switch code {
	case opt6ClientID, opt6ServerID:
		id := &r.clientID
		if code == opt6ServerID {
			id = &r.serverID
		}
		if *id == nil {
			*id = v
		}
		return len(v) > 2 && len(v) <= maxDUID
	case opt6IANA, opt6IATA, opt6IAPD:
		return r.assoc(code, v)
	case opt6RapidCommit:
		r.rapid = true
	case opt6ORO:
		for ; len(v) >= 2; v = v[2:] {
			r.wantsFQDN = r.wantsFQDN || binary.BigEndian.Uint16(v) == opt6FQDN
		}
	case opt6FQDN:
		if len(v) == 0 {
			return false
		}
		r.wantsFQDN, r.fqdnFlags = true, v[0]
	}
	return true
}

// assoc notes an identity association and the addresses in it; options inside
// those are not looked into, so the depth is two. What goes beyond maxIAs is
// ignored, as is any address beyond maxAddrs.
func (r *request6) assoc(code uint16, v []byte) bool {
	fixed := 12 // IAID, T1, T2
	if code == opt6IATA {
		fixed = 4
	}
	if len(v) < fixed {
		return false
	}
	a := assoc{option: code, iaid: [4]byte(v[:4])}
	for v = v[fixed:]; len(v) > 0; {
		inner, value, rest, ok := option6(v)
		if !ok || inner == opt6Address && len(value) < 24 {
			return false
		}
		if inner == opt6Address && a.n < maxAddrs {
			a.addrs[a.n] = wire.Addr(value[:16])
			a.n++
		}
		v = rest
	}
	if r.n < maxIAs {
		r.assocs[r.n] = a
		r.n++
	}
	return true
}
