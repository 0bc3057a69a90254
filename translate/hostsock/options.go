package hostsock

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepare sets what a new socket has before it is bound. Only what the caller
// asked for is an error; the rest is worth having and no more.
func (k *Kernel) prepare(fd FD, p Proto, v6, both bool, o *Options) syscall.Errno {
	if o.Device != "" {
		if e := setString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, o.Device); e != 0 {
			return e
		}
	}
	if o.Transparent {
		if e := setInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1); e != 0 {
			return e
		}
	}
	if o.ReusePort {
		setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if v6 && both {
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	} else if v6 {
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if o.TTL != 0 {
		if e := setTTL(fd, v6, both, o.TTL); e != 0 {
			return e
		}
	}
	switch p {
	case TCP:
		setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		// Out of band, a byte would be missing between peeked ones.
		setInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
		if k.peek {
			setInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)
		}
	case UDP:
		setInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		receiveReports(fd, v6, both)
	case Ping:
		receiveReports(fd, v6, both)
	}
	return 0
}

// receiveReports has ICMP errors queued, and TTL and TOS reported.
func receiveReports(fd FD, v6, both bool) {
	if !v6 || both {
		setInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
		setInt(fd, unix.SOL_IP, unix.IP_RECVTTL, 1)
		setInt(fd, unix.SOL_IP, unix.IP_RECVTOS, 1)
	}
	if v6 {
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
	}
}

// receiveInfo has the local address of each datagram reported. An IPv6 socket
// reports that of IPv4 datagrams by IPV6_PKTINFO too.
func receiveInfo(fd FD, v6 bool) {
	if v6 {
		setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	} else {
		setInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1)
	}
}

func setTTL(fd FD, v6, both bool, ttl uint8) syscall.Errno {
	if !v6 || both {
		if e := setInt(fd, unix.SOL_IP, unix.IP_TTL, int(ttl)); e != 0 || !v6 {
			return e
		}
	}
	return setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, int(ttl))
}

// SetTTL implements Host.
func (k *Kernel) SetTTL(fd FD, ttl uint8) syscall.Errno {
	s := k.sock(fd)
	if s == nil {
		return syscall.EBADF
	}
	return setTTL(fd, s.v6, s.both, ttl)
}

// SetMSS implements Host.
func (k *Kernel) SetMSS(fd FD, mss int) syscall.Errno {
	return setInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, mss)
}

// SetKeepalive implements Host.
func (k *Kernel) SetKeepalive(fd FD) syscall.Errno {
	return setInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// SocketError implements Host.
func (k *Kernel) SocketError(fd FD) syscall.Errno {
	v, e := getInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if e != 0 {
		return e
	}
	return syscall.Errno(v)
}

// LocalAddr implements Host.
func (k *Kernel) LocalAddr(fd FD) (netip.AddrPort, syscall.Errno) {
	k.alen = uint32(len(k.addr))
	if e := sysGetsockname(fd, &k.addr, &k.alen); e != 0 {
		return netip.AddrPort{}, e
	}
	return k.addr.get(k.alen, &k.zones), 0
}

// Info implements Host.
func (k *Kernel) Info(fd FD) (Info, syscall.Errno) {
	n, e := getTCPInfo(fd, &k.info)
	if e != 0 {
		return Info{}, e
	}
	i := Info{RTTus: k.info.Rtt, SndMSS: k.info.Snd_mss, Unsent: int(k.info.Notsent_bytes)}
	if n >= sndWndEnd {
		i.SndWnd = k.info.Snd_wnd
	}
	if i.SendBuffer, e = getInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF); e != 0 {
		return Info{}, e
	}
	// SIOCOUTQ fails on a listening socket only.
	if i.Unacked, e = ioctlInt(fd, unix.SIOCOUTQ); e != 0 {
		return Info{}, e
	}
	return i, 0
}
