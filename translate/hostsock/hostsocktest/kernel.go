package hostsocktest

import (
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// Kernel is a Host in memory. Make one with New.
type Kernel struct {
	// NoPeek makes it a kernel without SO_PEEK_OFF for TCP. Set it first.
	NoPeek bool
	// MaxFDs is the budget; Dial, Listen and Accept beyond it return EMFILE.
	MaxFDs int
	// Clock is what AgainAt goes by. Nil: AgainAt reports false.
	Clock eventloop.Clock

	t       testing.TB
	socks   []*socket // by descriptor; numbers are never reused
	servers map[netip.AddrPort]*Server
	rules   map[netip.AddrPort]syscall.Errno
	faults  map[string][]fault
	calls   map[string]int
	agains  []*socket
	port    uint16
	open    int
}

var _ hostsock.Host = (*Kernel)(nil)

// New makes a Kernel without sockets. Descriptors start at 100, so that none is
// mistaken for a real one.
func New(t testing.TB) *Kernel {
	return &Kernel{
		MaxFDs: 1 << 20, t: t, socks: make([]*socket, 100), port: 40000,
		servers: map[netip.AddrPort]*Server{}, rules: map[netip.AddrPort]syscall.Errno{},
		faults: map[string][]fault{}, calls: map[string]int{},
	}
}

// Open returns how many sockets the code under test has open.
func (k *Kernel) Open() int { return k.open }

// FDs returns the open descriptors, oldest first.
func (k *Kernel) FDs() (fds []hostsock.FD) {
	for _, s := range k.socks {
		if s != nil && !s.closed {
			fds = append(fds, s.fd)
		}
	}
	return fds
}

// Rule makes address a answer TCP connects with e (ECONNREFUSED, EHOSTUNREACH,
// ETIMEDOUT ...) and, for ECONNREFUSED, UDP with a port unreachable error.
// 0 takes the rule back.
func (k *Kernel) Rule(a netip.AddrPort, e syscall.Errno) {
	if e == 0 {
		delete(k.rules, a)
		return
	}
	k.rules[a] = e
}

// Options returns what fd was made with.
func (k *Kernel) Options(fd hostsock.FD) hostsock.Options { return k.must(fd).options }

// TTL returns what SetTTL or Options set last, 0 for the default.
func (k *Kernel) TTL(fd hostsock.FD) uint8 { return k.must(fd).ttl }

// MSS returns what SetMSS set last.
func (k *Kernel) MSS(fd hostsock.FD) int { return k.must(fd).mss }

// Keepalive says whether SetKeepalive was called.
func (k *Kernel) Keepalive(fd hostsock.FD) bool { return k.must(fd).keepalive }

// Remote returns where fd was dialled to.
func (k *Kernel) Remote(fd hostsock.FD) netip.AddrPort { return k.must(fd).remote }

// must returns the socket of fd, open or not, for the test's questions.
func (k *Kernel) must(fd hostsock.FD) *socket {
	k.t.Helper()
	if fd < 0 || int(fd) >= len(k.socks) || k.socks[fd] == nil {
		k.t.Fatalf("hostsocktest: %d is no descriptor", fd)
	}
	return k.socks[fd]
}

// enter begins method name on fd: it finds the socket, and returns an errno when
// the call must fail.
func (k *Kernel) enter(name string, fd hostsock.FD) (*socket, syscall.Errno) {
	k.t.Helper()
	if e := k.fault(name); e != 0 {
		return nil, e
	}
	if fd < 0 || int(fd) >= len(k.socks) || k.socks[fd] == nil {
		k.t.Errorf("hostsocktest: %s on %d, which is no descriptor", name, fd)
		return nil, syscall.EBADF
	}
	if k.socks[fd].closed {
		k.t.Errorf("hostsocktest: %s on %d, which has been closed", name, fd)
		return nil, syscall.EBADF
	}
	return k.socks[fd], 0
}

// add gives s a descriptor.
func (k *Kernel) add(s *socket) hostsock.FD {
	s.fd = hostsock.FD(len(k.socks))
	k.socks = append(k.socks, s)
	k.open++
	return s.fd
}

func (k *Kernel) admit() syscall.Errno {
	if k.open >= k.MaxFDs {
		return syscall.EMFILE
	}
	return 0
}

// Dial implements hostsock.Host.
func (k *Kernel) Dial(p hostsock.Proto, remote netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if e := k.fault("Dial"); e != 0 {
		return hostsock.None, e
	}
	remote = unmap(remote)
	if !remote.IsValid() {
		return hostsock.None, syscall.EINVAL
	}
	if e := k.admit(); e != 0 {
		return hostsock.None, e
	}
	s := newSocket(k, p)
	if o != nil {
		s.options, s.ttl = *o, o.TTL
	}
	if e := k.bind(s, s.options.Bind, s.options.BindLoose, remote); e != 0 {
		return hostsock.None, e
	}
	s.remote = remote
	if p == hostsock.TCP {
		k.connect(s)
	}
	return k.add(s), 0
}

// connect decides what becomes of a dialled TCP socket.
func (k *Kernel) connect(s *socket) {
	far := newSocket(k, hostsock.TCP)
	join(s, far)
	far.local, far.remote = s.remote, s.local
	s.state, far.state = connecting, connecting
	if e := k.rules[s.remote]; e != 0 {
		s.decide(e)
		return
	}
	if srv := k.servers[s.remote]; srv != nil {
		s.decide(0)
		srv.backlog = append(srv.backlog, far)
		return
	}
	if l := k.listener(s.remote); l != nil {
		s.decide(0)
		l.backlog = append(l.backlog, far)
		l.wake(eventloop.In)
	}
}

// Listen implements hostsock.Host.
func (k *Kernel) Listen(p hostsock.Proto, local netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if e := k.fault("Listen"); e != 0 {
		return hostsock.None, e
	}
	if !local.IsValid() {
		return hostsock.None, syscall.EINVAL
	}
	if e := k.admit(); e != 0 {
		return hostsock.None, e
	}
	s := newSocket(k, p)
	if o != nil {
		s.options, s.ttl = *o, o.TTL
	}
	s.listening = true
	if e := k.bind(s, unmap(local), false, unmap(local)); e != 0 {
		return hostsock.None, e
	}
	if p == hostsock.TCP {
		s.state = listening
	}
	return k.add(s), 0
}

// Accept implements hostsock.Host.
func (k *Kernel) Accept(l hostsock.FD) (hostsock.FD, netip.AddrPort, netip.AddrPort, syscall.Errno) {
	none := netip.AddrPort{}
	ls, e := k.enter("Accept", l)
	if e == 0 {
		e = k.admit()
	}
	if e != 0 {
		return hostsock.None, none, none, e
	}
	if len(ls.backlog) == 0 {
		return hostsock.None, none, none, syscall.EAGAIN
	}
	s := ls.backlog[0]
	ls.backlog = ls.backlog[1:]
	return k.add(s), s.remote, s.local, 0
}

// Refuse implements hostsock.Host.
func (k *Kernel) Refuse(l hostsock.FD) syscall.Errno {
	ls, e := k.enter("Refuse", l)
	if e != 0 {
		return e
	}
	if len(ls.backlog) == 0 {
		return syscall.EAGAIN
	}
	s := ls.backlog[0]
	ls.backlog = ls.backlog[1:]
	s.end(true)
	return 0
}

// Close implements hostsock.Host.
func (k *Kernel) Close(fd hostsock.FD, abort bool) {
	if fd == hostsock.None {
		return
	}
	k.fault("Close") // counted; close cannot fail
	if fd < 0 || int(fd) >= len(k.socks) || k.socks[fd] == nil || k.socks[fd].closed {
		k.t.Helper()
		k.t.Errorf("hostsocktest: Close of %d, which is not open", fd)
		return
	}
	s := k.socks[fd]
	s.src = nil
	k.open--
	s.end(abort)
}

// LocalAddr implements hostsock.Host.
func (k *Kernel) LocalAddr(fd hostsock.FD) (netip.AddrPort, syscall.Errno) {
	s, e := k.enter("LocalAddr", fd)
	if e != 0 {
		return netip.AddrPort{}, e
	}
	return s.local, 0
}

// SocketError implements hostsock.Host.
func (k *Kernel) SocketError(fd hostsock.FD) syscall.Errno {
	s, e := k.enter("SocketError", fd)
	if e != 0 {
		return e
	}
	return s.takeErr()
}

// SetMSS implements hostsock.Host.
func (k *Kernel) SetMSS(fd hostsock.FD, mss int) syscall.Errno {
	s, e := k.enter("SetMSS", fd)
	if e == 0 {
		s.mss = mss
	}
	return e
}

// SetTTL implements hostsock.Host.
func (k *Kernel) SetTTL(fd hostsock.FD, ttl uint8) syscall.Errno {
	s, e := k.enter("SetTTL", fd)
	if e == 0 {
		s.ttl = ttl
	}
	return e
}

// SetKeepalive implements hostsock.Host.
func (k *Kernel) SetKeepalive(fd hostsock.FD) syscall.Errno {
	s, e := k.enter("SetKeepalive", fd)
	if e == 0 {
		s.keepalive = true
	}
	return e
}
