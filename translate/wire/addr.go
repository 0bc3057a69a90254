package wire

import (
	"encoding/binary"
	"net/netip"
)

// Addr is an IPv6 address, or an IPv4 address in its v4-mapped form
// ::ffff:a.b.c.d. It is comparable, so it can be part of a flow key.
type Addr [16]byte

// Addr4 is the v4-mapped form of four bytes.
func Addr4(b [4]byte) Addr {
	return Addr{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

// set4 is Addr4 in place.
func (a *Addr) set4(b []byte) {
	binary.LittleEndian.PutUint64(a[0:], 0)
	binary.LittleEndian.PutUint64(a[8:], uint64(binary.LittleEndian.Uint32(b))<<32|0xffff<<16)
}

// FromNetip converts; the zone is dropped. An invalid address gives the zero
// Addr, "::".
func FromNetip(a netip.Addr) Addr {
	if !a.IsValid() {
		return Addr{}
	}
	return Addr(a.As16())
}

// ToNetip converts, v4-mapped addresses to plain IPv4.
func (a Addr) ToNetip() netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4(a.As4())
	}
	return netip.AddrFrom16(a)
}

// AddrPort converts to an address and port of net/netip.
func (a Addr) AddrPort(port uint16) netip.AddrPort { return netip.AddrPortFrom(a.ToNetip(), port) }

// Is4 says whether a is v4-mapped.
func (a Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[0:8]) == 0 && binary.BigEndian.Uint32(a[8:12]) == 0xffff
}

// As4 is the IPv4 address in a v4-mapped address.
func (a Addr) As4() [4]byte { return [4]byte(a[12:16]) }

// IsZero says that a was never set ("::", which no packet may carry as a flow's
// address either).
func (a Addr) IsZero() bool { return a == Addr{} }

// IsUnspecified says whether a is 0.0.0.0 or "::".
func (a Addr) IsUnspecified() bool {
	if a.Is4() {
		return a[12]|a[13]|a[14]|a[15] == 0
	}
	return a.IsZero()
}

// IsLoopback says whether a is in 127.0.0.0/8 or "::1".
func (a Addr) IsLoopback() bool {
	if a.Is4() {
		return a[12] == 127
	}
	return a == Addr{15: 1}
}

// IsMulticast says whether a is in 224.0.0.0/4 or ff00::/8.
func (a Addr) IsMulticast() bool {
	if a.Is4() {
		return a[12]&0xf0 == 0xe0
	}
	return a[0] == 0xff
}

// IsBroadcast says whether a is 255.255.255.255.
func (a Addr) IsBroadcast() bool {
	return a.Is4() && binary.BigEndian.Uint32(a[12:]) == 0xffffffff
}

// IsLinkLocal says whether a is unicast in 169.254.0.0/16 or fe80::/10.
func (a Addr) IsLinkLocal() bool {
	if a.Is4() {
		return a[12] == 169 && a[13] == 254
	}
	return a[0] == 0xfe && a[1]&0xc0 == 0x80
}

// String is for logs and tests; it allocates.
func (a Addr) String() string { return a.ToNetip().String() }

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the Ethernet broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IsMulticast says whether m is a group address, broadcast included.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsZero says whether m is 00:00:00:00:00:00.
func (m MAC) IsZero() bool { return m == MAC{} }

// String is for logs and tests; it allocates.
func (m MAC) String() string {
	const hex = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, c := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, hex[c>>4], hex[c&15])
	}
	return string(b)
}
