package hostsocktest

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// Datagram is one datagram on its way, or one GRO run of them.
type Datagram struct {
	From, To netip.AddrPort
	Data     []byte
	TTL, TOS uint8 // 0: default
	SegSize  int   // Deliver: a run of datagrams of this size; Sent: it was part of such a run
}

type queuedErr struct {
	err   hostsock.SockErr
	quote []byte
}

// maxDatagram is the largest UDP payload: the length field of IPv4 counts the IP
// header too, that of IPv6 does not.
func maxDatagram(to netip.AddrPort) int {
	if to.Addr().Is4() {
		return 65535 - 20 - 8
	}
	return 65535 - 8
}

// Sent takes what has been sent on fd, runs cut into single datagrams.
func (k *Kernel) Sent(fd hostsock.FD) []Datagram {
	s := k.must(fd)
	d := s.sent
	s.sent = nil
	if s.room == 0 {
		s.room = -1
		s.wake(eventloop.Out)
	}
	return d
}

// SetRoom has Send take n more datagrams and then say EAGAIN, until Sent.
func (k *Kernel) SetRoom(fd hostsock.FD, n int) { k.must(fd).room = n }

// Deliver brings a datagram to fd. From is the dialled peer unless given. It
// reports false when the kernel would not have delivered it: fd is closed, or
// connected to somebody else.
func (k *Kernel) Deliver(fd hostsock.FD, d Datagram) bool {
	s := k.must(fd)
	if !d.From.IsValid() {
		d.From = s.remote
	}
	if !d.To.IsValid() {
		d.To = s.local
	}
	if d.TTL == 0 {
		d.TTL = 64
	}
	if s.closed || s.remote.IsValid() && s.remote.Addr() != d.From.Addr() {
		return false
	}
	if s.proto == hostsock.UDP && s.remote.IsValid() && s.remote != d.From {
		return false
	}
	d.Data = append([]byte(nil), d.Data...)
	s.queue = append(s.queue, d)
	s.wake(eventloop.In)
	return true
}

// DeliverError puts an entry into fd's error queue, with the start of the
// datagram it is about. Dest is the dialled peer unless given.
func (k *Kernel) DeliverError(fd hostsock.FD, e hostsock.SockErr, quote []byte) {
	s := k.must(fd)
	if !e.Dest.IsValid() {
		e.Dest = s.remote
	}
	s.errs = append(s.errs, queuedErr{e, append([]byte(nil), quote...)})
	s.err = e.Errno
	s.wake(eventloop.Err)
	s.edge = true
}

// Send implements hostsock.Host.
func (k *Kernel) Send(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	s, e := k.enter("Send", fd)
	if e != 0 {
		return 0, e
	}
	for i := range m {
		if e := s.send(&m[i]); e != 0 {
			return i, e
		}
	}
	return len(m), 0
}

func (s *socket) send(m *hostsock.Message) syscall.Errno {
	data := []byte{}
	for _, b := range m.Bufs {
		data = append(data, b...)
	}
	to := unmap(m.Addr)
	if !to.IsValid() {
		to = s.remote
	}
	switch {
	case s.proto == hostsock.TCP:
		return syscall.EOPNOTSUPP
	case s.err != 0:
		return s.takeErr()
	case !to.IsValid():
		return syscall.EDESTADDRREQ
	case s.room == 0:
		return syscall.EAGAIN
	case m.SegSize == 0 && len(data) > maxDatagram(to):
		return syscall.EMSGSIZE
	}
	m.N = len(data)
	from := s.local
	if a := m.Local.Addr().Unmap(); a.IsValid() && !a.IsUnspecified() {
		from = netip.AddrPortFrom(a, s.local.Port())
	}
	d := Datagram{From: from, To: to, TTL: m.TTL, TOS: m.TOS, SegSize: m.SegSize}
	if d.TTL == 0 {
		d.TTL = s.ttl
	}
	if s.proto == hostsock.Ping {
		s.stampEcho(data)
	}
	for {
		d.Data = data
		if m.SegSize > 0 && len(data) > m.SegSize {
			d.Data = data[:m.SegSize]
		}
		data = data[len(d.Data):]
		s.sent = append(s.sent, d)
		s.k.route(s, d)
		if s.room > 0 {
			s.room--
		}
		if len(data) == 0 {
			return 0
		}
	}
}

// stampEcho does what the kernel does to an echo request: its identifier is the
// socket's port, and (here for IPv4 only) its checksum is right.
func (s *socket) stampEcho(b []byte) {
	if len(b) < 8 {
		return
	}
	binary.BigEndian.PutUint16(b[4:], s.local.Port())
	if s.remote.Addr().Is6() {
		return
	}
	b[2], b[3] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
}

// route delivers d when its receiver is a socket of this same kernel, or brings
// back the error that a Rule asks for.
func (k *Kernel) route(from *socket, d Datagram) {
	if from.proto != hostsock.UDP {
		return
	}
	if k.rules[d.To] == syscall.ECONNREFUSED {
		e := hostsock.SockErr{Errno: syscall.ECONNREFUSED, Type: 3, Code: 3, Offender: d.To.Addr(), Dest: d.To}
		if d.To.Addr().Is6() {
			e.Type, e.Code, e.V6 = 1, 4, true
		}
		k.DeliverError(from.fd, e, d.Data)
		return
	}
	var best *socket
	for _, s := range k.socks {
		if s == nil || s.closed || s.proto != hostsock.UDP || !s.covers(d.To) {
			continue
		}
		if s.remote == d.From {
			best = s // connected to the sender: nobody is closer
			break
		}
		if !s.remote.IsValid() {
			best = s
		}
	}
	if best != nil {
		d.SegSize = 0
		k.Deliver(best.fd, d)
	}
}

// Recv implements hostsock.Host.
func (k *Kernel) Recv(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	s, e := k.enter("Recv", fd)
	if e != 0 {
		return 0, e
	}
	if s.err != 0 && len(m) > 0 {
		return 0, s.takeErr()
	}
	n := 0
	for n < len(m) && len(s.queue) > 0 {
		s.receive(&m[n], s.queue[0])
		s.queue = s.queue[1:]
		n++
	}
	if n == 0 && len(m) > 0 {
		return 0, syscall.EAGAIN
	}
	return n, 0
}

func (s *socket) receive(m *hostsock.Message, d Datagram) {
	m.N = 0
	for _, b := range m.Bufs {
		m.N += copy(b, d.Data[m.N:])
	}
	m.Trunc = m.N < len(d.Data)
	m.Addr, m.TTL, m.TOS, m.SegSize = d.From, d.TTL, d.TOS, d.SegSize
	m.Local = netip.AddrPort{}
	if s.listening {
		m.Local = netip.AddrPortFrom(d.To.Addr(), 0)
	}
}

// Errors implements hostsock.Host.
func (k *Kernel) Errors(fd hostsock.FD, buf []byte) (hostsock.SockErr, syscall.Errno) {
	s, e := k.enter("Errors", fd)
	if e != 0 {
		return hostsock.SockErr{}, e
	}
	if len(s.errs) == 0 {
		return hostsock.SockErr{}, syscall.EAGAIN
	}
	q := s.errs[0]
	s.errs = s.errs[1:]
	// Taking an entry makes the next one the pending error (sock_dequeue_err_skb).
	s.err = 0
	if len(s.errs) > 0 {
		s.err = s.errs[0].err.Errno
	}
	q.err.N = copy(buf, q.quote)
	return q.err, 0
}
