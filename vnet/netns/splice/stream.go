package splice

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// dial is a connection that waits for the other one to be made.
type dial struct {
	s        *Splice
	from, to int
	token    eventloop.Token // of to
}

// Take joins fd, an accepted connection of the host, to a port inside. It owns fd.
func (s *Splice) Take(fd int, to netip.AddrPort) {
	if !s.room() {
		s.stats.Failed++
		reset(fd)
		return
	}
	s.join(fd, false, to)
}

// join connects to the other side and has the relay join the two.
func (s *Splice) join(from int, out bool, to netip.AddrPort) {
	s.stats.Accepted++
	fd, err := s.socket(out, to)
	if err != nil {
		s.c.Log("no socket to reach %s: %v", to, err)
		s.stats.Failed++
		reset(from)
		return
	}
	for _, end := range []int{from, fd} {
		// What passes here has been put together by its sender.
		_ = unix.SetsockoptInt(end, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	d := &dial{s: s, from: from, to: fd}
	switch err := unix.Connect(fd, sockaddr(to)); err {
	case nil:
		s.pair(from, fd)
		return
	case unix.EINPROGRESS:
		if d.token, err = s.loop.Add(fd, eventloop.Out, d, 0); err == nil {
			s.dials[d] = struct{}{}
			return
		}
	}
	s.stats.Failed++
	unix.Close(fd)
	reset(from)
}

// Ready implements eventloop.Source: the connection is made, or cannot be.
func (d *dial) Ready(uint32, eventloop.Events) {
	s := d.s
	errno, err := unix.GetsockoptInt(d.to, unix.SOL_SOCKET, unix.SO_ERROR)
	s.loop.Remove(d.token)
	delete(s.dials, d)
	if err != nil || errno != 0 {
		s.stats.Failed++
		unix.Close(d.to)
		reset(d.from)
		return
	}
	s.pair(d.from, d.to)
}

// end gives a dial up; from stays open.
func (d *dial) end() {
	d.s.loop.Remove(d.token)
	delete(d.s.dials, d)
	unix.Close(d.to)
}

func (s *Splice) pair(a, b int) {
	if _, err := s.relay.Start(relay.Socket(a, relay.Stream), relay.Socket(b, relay.Stream), nil); err != nil {
		s.stats.Failed++
		reset(a)
		reset(b)
	}
}

// socket takes a stream socket of the other side from the pool.
func (s *Splice) socket(out bool, to netip.AddrPort) (int, error) {
	i, j := 0, 0
	if out {
		i = 1
	}
	if !to.Addr().Is4() {
		j = 1
	}
	pool := &s.pools[i][j]
	if len(*pool) == 0 {
		fds, err := s.to(out).Sockets(domainOf(to), unix.SOCK_STREAM, poolSize)
		if err != nil {
			return -1, err
		}
		*pool = fds
	}
	fd := (*pool)[len(*pool)-1]
	*pool = (*pool)[:len(*pool)-1]
	return fd, nil
}

// reset closes a connection so that its peer learns that something went wrong.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}
