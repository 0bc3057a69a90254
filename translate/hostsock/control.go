package hostsock

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// cmsgLen is the length of struct cmsghdr; data behind it is 8-aligned on every
// machine with 64-bit words.
const cmsgLen = unix.SizeofCmsghdr

func cmsgAlign(n int) int { return (n + 7) &^ 7 }

// cmsgs walks received control messages.
type cmsgs struct{ b []byte }

// next says whether there is a message; a length that does not fit ends the walk.
func (c *cmsgs) next() bool {
	if len(c.b) < cmsgLen {
		return false
	}
	n := binary.NativeEndian.Uint64(c.b)
	return n >= cmsgLen && n <= uint64(len(c.b))
}

// head takes the message that next has announced.
func (c *cmsgs) head() (level, typ int, data []byte) {
	n := int(binary.NativeEndian.Uint64(c.b))
	level = int(int32(binary.NativeEndian.Uint32(c.b[8:])))
	typ = int(int32(binary.NativeEndian.Uint32(c.b[12:])))
	data = c.b[cmsgLen:n]
	c.b = c.b[min(cmsgAlign(n), len(c.b)):]
	return level, typ, data
}

// control appends control messages to those of a header.
type control struct {
	h   *unix.Msghdr
	buf *[ctlSpace]byte
}

func (k *Kernel) control(i int) control { return control{&k.mm[i].hdr, &k.ctl[i]} }

// add opens a message with n bytes of data, zeroed.
func (c control) add(level, typ, n int) []byte {
	at := int(c.h.Controllen)
	end := at + cmsgLen + cmsgAlign(n)
	b := c.buf[at:end]
	clear(b)
	binary.NativeEndian.PutUint64(b, uint64(cmsgLen+n))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(typ))
	c.h.Control = &c.buf[0]
	c.h.SetControllen(end)
	return b[cmsgLen:]
}

func (c control) int16(level, typ int, v uint16) {
	binary.NativeEndian.PutUint16(c.add(level, typ, 2), v)
}

func (c control) int32(level, typ int, v int32) {
	binary.NativeEndian.PutUint32(c.add(level, typ, 4), uint32(v))
}

// pktinfo sets the source address. The interface is left to routing, except for
// link-local addresses, which mean nothing without one.
func (c control) pktinfo(v6 bool, src netip.Addr, z *zones) {
	if !v6 {
		b := c.add(unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		ip := src.Unmap().As4()
		copy(b[4:8], ip[:]) // ipi_spec_dst
		return
	}
	b := c.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	ip := src.As16()
	copy(b, ip[:])
	binary.NativeEndian.PutUint32(b[16:], z.id(src))
}
