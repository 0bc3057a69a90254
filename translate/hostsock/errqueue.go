package hostsock

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// errSpace holds the control messages of an error queue entry: the extended
// error with its offender, and TTL, TOS and packet information beside it.
const errSpace = 256

const sizeofExtendedErr = 16 // struct sock_extended_err

// Errors implements Host.
func (k *Kernel) Errors(fd FD, buf []byte) (SockErr, syscall.Errno) {
	k.hdr = unix.Msghdr{Name: &k.addr[0], Namelen: uint32(len(k.addr)), Control: &k.err[0]}
	k.hdr.SetControllen(errSpace)
	if len(buf) > 0 {
		k.iov[0].Base = &buf[0]
		k.iov[0].SetLen(len(buf))
		k.hdr.Iov = &k.iov[0]
		k.hdr.SetIovlen(1)
	}
	n, e := sysRecvmsg(fd, &k.hdr, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	k.iov[0] = unix.Iovec{}
	if e != 0 {
		return SockErr{}, e
	}
	se := SockErr{N: n, Dest: k.addr.get(k.hdr.Namelen, &k.zones)}
	for c := (cmsgs{k.err[:min(k.hdr.Controllen, errSpace)]}); c.next(); {
		level, typ, data := c.head()
		if level == unix.SOL_IP && typ == unix.IP_RECVERR || level == unix.IPPROTO_IPV6 && typ == unix.IPV6_RECVERR {
			se.extended(data, &k.zones)
		}
	}
	return se, 0
}

// extended notes a struct sock_extended_err (ip(7)): ee_errno, ee_origin,
// ee_type, ee_code, ee_pad, ee_info, ee_data, then the offender's address.
func (s *SockErr) extended(b []byte, z *zones) {
	if len(b) < sizeofExtendedErr {
		return
	}
	s.Errno = syscall.Errno(binary.NativeEndian.Uint32(b))
	s.Local = b[4] == unix.SO_EE_ORIGIN_LOCAL
	s.V6 = b[4] == unix.SO_EE_ORIGIN_ICMP6
	s.Type, s.Code = b[5], b[6]
	if s.Errno == syscall.EMSGSIZE {
		s.MTU = binary.NativeEndian.Uint32(b[8:])
	}
	if off := b[sizeofExtendedErr:]; len(off) >= unix.SizeofSockaddrInet4 {
		s.Offender = parseSockaddr(off, z).Addr()
	}
}
