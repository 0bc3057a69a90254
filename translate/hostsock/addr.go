package hostsock

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// sockaddr holds a struct sockaddr_in or sockaddr_in6.
type sockaddr [unix.SizeofSockaddrInet6]byte

// put fills s with a for a socket of the family that v6 says, and returns its
// length. IPv4 on an IPv6 socket becomes v4-mapped.
func (s *sockaddr) put(a netip.AddrPort, v6 bool, z *zones) uint32 {
	binary.BigEndian.PutUint16(s[2:], a.Port())
	if !v6 {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		ip := a.Addr().Unmap().As4()
		copy(s[4:8], ip[:])
		clear(s[8:16])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	binary.NativeEndian.PutUint32(s[4:], 0) // flow information
	ip := a.Addr().As16()
	copy(s[8:24], ip[:])
	binary.NativeEndian.PutUint32(s[24:], z.id(a.Addr()))
	return unix.SizeofSockaddrInet6
}

// get reads an address that the kernel wrote; n is the length it gave.
func (s *sockaddr) get(n uint32, z *zones) netip.AddrPort {
	if n < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{} // none, as from an unconnected getpeername
	}
	return parseSockaddr(s[:min(int(n), len(s))], z)
}

// parseSockaddr reads a sockaddr of at least 16 bytes.
func parseSockaddr(b []byte, z *zones) netip.AddrPort {
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case unix.AF_INET6:
		if len(b) < unix.SizeofSockaddrInet6 {
			break
		}
		a := netip.AddrFrom16([16]byte(b[8:24])).Unmap()
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 && a.Is6() {
			a = a.WithZone(z.name(scope))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

// zones remembers the names of interface numbers, so that link-local peers cost
// an allocation once per interface. Zones are decimal numbers on the way out; on
// the way in an interface name is understood too.
type zones struct {
	known []zone
	index func(name string) uint32 // looks an interface name up, 0 if there is none
}

type zone struct {
	id   uint32
	name string
}

// maxZones bounds the memory that changing interfaces can take.
const maxZones = 64

func (z *zones) name(id uint32) string {
	for i := range z.known {
		if z.known[i].id == id {
			return z.known[i].name
		}
	}
	n := strconv.FormatUint(uint64(id), 10)
	if len(z.known) < maxZones {
		z.known = append(z.known, zone{id, n})
	}
	return n
}

func (z *zones) id(a netip.Addr) uint32 {
	name := a.Zone()
	if name == "" {
		return 0
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n)
	}
	return z.index(name)
}
