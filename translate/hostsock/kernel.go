package hostsock

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

const (
	maxIov   = 1024 // UIO_MAXIOV: buffers per system call
	maxBatch = 64   // datagrams per system call
	ctlSpace = 160  // control bytes per datagram: PKTINFO 40, TTL 24, TOS 24, GRO 24, dual-stack TTL and TOS 48
	reserved = 64   // descriptors of RLIMIT_NOFILE that are not for guests
)

// Kernel is the Host that makes real sockets. It belongs to one loop.
type Kernel struct {
	loop    *eventloop.Loop
	socks   []sock // by descriptor number
	open    int
	maxOpen int
	spare   FD // closed for a moment when Refuse needs a descriptor
	peek    bool
	zones   zones
	stats   Stats

	hdr  unix.Msghdr
	iov  [maxIov]unix.Iovec
	mm   [maxBatch]mmsghdr
	name [maxBatch]sockaddr
	ctl  [maxBatch][ctlSpace]byte
	err  [errSpace]byte
	info unix.TCPInfo
	addr sockaddr
	alen uint32
}

// sock is what the Kernel knows about a descriptor of its own.
type sock struct {
	token eventloop.Token
	mine  bool
	proto Proto
	v6    bool // the socket's family
	both  bool // IPv6, serving IPv4 too
	noGSO bool // the way out has no checksum offload
}

// Stats counts what happened to sockets of a guest.
type Stats struct {
	Open      uint64 // sockets there are
	Opened    uint64 // sockets made by Dial, Listen and Accept
	Refused   uint64 // connections turned away by Refuse
	NoBudget  uint64 // Dial, Listen, Accept beyond the budget
	HostLimit uint64 // EMFILE or ENFILE of the host itself
	GSORuns   uint64 // runs sent by UDP_SEGMENT
	GSOSplit  uint64 // runs that had to be sent as single datagrams
}

// NewKernel makes a Kernel whose descriptors go on loop l. Its budget is
// RLIMIT_NOFILE less 64 for everything else that the process holds.
func NewKernel(l *eventloop.Loop) (*Kernel, error) {
	k := &Kernel{loop: l, zones: zones{index: interfaceIndex}}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return nil, fmt.Errorf("hostsock: RLIMIT_NOFILE: %w", err)
	}
	k.maxOpen = max(int(min(lim.Cur, 1<<20))-reserved, 1)
	var e syscall.Errno
	if k.spare, e = sysSpare(); e != 0 {
		return nil, fmt.Errorf("hostsock: spare descriptor: %w", e)
	}
	k.peek = canPeek(unix.AF_INET) && canPeek(unix.AF_INET6)
	return k, nil
}

// SetMaxFDs changes the budget of descriptors. For set-up time.
func (k *Kernel) SetMaxFDs(n int) { k.maxOpen = n }

// WithholdPeek makes CanPeek false, as on kernels before 6.9. For set-up time.
func (k *Kernel) WithholdPeek() { k.peek = false }

// Stats returns the counters.
func (k *Kernel) Stats() Stats {
	k.stats.Open = uint64(k.open)
	return k.stats
}

// Each calls f for every counter.
func (k *Kernel) Each(f func(name string, value uint64)) {
	s := k.Stats()
	f("sockets", s.Open)
	f("opened", s.Opened)
	f("refused", s.Refused)
	f("over_budget", s.NoBudget)
	f("host_limit", s.HostLimit)
	f("gso_runs", s.GSORuns)
	f("gso_split", s.GSOSplit)
}

// CloseAll closes every socket, aborting TCP connections, and the spare.
func (k *Kernel) CloseAll() {
	for fd := range k.socks {
		k.Close(FD(fd), true)
	}
	if k.spare != None {
		sysClose(k.spare)
		k.spare = None
	}
}

// canPeek probes SO_PEEK_OFF, which TCP sockets refused with EOPNOTSUPP before
// Linux 6.9 (IPv4) and 6.11 (IPv6). A host without the family cannot lack it.
func canPeek(family int) bool {
	fd, e := sysSocket(family, unix.SOCK_STREAM, 0)
	if e != 0 {
		return e == syscall.EAFNOSUPPORT
	}
	defer sysClose(fd)
	return setInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0) == 0
}

// CanPeek implements Host.
func (k *Kernel) CanPeek() bool { return k.peek }

// sock returns the state of fd, nil when fd is not one of ours.
func (k *Kernel) sock(fd FD) *sock {
	if fd < 0 || int(fd) >= len(k.socks) || !k.socks[fd].mine {
		return nil
	}
	return &k.socks[fd]
}

// adopt notes a new descriptor.
func (k *Kernel) adopt(fd FD, p Proto, v6, both bool) {
	for int(fd) >= len(k.socks) {
		k.socks = append(k.socks, sock{})
	}
	k.socks[fd] = sock{mine: true, proto: p, v6: v6, both: both}
	k.open++
	k.stats.Opened++
}

// admit says whether one more descriptor is within the budget.
func (k *Kernel) admit() syscall.Errno {
	if k.open >= k.maxOpen {
		k.stats.NoBudget++
		return syscall.EMFILE
	}
	return 0
}

// limit counts a refusal by the host itself.
func (k *Kernel) limit(e syscall.Errno) syscall.Errno {
	if e == syscall.EMFILE || e == syscall.ENFILE {
		k.stats.HostLimit++
	}
	return e
}

// Close implements Host.
func (k *Kernel) Close(fd FD, abort bool) {
	s := k.sock(fd)
	if s == nil {
		return
	}
	k.loop.Remove(s.token)
	if abort && s.proto == TCP {
		setLinger(fd, unix.Linger{Onoff: 1})
	}
	sysClose(fd)
	*s = sock{}
	k.open--
}

// Watch implements Host.
func (k *Kernel) Watch(fd FD, ev eventloop.Events, src eventloop.Source, cookie uint32) syscall.Errno {
	s := k.sock(fd)
	if s == nil {
		return syscall.EBADF
	}
	t, err := k.loop.Add(int(fd), ev, src, cookie)
	if err != nil {
		return errno(err)
	}
	s.token = t
	return 0
}

// Rewatch implements Host.
func (k *Kernel) Rewatch(fd FD, ev eventloop.Events) syscall.Errno {
	s := k.sock(fd)
	if s == nil {
		return syscall.EBADF
	}
	return errno(k.loop.Modify(s.token, ev))
}

// Again implements Host.
func (k *Kernel) Again(fd FD) {
	if s := k.sock(fd); s != nil {
		k.loop.Again(s.token)
	}
}

// AgainAt implements Host.
func (k *Kernel) AgainAt(fd FD, at eventloop.Time) bool {
	s := k.sock(fd)
	return s != nil && k.loop.AgainAt(s.token, at)
}

// errno returns the errno of a loop error; a stale token is ENOENT, as an
// unwatched descriptor is to epoll_ctl.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.ENOENT
}
