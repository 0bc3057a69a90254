package hostsock

import (
	"net/netip"
	"syscall"

	"guestwire/vring/eventloop"
)

// FD is a host socket. The zero-cost handle of this room: plain descriptor
// number, None when there is no socket.
type FD int32

// None is the FD of no socket.
const None FD = -1

// Proto is the kind of a host socket.
type Proto uint8

const (
	TCP Proto = iota
	UDP
	Ping // SOCK_DGRAM, IPPROTO_ICMP or IPPROTO_ICMPV6 by the address family
)

// Options are fixed when a socket is made.
type Options struct {
	Device      string         // SO_BINDTODEVICE, "" for none
	Bind        netip.AddrPort // local address for Dial, invalid for the kernel's choice; port 0 likewise
	BindLoose   bool           // retry without the port when Bind's port is taken (EADDRINUSE, EACCES)
	V6Only      bool
	ReusePort   bool  // SO_REUSEADDR: UDP sockets to different peers may share a local port
	Transparent bool  // IP_FREEBIND: Bind need not be an address of the host
	TTL         uint8 // TTL or hop limit of what is sent, 0 for the host's default
}

// Result of Info: what the kernel knows about a TCP socket (struct tcp_info).
type Info struct {
	SendBuffer int    // SO_SNDBUF as the kernel counts it, bytes
	Unsent     int    // bytes accepted and not yet sent (SIOCOUTQNSD)
	Unacked    int    // bytes accepted and not yet acknowledged by the host's peer (SIOCOUTQ)
	RTTus      uint32 // smoothed round trip to the peer, microseconds
	SndMSS     uint32 // tcpi_snd_mss, bytes
	SndWnd     uint32 // tcpi_snd_wnd: the peer's window, bytes; 0 if the kernel does not say
}

// Message is one datagram (or one GSO/GRO run of equal datagrams).
type Message struct {
	Bufs    [][]byte       // in: where to read to / what to write
	N       int            // out: bytes received or sent
	Addr    netip.AddrPort // peer; in for Send on an unconnected socket (invalid: the connected peer), out for Recv
	Local   netip.AddrPort // Recv of a Listen socket: the address it was sent to and the interface's zone, port 0; Send: source address, where valid
	SegSize int            // >0: a run of datagrams of this size, the last may be shorter
	TTL     uint8          // TTL or hop limit; Send: 0 is the socket's default
	TOS     uint8          // TOS or traffic class; Send: 0 is the socket's default
	Trunc   bool           // out: the datagram was longer than Bufs
}

// SockErr is one entry of a socket's error queue (IP_RECVERR).
type SockErr struct {
	Errno    syscall.Errno
	Type     uint8 // ICMP or ICMPv6 type
	Code     uint8
	V6       bool
	Local    bool           // raised by the local stack (SO_EE_ORIGIN_LOCAL)
	MTU      uint32         // ee_info of "fragmentation needed" / "packet too big"
	Offender netip.Addr     // who sent the ICMP error, may be invalid
	Dest     netip.AddrPort // where the offending datagram went
	N        int            // bytes of the offending payload returned in the buffer
}

