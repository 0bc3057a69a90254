package hostsocktest

import (
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// state is that of a TCP socket, as far as its user can tell.
type state uint8

const (
	idle state = iota // datagram sockets stay here
	connecting
	connected
	listening
	dead // reset, or the connect failed
)

const (
	sendBuffer    = 256 << 10
	receiveBuffer = 1 << 20
)

// pipe is one direction of a connection: what the writer has sent and the reader
// has not consumed.
type pipe struct {
	data  []byte
	limit int
	fin   bool
}

func (p *pipe) room() int { return max(p.limit-len(p.data), 0) }

// socket is one end of a connection, or a datagram socket. The far ends that a
// test plays are sockets too, without a descriptor.
type socket struct {
	k             *Kernel
	fd            hostsock.FD
	proto         hostsock.Proto
	local, remote netip.AddrPort
	options       hostsock.Options
	ttl           uint8
	mss           int
	keepalive     bool
	listening     bool // made by Listen
	closed        bool
	err           syscall.Errno // SO_ERROR

	// watching
	src    eventloop.Source
	cookie uint32
	want   eventloop.Events
	edge   bool // something has happened since the last call
	again  bool
	later  bool           // AgainAt was asked for
	at     eventloop.Time // when

	// TCP
	state   state
	far     *socket
	in, out *pipe
	rcvShut bool // reset: nothing more comes
	sndShut bool // Shutdown, or reset
	nospace bool // somebody waits for room to write
	peek    int  // SO_PEEK_OFF, -1 off
	backlog []*socket
	info    hostsock.Info
	reset   bool // the far end sent RST

	// datagrams
	queue []Datagram
	errs  []queuedErr
	sent  []Datagram
	room  int // datagrams that Send takes before EAGAIN, -1 for no limit
}

func newSocket(k *Kernel, p hostsock.Proto) *socket {
	s := &socket{k: k, fd: hostsock.None, proto: p, room: -1}
	if k.NoPeek {
		s.peek = -1
	}
	return s
}

// join makes a and b the two ends of one connection.
func join(a, b *socket) {
	a.far, b.far = b, a
	a.out, a.in = &pipe{limit: sendBuffer}, &pipe{limit: receiveBuffer}
	b.out, b.in = a.in, a.out
}

// decide ends a connect in flight, with success (0) or an error.
func (s *socket) decide(e syscall.Errno) {
	if s.state != connecting {
		return
	}
	if e == 0 {
		s.state, s.far.state = connected, connected
		s.wake(0)
		return
	}
	s.far.state = dead
	s.die(e)
}

// die is what an arriving RST or a failed connect does.
func (s *socket) die(e syscall.Errno) {
	s.state, s.err = dead, e
	s.rcvShut, s.sndShut = true, true
	s.wake(0)
}

// receiveReset is an RST from the far end. A socket that has seen the far end's
// FIN gets EPIPE, any other ECONNRESET (tcp_reset in the kernel).
func (s *socket) receiveReset() {
	if s.state == dead || s.closed {
		return
	}
	s.reset = true
	switch {
	case s.state == connecting:
		s.die(syscall.ECONNREFUSED)
	case s.in.fin:
		s.die(syscall.EPIPE)
	default:
		s.die(syscall.ECONNRESET)
	}
}

// end is close(2).
func (s *socket) end(abort bool) {
	s.closed = true
	for _, c := range s.backlog {
		c.end(true)
	}
	s.backlog = nil
	if s.far == nil || s.state == dead {
		return
	}
	// Data that nobody will read makes close an abort (RFC 9293 3.10.4 names it;
	// RFC 2525 2.17 asks for it).
	if abort || len(s.in.data) > 0 {
		s.far.receiveReset()
		return
	}
	if s.state == connected && !s.sndShut {
		s.out.fin = true
		s.far.wake(0)
	}
}

func (s *socket) takeErr() syscall.Errno {
	e := s.err
	s.err = 0
	return e
}

// write is sendmsg on a stream.
func (s *socket) write(bufs [][]byte) (int, syscall.Errno) {
	if s.state == connecting {
		return 0, syscall.EAGAIN
	}
	if s.err != 0 {
		return 0, s.takeErr()
	}
	if s.sndShut || s.state != connected {
		return 0, syscall.EPIPE
	}
	n, all := 0, 0
	for _, b := range bufs {
		all += len(b)
		b = b[:min(len(b), s.out.room())]
		s.out.data = append(s.out.data, b...)
		n += len(b)
	}
	if n < all {
		s.nospace = true
	}
	if n == 0 && all > 0 {
		return 0, syscall.EAGAIN
	}
	switch {
	case s.far.closed: // nobody is there: the answer is RST
		s.out.data = nil
		s.receiveReset()
	case n > 0:
		s.far.wake(eventloop.In)
	}
	return n, 0
}

// read is recvmsg on a stream, with MSG_PEEK or without; discard is MSG_TRUNC:
// so many bytes, to nowhere.
func (s *socket) read(bufs [][]byte, discard int, peek bool) (int, syscall.Errno) {
	if s.in == nil {
		return 0, syscall.ENOTCONN
	}
	off := 0
	if peek && s.peek > 0 {
		off = s.peek
	}
	data := s.in.data[min(off, len(s.in.data)):]
	if len(data) == 0 {
		switch {
		case s.err != 0:
			return 0, s.takeErr()
		case s.in.fin || s.rcvShut:
			return 0, 0
		}
		return 0, syscall.EAGAIN
	}
	n := min(discard, len(data))
	for _, b := range bufs {
		n += copy(b, data[n:])
	}
	switch {
	case !peek:
		s.in.data = s.in.data[n:]
		if s.peek > 0 {
			s.peek = max(s.peek-n, 0)
		}
		s.far.space()
	case s.peek >= 0:
		s.peek += n
	}
	return n, 0
}

// writable is the kernel's idea of enough room to wake a writer: at least half
// of what is queued (sk_stream_is_writeable).
func (s *socket) writable() bool { return s.out.room() >= len(s.out.data)/2 && s.out.room() > 0 }

// space is called when the far end has made room.
func (s *socket) space() {
	if s.nospace && s.writable() {
		s.nospace = false
		s.wake(eventloop.Out)
	}
}

// shutdown is SHUT_WR.
func (s *socket) shutdown() syscall.Errno {
	if s.state != connected {
		return syscall.ENOTCONN
	}
	if !s.sndShut {
		s.sndShut = true
		s.out.fin = true
		s.far.wake(0)
		s.wake(0)
	}
	return 0
}
