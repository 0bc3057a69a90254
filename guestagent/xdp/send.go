package xdp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// By is how datagrams pass between a process and the card.
type By uint8

const (
	ByZeroCopy By = iota
	ByCopy
	BySyscall // one system call for each, by an ordinary UDP socket
)

var byNames = [...]string{ByZeroCopy: "zero-copy", ByCopy: "copy", BySyscall: "syscall"}

func (b By) String() string { return byNames[b] }

// ParseBy returns the way of a name: zero-copy, copy or syscall.
func ParseBy(name string) (By, bool) {
	for b, n := range byNames {
		if n == name {
			return By(b), true
		}
	}
	return 0, false
}

// Load is what a Sender sends, or how long a Receiver waits for it.
type Load struct {
	By       By
	Index    int // of the card
	Queue    int
	Flow     Flow
	Size     int           // bytes of payload
	Rate     int           // datagrams per second, 0: as fast as can be
	Count    uint64        // datagrams, 0: no limit
	Duration time.Duration // 0: no limit
}

// Count is what a Sender or Receiver has done so far.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"payload_bytes"`
	Bad     uint64 `json:"bad"`            // received: wrong checksum or payload
	Lost    uint64 `json:"lost"`           // received: numbers that have not come
	Last    uint64 `json:"last,omitempty"` // received: highest number
}

// out is one way to send.
type out interface {
	// send sends up to n datagrams, the first with number seq, and returns how
	// many; none while there is no room, for which it has waited a little.
	send(n int, seq uint64) (int, error)
	// finish waits until what was sent has left, at most limit.
	finish(limit time.Duration) error
	close()
}

// Sender sends datagrams of one flow.
type Sender struct {
	load Load
	t    template
	out  out
	ZC   bool // as the kernel says
}

// NewSender opens the card or a socket for a load.
func NewSender(l Load) (*Sender, error) {
	t, err := newTemplate(&l.Flow, l.Size)
	if err != nil {
		return nil, err
	}
	s := &Sender{load: l, t: t}
	if l.By == BySyscall {
		s.out, err = newCalls(&l.Flow, t)
		return s, err
	}
	sock, err := Open(Config{Index: l.Index, Queue: l.Queue, Mode: mode(l.By)})
	if err != nil {
		return nil, err
	}
	for _, at := range sock.free {
		copy(sock.mem[at:], t.frame)
	}
	s.out, s.ZC = &frames{sock, t}, sock.ZeroCopy()
	return s, nil
}

func mode(b By) Mode {
	if b == ByCopy {
		return Copy
	}
	return ZeroCopy
}

// Close ends the sender.
func (s *Sender) Close() { s.out.close() }

// Run sends until the load is done or ctx ends, and calls tell once a second.
func (s *Sender) Run(ctx context.Context, tell func(Count)) (c Count, err error) {
	m := newMeter(ctx, s.load.Duration, tell)
	for (s.load.Count == 0 || c.Packets < s.load.Count) && m.on(c) {
		n := m.due(c.Packets, s.load.Rate)
		if s.load.Count > 0 {
			n = int(min(uint64(n), s.load.Count-c.Packets))
		}
		if n == 0 {
			continue
		}
		k, err := s.out.send(n, c.Packets)
		c.Packets += uint64(k)
		c.Bytes += uint64(k * s.load.Size)
		if err != nil {
			return c, err
		}
	}
	return c, s.out.finish(time.Second)
}

// frames sends by AF_XDP.
type frames struct {
	s *Socket
	t template
}

func (f *frames) send(n int, seq uint64) (k int, err error) {
	for ; k < n; k++ {
		b := f.s.Frame()
		if b == nil || !f.s.Queue(len(f.t.frame)) {
			break
		}
		f.t.number(b, seq+uint64(k))
	}
	if err := f.s.Flush(); err != nil {
		return k, err
	}
	if k == 0 {
		f.s.WaitTX(waitMillis)
	}
	return k, nil
}

func (f *frames) finish(limit time.Duration) error {
	for end := time.Now().Add(limit); f.s.Outstanding() > 0; {
		if time.Now().After(end) {
			return fmt.Errorf("xdp: %d frames were not sent within %v", f.s.Outstanding(), limit)
		}
		if err := f.s.Flush(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // no event tells of the last completions
	}
	return nil
}

func (f *frames) close() { f.s.Close() }

// calls sends by system calls.
type calls struct {
	fd int
	t  template
}

func newCalls(f *Flow, t template) (*calls, error) {
	fd, err := udpSocket(f.Src, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(f.Dst)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("xdp: connect to %v: %w", f.Dst, err)
	}
	return &calls{fd, t}, nil
}

func (c *calls) send(n int, seq uint64) (k int, err error) {
	for ; k < n; k++ {
		c.t.number(c.t.frame, seq+uint64(k))
		switch errno := sendOne(c.fd, c.t.frame[c.t.payload:]); errno {
		case 0:
		case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ECONNREFUSED: // the last tells of an earlier one
			return k, nil
		default:
			return k, fmt.Errorf("xdp: send: %w", errno)
		}
	}
	return k, nil
}

func (c *calls) finish(time.Duration) error { return nil }
func (c *calls) close()                     { unix.Close(c.fd) }

// udpSocket is bound to an address; a read waits for milliseconds, 0: for ever.
func udpSocket(at netip.AddrPort, milliseconds int64) (int, error) {
	family := unix.AF_INET
	if at.Addr().Unmap().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("xdp: socket: %w", err)
	}
	if milliseconds > 0 {
		tv := unix.NsecToTimeval(milliseconds * int64(time.Millisecond))
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(at))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("xdp: bind to %v: %w", at, err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
