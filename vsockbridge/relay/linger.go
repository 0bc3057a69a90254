package relay

import (
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// Bounds of a socket that lingers.
const (
	lingerTime  = eventloop.Time(5 * time.Second)
	lingerBytes = 4 << 20
	lingerMost  = 256 // sockets; others are closed at once
	lingerRead  = 64 << 10
)

// Lingers closes TCP sockets whose peers may still be sending. To close one with
// bytes unread, or before the peer's last have come, is a reset (RFC 1122,
// 4.2.2.13), and a reset takes along what the peer has not yet read of ours. So
// what comes is read and forgotten until the peer ends too: for five seconds and
// 4 MiB at most.
type Lingers struct {
	loop *eventloop.Loop
	open []*lingering
	buf  []byte // never written to: MSG_TRUNC discards
}

// NewLingers makes one that has nothing open.
func NewLingers(loop *eventloop.Loop) *Lingers { return &Lingers{loop: loop} }

// lingering is one socket.
type lingering struct {
	l     *Lingers
	fd    int
	at    int // in l.open
	left  int // bytes it may still send
	token eventloop.Token
	timer eventloop.TimerID
}

// Close ends our direction of fd, which is on no loop any more, and closes it:
// now, or when its peer has ended. Sockets other than TCP are closed at once.
func (l *Lingers) Close(fd int) {
	s := lingering{l: l, fd: fd, left: lingerBytes}
	if !inet(fd) || len(l.open) >= lingerMost || unix.Shutdown(fd, unix.SHUT_WR) != nil || s.drain() {
		unix.Close(fd)
		return
	}
	p := &s
	var err error
	if p.token, err = l.loop.Add(fd, eventloop.In, p, 0); err != nil {
		unix.Close(fd)
		return
	}
	p.timer = l.loop.Timers().New(p, 0)
	l.loop.Timers().Set(p.timer, l.loop.Now()+lingerTime)
	p.at = len(l.open)
	l.open = append(l.open, p)
}

// Open is how many sockets linger.
func (l *Lingers) Open() int { return len(l.open) }

// Stop closes all at once.
func (l *Lingers) Stop() {
	for len(l.open) > 0 {
		l.open[0].close()
	}
}

// drain forgets what has come, and reports whether nothing more is to be waited
// for: the peer has ended, or has sent too much.
func (s *lingering) drain() bool {
	if s.l.buf == nil {
		s.l.buf = make([]byte, lingerRead)
	}
	for range turnRounds {
		n, errno := recv(s.fd, s.l.buf, unix.MSG_TRUNC)
		if errno == unix.EAGAIN {
			return false
		}
		if s.left -= n; errno != 0 || n == 0 || s.left <= 0 {
			return true
		}
	}
	return false // level triggering tells of the rest
}

// Ready implements eventloop.Source.
func (s *lingering) Ready(uint32, eventloop.Events) {
	if s.drain() {
		s.close()
	}
}

// Expired implements eventloop.Expirer.
func (s *lingering) Expired(uint32) { s.close() }

// Break implements eventloop.Breaker.
func (s *lingering) Break(error) { s.close() }

func (s *lingering) close() {
	l := s.l
	last := len(l.open) - 1
	l.open[s.at] = l.open[last]
	l.open[s.at].at = s.at
	l.open[last] = nil
	l.open = l.open[:last]
	l.loop.Timers().Free(s.timer)
	l.loop.Remove(s.token)
	unix.Close(s.fd)
}

// inet says whether fd is a TCP socket.
func inet(fd int) bool {
	p, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && p == unix.IPPROTO_TCP
}
