package hostsock

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Send implements Host.
func (k *Kernel) Send(fd FD, m []Message) (int, syscall.Errno) {
	s := k.sock(fd)
	if s == nil {
		return 0, syscall.EBADF
	}
	done := 0
	for done < len(m) {
		n, iov := k.pack(s, m[done:])
		if n == 0 {
			return done, syscall.EMSGSIZE // more than 1024 buffers in one datagram
		}
		e := syscall.EOPNOTSUPP
		sent := 0
		if !(s.noGSO && isRun(&m[done])) {
			sent, e = sysSendmmsg(fd, k.mm[:n], unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
		clear(k.iov[:iov])
		for i := range sent {
			m[done+i].N = int(k.mm[i].n)
			if m[done+i].SegSize > 0 {
				k.stats.GSORuns++
			}
		}
		done += sent
		if e == 0 {
			continue // if some are left, the next call says why
		}
		if !isRun(&m[done]) || !refusesRun(e) {
			return done, e
		}
		if e == syscall.EIO {
			s.noGSO = true // no checksum offload on the way out, and that stays so
		}
		if e = k.sendSingly(fd, s, &m[done]); e != 0 {
			return done, e
		}
		done++
	}
	return done, 0
}

// isRun says whether m needs UDP_SEGMENT.
func isRun(m *Message) bool { return m.SegSize > 0 && size(m.Bufs) > m.SegSize }

// refusesRun says whether e may come from UDP_SEGMENT rather than from the
// datagrams: too many of them or too large for the path (EINVAL, EMSGSIZE), no
// checksum offload (EIO), an old kernel or another kind of socket.
func refusesRun(e syscall.Errno) bool {
	switch e {
	case syscall.EINVAL, syscall.EMSGSIZE, syscall.EIO, syscall.EOPNOTSUPP:
		return true
	}
	return false
}

func size(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

// pack fills the header array from m, as far as headers and vectors go, and
// returns how many messages and vectors it used. A run on a socket that cannot
// send runs ends the batch, unless it comes first.
func (k *Kernel) pack(s *sock, m []Message) (n, iov int) {
	for n < len(m) && n < maxBatch {
		if n > 0 && s.noGSO && isRun(&m[n]) {
			break
		}
		count := used(m[n].Bufs)
		if iov+count > maxIov {
			break
		}
		fill(k.iov[iov:], m[n].Bufs)
		k.header(n, s, &m[n], iov, count)
		if isRun(&m[n]) {
			k.control(n).int16(unix.IPPROTO_UDP, unix.UDP_SEGMENT, uint16(m[n].SegSize))
		}
		iov += count
		n++
	}
	return n, iov
}

// used counts the buffers that need a vector.
func used(bufs [][]byte) (n int) {
	for _, b := range bufs {
		if len(b) != 0 {
			n++
		}
	}
	return n
}

// header fills message header i for sending m, whose vectors are at iov.
func (k *Kernel) header(i int, s *sock, m *Message, iov, count int) {
	k.mm[i] = mmsghdr{}
	h := &k.mm[i].hdr
	if count > 0 {
		h.Iov = &k.iov[iov]
		h.SetIovlen(count)
	}
	if m.Addr.IsValid() {
		h.Name = &k.name[i][0]
		h.Namelen = k.name[i].put(m.Addr, s.v6, &k.zones)
	}
	c := k.control(i)
	v4 := !s.v6 || m.Addr.Addr().Unmap().Is4()
	if src := m.Local.Addr(); src.IsValid() && !src.IsUnspecified() {
		c.pktinfo(s.v6, src, &k.zones)
	}
	if m.TTL != 0 {
		if v4 {
			c.int32(unix.SOL_IP, unix.IP_TTL, int32(m.TTL))
		} else {
			c.int32(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, int32(m.TTL))
		}
	}
	if m.TOS != 0 {
		if v4 {
			c.int32(unix.SOL_IP, unix.IP_TOS, int32(m.TOS))
		} else {
			c.int32(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int32(m.TOS))
		}
	}
}

// sendSingly sends the datagrams of a run one by one, in batches. What has been
// sent cannot be taken back, so an error after the first is the end of the run,
// as loss on the way would be.
func (k *Kernel) sendSingly(fd FD, s *sock, m *Message) syscall.Errno {
	k.stats.GSOSplit++
	cut := cutter{bufs: m.Bufs}
	m.N = 0
	for !cut.empty() {
		n, iov := 0, 0
		for n < maxBatch && !cut.empty() {
			before := cut
			count := cut.next(k.iov[iov:], m.SegSize)
			if count == 0 { // no vectors left: this datagram opens the next batch
				cut = before
				break
			}
			k.header(n, s, m, iov, count)
			iov += count
			n++
		}
		if n == 0 {
			return syscall.EMSGSIZE
		}
		sent, e := sysSendmmsg(fd, k.mm[:n], unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		clear(k.iov[:iov])
		for i := range sent {
			m.N += int(k.mm[i].n)
		}
		switch {
		case e != 0 && m.N == 0:
			return e
		case e != 0 || sent < n:
			return 0
		}
	}
	return 0
}

// cutter takes pieces off a list of buffers without changing it.
type cutter struct {
	bufs [][]byte
	off  int // within bufs[0]
}

// empty steps over what has been taken and says whether nothing is left.
func (c *cutter) empty() bool {
	for len(c.bufs) > 0 && c.off == len(c.bufs[0]) {
		c.bufs, c.off = c.bufs[1:], 0
	}
	return len(c.bufs) == 0
}

// next puts the next n bytes, or what is left, into iov and returns how many
// vectors that took, 0 when iov is too short.
func (c *cutter) next(iov []unix.Iovec, n int) (count int) {
	for n > 0 && !c.empty() {
		if count == len(iov) {
			return 0
		}
		b := c.bufs[0][c.off:]
		b = b[:min(n, len(b))]
		iov[count].Base = &b[0]
		iov[count].SetLen(len(b))
		c.off += len(b)
		n -= len(b)
		count++
	}
	return count
}

// Recv implements Host.
func (k *Kernel) Recv(fd FD, m []Message) (int, syscall.Errno) {
	done := 0
	for done < len(m) {
		n, iov := 0, 0
		for ; n < maxBatch && done+n < len(m); n++ {
			count := used(m[done+n].Bufs)
			if iov+count > maxIov {
				break
			}
			fill(k.iov[iov:], m[done+n].Bufs)
			k.receiver(n, iov, count)
			iov += count
		}
		if n == 0 {
			return done, syscall.EMSGSIZE
		}
		got, e := sysRecvmmsg(fd, k.mm[:n], unix.MSG_DONTWAIT)
		clear(k.iov[:iov])
		for i := range got {
			k.received(i, &m[done+i])
		}
		done += got
		if e != 0 && done == 0 {
			return 0, e
		}
		if e != 0 || got < n {
			break
		}
	}
	return done, 0
}

// receiver prepares message header i for receiving into the vectors at iov.
func (k *Kernel) receiver(i, iov, count int) {
	k.mm[i] = mmsghdr{}
	h := &k.mm[i].hdr
	if count > 0 {
		h.Iov = &k.iov[iov]
		h.SetIovlen(count)
	}
	h.Name, h.Namelen = &k.name[i][0], uint32(len(k.name[i]))
	h.Control = &k.ctl[i][0]
	h.SetControllen(ctlSpace)
}

// received copies what message header i says into m.
func (k *Kernel) received(i int, m *Message) {
	h := &k.mm[i].hdr
	m.N = int(k.mm[i].n)
	m.Addr = k.name[i].get(h.Namelen, &k.zones)
	m.Local, m.SegSize, m.TTL, m.TOS = netip.AddrPort{}, 0, 0, 0
	m.Trunc = h.Flags&unix.MSG_TRUNC != 0
	for c := (cmsgs{k.ctl[i][:min(h.Controllen, ctlSpace)]}); c.next(); {
		level, typ, data := c.head()
		m.control(level, typ, data, &k.zones)
	}
}

// control notes one control message of a received datagram.
func (m *Message) control(level, typ int, data []byte, z *zones) {
	switch {
	case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(data) >= 4:
		m.SegSize = int(binary.NativeEndian.Uint32(data))
	case level == unix.SOL_IP && typ == unix.IP_TTL && len(data) >= 4,
		level == unix.IPPROTO_IPV6 && typ == unix.IPV6_HOPLIMIT && len(data) >= 4:
		m.TTL = uint8(binary.NativeEndian.Uint32(data))
	case level == unix.SOL_IP && typ == unix.IP_TOS && len(data) >= 1:
		m.TOS = data[0]
	case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS && len(data) >= 4:
		m.TOS = uint8(binary.NativeEndian.Uint32(data))
	case level == unix.SOL_IP && typ == unix.IP_PKTINFO && len(data) >= 12:
		// ipi_ifindex, ipi_spec_dst (what to answer from), ipi_addr
		m.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[8:12])), 0)
	case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= 20:
		a := netip.AddrFrom16([16]byte(data[:16])).Unmap()
		if a.IsLinkLocalUnicast() && a.Is6() {
			a = a.WithZone(z.name(binary.NativeEndian.Uint32(data[16:])))
		}
		m.Local = netip.AddrPortFrom(a, 0)
	}
}
