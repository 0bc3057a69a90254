package hostile

import (
	"net/netip"
	"sync/atomic"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// sick is a host on which a call into the room of sockets fails when a test says
// so: one call by its number, or all of them.
type sick struct {
	hostsock.Host
	calls atomic.Int64  // since the last arm
	at    atomic.Int64  // which fails: 0 none, -1 all
	errno atomic.Uint32 // with what
	site  atomic.Value  // string: which one failed last, "" since arm

	silent map[hostsock.FD]bool // by Rewatch with 0
}

// on puts the sickness on a host.
func (s *sick) on(h hostsock.Host) hostsock.Host {
	s.Host, s.silent = h, map[hostsock.FD]bool{}
	return s
}

// arm has call number at fail with e, and counts from now on.
func (s *sick) arm(at int64, e syscall.Errno) {
	s.at.Store(0)
	s.site.Store("")
	s.errno.Store(uint32(e))
	s.calls.Store(0)
	s.at.Store(at)
}

// failed names the site of the call that failed, "" if none has.
func (s *sick) failed() string {
	site, _ := s.site.Load().(string)
	return site
}

func (s *sick) fails(site string) syscall.Errno {
	n, at := s.calls.Add(1), s.at.Load()
	if at != n && at != -1 {
		return 0
	}
	s.site.Store(site)
	return syscall.Errno(s.errno.Load())
}

// The methods of hostsock.Host that can fail.

func (s *sick) Dial(p hostsock.Proto, to netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if e := s.fails("Dial"); e != 0 {
		return hostsock.None, e
	}
	return s.Host.Dial(p, to, o)
}

func (s *sick) Listen(p hostsock.Proto, local netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if e := s.fails("Listen"); e != 0 {
		return hostsock.None, e
	}
	return s.Host.Listen(p, local, o)
}

func (s *sick) Accept(l hostsock.FD) (hostsock.FD, netip.AddrPort, netip.AddrPort, syscall.Errno) {
	if e := s.fails("Accept"); e != 0 {
		return hostsock.None, netip.AddrPort{}, netip.AddrPort{}, e
	}
	return s.Host.Accept(l)
}

func (s *sick) Refuse(l hostsock.FD) syscall.Errno {
	if e := s.fails("Refuse"); e != 0 {
		return e
	}
	return s.Host.Refuse(l)
}

func (s *sick) Shutdown(fd hostsock.FD) syscall.Errno {
	if e := s.fails("Shutdown"); e != 0 {
		return e
	}
	return s.Host.Shutdown(fd)
}

func (s *sick) Watch(fd hostsock.FD, ev eventloop.Events, src eventloop.Source, cookie uint32) syscall.Errno {
	s.silent[fd] = ev == 0
	if e := s.fails("Watch"); e != 0 {
		return e
	}
	return s.Host.Watch(fd, ev, src, cookie)
}

func (s *sick) Rewatch(fd hostsock.FD, ev eventloop.Events) syscall.Errno {
	// Only what has been silenced is added to the kernel's set anew, which takes
	// memory; to change and to silence does not.
	if s.silent[fd] && ev != 0 {
		if e := s.fails("Rewatch"); e != 0 {
			return e
		}
	}
	s.silent[fd] = ev == 0
	return s.Host.Rewatch(fd, ev)
}

func (s *sick) AgainAt(fd hostsock.FD, at eventloop.Time) bool {
	return s.fails("AgainAt") == 0 && s.Host.AgainAt(fd, at)
}

func (s *sick) Writev(fd hostsock.FD, bufs [][]byte, more bool) (int, syscall.Errno) {
	if e := s.fails("Writev"); e != 0 {
		return 0, e
	}
	return s.Host.Writev(fd, bufs, more)
}

func (s *sick) Readv(fd hostsock.FD, bufs [][]byte) (int, syscall.Errno) {
	if e := s.fails("Readv"); e != 0 {
		return 0, e
	}
	return s.Host.Readv(fd, bufs)
}

func (s *sick) Peekv(fd hostsock.FD, bufs [][]byte) (int, syscall.Errno) {
	if e := s.fails("Peekv"); e != 0 {
		return 0, e
	}
	return s.Host.Peekv(fd, bufs)
}

func (s *sick) SetPeekOffset(fd hostsock.FD, off int) syscall.Errno {
	if e := s.fails("SetPeekOffset"); e != 0 {
		return e
	}
	return s.Host.SetPeekOffset(fd, off)
}

func (s *sick) Discard(fd hostsock.FD, n int) (int, syscall.Errno) {
	if e := s.fails("Discard"); e != 0 {
		return 0, e
	}
	return s.Host.Discard(fd, n)
}

func (s *sick) Send(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	if e := s.fails("Send"); e != 0 {
		return 0, e
	}
	return s.Host.Send(fd, m)
}

func (s *sick) Recv(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	if e := s.fails("Recv"); e != 0 {
		return 0, e
	}
	return s.Host.Recv(fd, m)
}

func (s *sick) Errors(fd hostsock.FD, buf []byte) (hostsock.SockErr, syscall.Errno) {
	if e := s.fails("Errors"); e != 0 {
		return hostsock.SockErr{}, e
	}
	return s.Host.Errors(fd, buf)
}

func (s *sick) SocketError(fd hostsock.FD) syscall.Errno {
	if e := s.fails("SocketError"); e != 0 {
		return e
	}
	return s.Host.SocketError(fd)
}

func (s *sick) Info(fd hostsock.FD) (hostsock.Info, syscall.Errno) {
	if e := s.fails("Info"); e != 0 {
		return hostsock.Info{}, e
	}
	return s.Host.Info(fd)
}

func (s *sick) LocalAddr(fd hostsock.FD) (netip.AddrPort, syscall.Errno) {
	if e := s.fails("LocalAddr"); e != 0 {
		return netip.AddrPort{}, e
	}
	return s.Host.LocalAddr(fd)
}

func (s *sick) SetMSS(fd hostsock.FD, mss int) syscall.Errno {
	if e := s.fails("SetMSS"); e != 0 {
		return e
	}
	return s.Host.SetMSS(fd, mss)
}

func (s *sick) SetTTL(fd hostsock.FD, ttl uint8) syscall.Errno {
	if e := s.fails("SetTTL"); e != 0 {
		return e
	}
	return s.Host.SetTTL(fd, ttl)
}

func (s *sick) SetKeepalive(fd hostsock.FD) syscall.Errno {
	if e := s.fails("SetKeepalive"); e != 0 {
		return e
	}
	return s.Host.SetKeepalive(fd)
}