// Host makes and drives every socket that is opened on behalf of a guest.
// Every method is non-blocking and is called on the loop. Errors are plain
// errno values, 0 for success; syscall.EAGAIN means "not now".
// hostsocktest.Kernel is the scripted fake.
type Host interface {
	// Dial makes a socket of kind p and starts to connect it to remote. For TCP
	// it returns 0 at once with the connection in flight: completion shows as
	// eventloop.Out, the outcome as SocketError.
	Dial(p Proto, remote netip.AddrPort, o *Options) (FD, syscall.Errno)
	// Listen makes a bound socket: listening for TCP, receiving for UDP (with
	// PKTINFO, TTL and UDP_GRO reported).
	Listen(p Proto, local netip.AddrPort, o *Options) (FD, syscall.Errno)
	// Accept takes one connection from a listening socket. EMFILE and ENFILE
	// leave it waiting, and the listener readable: unwatch, or Refuse it.
	Accept(l FD) (fd FD, peer, local netip.AddrPort, e syscall.Errno)
	// Refuse resets one connection that waits to be accepted, even when there is
	// no descriptor left for it. EAGAIN: none waits.
	Refuse(l FD) syscall.Errno
	// Close unwatches and closes. With abort the peer sees RST (SO_LINGER 0).
	Close(fd FD, abort bool)
	// Shutdown ends our sending half (SHUT_WR).
	Shutdown(fd FD) syscall.Errno

	// Watch puts fd on the loop; Rewatch changes its events. ev may hold
	// eventloop.Edge; Rewatch with 0 silences it entirely, errors too. An fd has
	// at most one watcher.
	Watch(fd FD, ev eventloop.Events, s eventloop.Source, cookie uint32) syscall.Errno
	Rewatch(fd FD, ev eventloop.Events) syscall.Errno
	// Again has the watcher's Ready(cookie, eventloop.Again) called in the next
	// turn, behind others: what a budget cut short goes on there.
	Again(fd FD)
	// AgainAt is Again in the first turn at or after a time of the loop's clock,
	// as precise as the kernel wakes. The last call for an fd counts. It reports
	// false when it cannot be had: too many rest already.
	AgainAt(fd FD, at eventloop.Time) bool

	// Writev sends stream bytes from bufs (guest memory is fine), MSG_NOSIGNAL.
	// more is MSG_MORE.
	Writev(fd FD, bufs [][]byte, more bool) (int, syscall.Errno)
	// Readv reads stream bytes and consumes them. 0, 0 is end of stream.
	Readv(fd FD, bufs [][]byte) (int, syscall.Errno)
	// Peekv reads stream bytes from the peek offset on, consumes nothing, and
	// moves the peek offset on by what it returned (SO_PEEK_OFF). 0, 0 is end of
	// stream at the peek offset.
	Peekv(fd FD, bufs [][]byte) (int, syscall.Errno)
	// SetPeekOffset sets the peek offset, bytes from the start of unconsumed data.
	SetPeekOffset(fd FD, off int) syscall.Errno
	// Discard consumes n bytes of received stream data without copying them
	// (MSG_TRUNC) and lowers the peek offset by as much.
	Discard(fd FD, n int) (int, syscall.Errno)
	// CanPeek says that TCP sockets here have SO_PEEK_OFF (Linux 6.9).
	CanPeek() bool

	// Send sends datagrams on fd, in as few system calls as it can. It returns how
	// many were taken and, if not all, why the next was not. A run (SegSize) that
	// could be sent only in part counts as taken; N says how far it came.
	Send(fd FD, m []Message) (int, syscall.Errno)
	// Recv receives up to len(m) datagrams. Fewer means that no more wait; the
	// errno is 0 unless there were none.
	Recv(fd FD, m []Message) (int, syscall.Errno)
	// Errors reads one entry of the error queue; buf takes the start of the
	// offending payload. EAGAIN: the queue is empty.
	Errors(fd FD, buf []byte) (SockErr, syscall.Errno)

	// SocketError reads and clears SO_ERROR.
	SocketError(fd FD) syscall.Errno
	// Info asks the kernel about a TCP socket.
	Info(fd FD) (Info, syscall.Errno)
	// LocalAddr is getsockname.
	LocalAddr(fd FD) (netip.AddrPort, syscall.Errno)
	// SetMSS clamps what the host sends per segment (TCP_MAXSEG).
	SetMSS(fd FD, mss int) syscall.Errno
	// SetTTL sets the TTL or hop limit of what is sent from now on.
	SetTTL(fd FD, ttl uint8) syscall.Errno
	// SetKeepalive turns SO_KEEPALIVE on.
	SetKeepalive(fd FD) syscall.Errno
}
