package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// host is a host with listening sockets and nothing else; any other call panics.
type host struct {
	hostsock.Host
	next     hostsock.FD
	open     map[hostsock.FD]string // what was asked for
	armed    map[hostsock.FD]eventloop.Events
	cookie   map[hostsock.FD]uint32
	taken    map[uint16]syscall.Errno // ports that cannot be had
	noIPv6   bool
	max      int // sockets
	waiting  map[hostsock.FD][]netip.AddrPort
	accept   []syscall.Errno // what Accept says first
	watchErr syscall.Errno
	aborted  int
	refused  int
	accepts  int
}

func newHost() *host {
	return &host{next: 10, open: map[hostsock.FD]string{}, armed: map[hostsock.FD]eventloop.Events{}, cookie: map[hostsock.FD]uint32{},
		taken: map[uint16]syscall.Errno{}, waiting: map[hostsock.FD][]netip.AddrPort{}, max: 1 << 20}
}

func (h *host) Listen(p hostsock.Proto, at netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	switch {
	case h.taken[at.Port()] != 0:
		return hostsock.None, h.taken[at.Port()]
	case h.noIPv6 && at.Addr().Is6():
		return hostsock.None, syscall.EAFNOSUPPORT
	case len(h.open) >= h.max:
		return hostsock.None, syscall.EMFILE
	}
	s := fmt.Sprintf("%s %s", [...]string{"tcp", "udp"}[p], at)
	if at.Addr().Is6() && at.Addr().IsUnspecified() && !o.V6Only {
		s += " dual"
	}
	if o.Device != "" {
		s += " on " + o.Device
	}
	if o.Transparent {
		s += " free"
	}
	for _, other := range h.open {
		if other == s && at.Port() != 0 {
			return hostsock.None, syscall.EADDRINUSE
		}
	}
	h.next++
	h.open[h.next] = s
	return h.next, 0
}

func (h *host) LocalAddr(fd hostsock.FD) (netip.AddrPort, syscall.Errno) {
	return netip.AddrPortFrom(netip.IPv6Unspecified(), 43210), 0
}

func (h *host) Watch(fd hostsock.FD, ev eventloop.Events, s eventloop.Source, cookie uint32) syscall.Errno {
	h.armed[fd], h.cookie[fd] = ev, cookie
	return h.watchErr
}

func (h *host) Rewatch(fd hostsock.FD, ev eventloop.Events) syscall.Errno {
	if ev != 0 && h.watchErr != 0 {
		return h.watchErr
	}
	h.armed[fd] = ev
	return 0
}

func (h *host) Close(fd hostsock.FD, abort bool) {
	if abort {
		h.aborted++
		return
	}
	if _, ok := h.open[fd]; !ok {
		panic("close of a closed socket")
	}
	delete(h.open, fd)
}

func (h *host) Accept(l hostsock.FD) (hostsock.FD, netip.AddrPort, netip.AddrPort, syscall.Errno) {
	h.accepts++
	if len(h.accept) > 0 {
		e := h.accept[0]
		h.accept = h.accept[1:]
		if e != 0 {
			return hostsock.None, netip.AddrPort{}, netip.AddrPort{}, e
		}
	}
	w := h.waiting[l]
	if len(w) == 0 {
		return hostsock.None, netip.AddrPort{}, netip.AddrPort{}, syscall.EAGAIN
	}
	h.waiting[l] = w[1:]
	return 1000, w[0], netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 8080), 0
}

func (h *host) Refuse(l hostsock.FD) syscall.Errno {
	if len(h.waiting[l]) == 0 {
		return syscall.EAGAIN
	}
	h.waiting[l] = h.waiting[l][1:]
	h.refused++
	return 0
}

type tcpEngine struct{ got []string }

func (e *tcpEngine) Inbound(fd hostsock.FD, peer, local netip.AddrPort, to wire.Addr, port uint16, src wire.Addr) {
	e.got = append(e.got, fmt.Sprintf("%s -> %s:%d", src, to, port))
}

type udpEngine struct {
	served map[hostsock.FD]string
	err    syscall.Errno
}

func (e *udpEngine) Serve(fd hostsock.FD, local netip.AddrPort, to wire.Addr, port uint16) syscall.Errno {
	if e.err != 0 {
		return e.err
	}
	e.served[fd] = fmt.Sprintf("%s -> %s:%d", local, to, port)
	return 0
}

func (e *udpEngine) Unserve(fd hostsock.FD) { delete(e.served, fd) }

type bench struct {
	t   testing.TB
	h   *host
	tcp *tcpEngine
	udp *udpEngine
	c   ListenConfig
	log []string
	w   *eventloop.Wheel
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, h: newHost(), tcp: &tcpEngine{}, udp: &udpEngine{served: map[hostsock.FD]string{}}, w: eventloop.NewWheel(0)}
	b.c = ListenConfig{
		IPv4: true, IPv6: true, Host: b.h, Timers: b.w, Port: &guest.Port{},
		Lease4: addr("10.0.2.15"), Lease6: addr("fd67:7765:7374::15"), Policy: NewPolicy(policyConfig()),
		TCP: b.tcp, UDP: b.udp,
		Log: func(f string, a ...any) { b.log = append(b.log, fmt.Sprintf(f, a...)) },
	}
	return b
}

func (b *bench) listen(specs ...string) (*Listeners, error) {
	b.t.Helper()
	var rules []Rule
	for _, s := range specs {
		proto := hostsock.TCP
		if u, ok := strings.CutPrefix(s, "u:"); ok {
			proto, s = hostsock.UDP, u
		}
		r, err := ParseSpec(proto, s)
		if err != nil {
			b.t.Fatal(err)
		}
		rules = append(rules, r...)
	}
	return Listen(b.c, rules)
}

func (b *bench) opened() (all []string) {
	for _, s := range b.h.open {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func TestListen(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *bench)
		specs  []string
		want   []string
	}{
		{"all addresses", nil, []string{"8080:80"}, []string{"tcp [::]:8080 dual"}},
		{"IPv4 only", func(b *bench) { b.c.IPv6 = false }, []string{"8080:80"}, []string{"tcp 0.0.0.0:8080"}},
		{"IPv6 only", func(b *bench) { b.c.IPv4 = false }, []string{"8080:80"}, []string{"tcp [::]:8080"}},
		{"host without IPv6", func(b *bench) { b.h.noIPv6 = true }, []string{"8080:80"}, []string{"tcp 0.0.0.0:8080"}},
		{"both named", nil, []string{"0.0.0.0/80", "[::]/80"}, []string{"tcp 0.0.0.0:80", "tcp [::]:80"}},
		{"range and exclusion", nil, []string{"127.0.0.1/1-4,~3"}, []string{"tcp 127.0.0.1:1", "tcp 127.0.0.1:2", "tcp 127.0.0.1:4"}},
		{"interface", nil, []string{"%eth0/80", "fe80::1%eth0/81"}, []string{"tcp [::]:80 dual on eth0", "tcp [fe80::1%eth0]:81 on eth0"}},
		{"target of one version", nil, []string{"80:10.0.2.9/80", "81:[fd00::9]/80"}, []string{"tcp 0.0.0.0:80", "tcp [::]:81"}},
		{"freebind", func(b *bench) { b.c.Freebind = true }, []string{"192.0.2.1/80", "81"}, []string{"tcp 192.0.2.1:80 free", "tcp [::]:81 dual"}},
		{"udp", nil, []string{"u:53:5353"}, []string{"udp [::]:53 dual"}},
		{"kernel's choice", nil, []string{"0:80"}, []string{"tcp [::]:0 dual"}},
		{"weak leaves out what is taken", func(b *bench) { b.h.taken[2] = syscall.EADDRINUSE }, []string{"~5-65535"}, []string{"tcp [::]:1 dual", "tcp [::]:3 dual", "tcp [::]:4 dual"}},
		{"nothing", nil, []string{"none"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			if tt.change != nil {
				tt.change(b)
			}
			l, err := b.listen(tt.specs...)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.opened(); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if len(l.Bound()) != len(tt.want) {
				t.Errorf("%v", l.Bound())
			}
			l.Close()
			if len(b.h.open) != 0 || len(b.udp.served) != 0 {
				t.Errorf("%v %v stay open", b.h.open, b.udp.served)
			}
		})
	}
}

func TestBound(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("0:80", "2000-2001:3000-3001", "u:81:10.0.2.9/82")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range l.Bound() {
		got = append(got, fmt.Sprintf("%d %s %s:%d", x.Proto, x.Local, x.To.Addr(), x.To.Port()))
	}
	want := []string{"0 [::]:43210 invalid IP:80", "0 [::]:2000 invalid IP:3000", "0 [::]:2001 invalid IP:3001", "1 0.0.0.0:81 10.0.2.9:82"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(b.udp.served) != 1 {
		t.Fatal("UDP socket is not served")
	}
	for _, s := range b.udp.served {
		if s != "0.0.0.0:81 -> 10.0.2.9:82" {
			t.Error(s)
		}
	}
}

func TestListenFailures(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *bench)
		specs  []string
		want   []string // parts of the message
	}{
		{"in use", func(b *bench) { b.h.taken[82] = syscall.EADDRINUSE }, []string{"80-85:8080-8085"},
			[]string{"80-85:8080-8085", "tcp port 82 is in use", "ss -lntp sport = :82", "-t OTHER:8082"}},
		{"in use, udp", func(b *bench) { b.h.taken[53] = syscall.EADDRINUSE }, []string{"80", "u:53"}, []string{"udp port 53", "ss -lnup", "-u OTHER:53"}},
		{"privileged", func(b *bench) { b.h.taken[80] = syscall.EACCES }, []string{"80"}, []string{"port 80", "ip_unprivileged_port_start", "CAP_NET_BIND_SERVICE", "-t 8080:80"}},
		{"not an address", func(b *bench) { b.h.taken[80] = syscall.EADDRNOTAVAIL }, []string{"192.0.2.1/80"}, []string{"192.0.2.1 is no address of this host"}},
		{"no interface", func(b *bench) { b.h.taken[80] = syscall.ENODEV }, []string{"%eth7/80"}, []string{`no interface "eth7"`}},
		{"descriptors", func(b *bench) { b.h.max = 3 }, []string{"80-90"}, []string{"ulimit -n"}},
		{"too many", func(b *bench) { b.c.MaxSockets = 3 }, []string{"80-90"}, []string{"more than 3"}},
		{"IPv6 off", func(b *bench) { b.c.IPv6 = false }, []string{"[::1]/80"}, []string{"switched off"}},
		{"link-local without interface", nil, []string{"fe80::1/80"}, []string{"fe80::1%eth0/80"}},
		{"weak without one port", func(b *bench) {
			for p := range 65536 {
				b.h.taken[uint16(p)] = syscall.EACCES
			}
		}, []string{"all"}, []string{"not one port"}},
		{"descriptors, weak", func(b *bench) { b.h.max = 0 }, []string{"all"}, []string{"not one port", "ulimit -n"}},
		{"watch", func(b *bench) { b.h.watchErr = syscall.ENOSPC }, []string{"80"}, []string{"no space left"}},
		{"serve", func(b *bench) { b.udp.err = syscall.ENOSPC }, []string{"u:80"}, []string{"no space left"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			if tt.change != nil {
				tt.change(b)
			}
			l, err := b.listen(tt.specs...)
			if err == nil {
				t.Fatalf("listens at %v", l.Bound())
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
			if len(b.h.open) != 0 || len(b.udp.served) != 0 {
				t.Errorf("%v %v stay open", b.h.open, b.udp.served)
			}
		})
	}
}

// Weak rules take what there is, and leave descriptors for connections.
func TestWeak(t *testing.T) {
	b := newBench(t)
	b.h.max = 1001
	l, err := b.listen("9000", "all")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.h.open); n != 1+750 || len(l.Bound()) != n {
		t.Errorf("%d sockets", n)
	}
	if l.Bound()[0].Local.Port() != 9000 || len(b.log) != 1 || !strings.Contains(b.log[0], "ulimit") {
		t.Errorf("%v, log %q", l.Bound()[0], b.log)
	}
	b = newBench(t)
	b.c.MaxSockets = 100
	if l, err = b.listen("all"); err != nil || len(l.Bound()) != 100 || len(b.log) != 1 {
		t.Errorf("%v, log %q", err, b.log)
	}
	b = newBench(t)
	b.h.taken[4], b.h.taken[7] = syscall.EADDRINUSE, syscall.EACCES
	b.h.max = 1000
	if l, err = b.listen("~11-65535"); err != nil || len(l.Bound()) != 8 || len(b.log) != 1 || !strings.Contains(b.log[0], "2 ports") {
		t.Errorf("%v, log %q", err, b.log)
	}
}

// Whatever the order on the command line, a port that was named goes where it was
// named to go, and "all" leaves it alone.
func TestStrictFirst(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("~5-65535", "2:3000")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range l.Bound() {
		got = append(got, fmt.Sprintf("%d>%d", x.Local.Port(), x.To.Port()))
	}
	if want := []string{"2>3000", "1>1", "3>3", "4>4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func peers(n int, addr string) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(5000+i)))
	}
	return all
}

func TestAccept(t *testing.T) {
	tests := []struct {
		name string
		spec string
		port guest.Port
		peer string
		want string // "": reset
	}{
		{"client's address is kept", "8080:80", guest.Port{}, "198.51.100.7", "198.51.100.7 -> 10.0.2.15:80"},
		{"IPv6", "8080:80", guest.Port{}, "2001:db8::7", "2001:db8::7 -> fd67:7765:7374::15:80"},
		{"observed address", "8080:80", guest.Port{Addr4: addr("10.0.2.99")}, "198.51.100.7", "198.51.100.7 -> 10.0.2.99:80"},
		{"observed IPv6 address", "8080:80", guest.Port{Addr6: addr("fd67:7765:7374::beef")}, "2001:db8::7", "2001:db8::7 -> fd67:7765:7374::beef:80"},
		{"loopback is the gateway", "8080:80", guest.Port{}, "127.0.0.1", "10.0.2.2 -> 10.0.2.15:80"},
		{"IPv6 loopback", "8080:80", guest.Port{}, "::1", "fd67:7765:7374::2 -> fd67:7765:7374::15:80"},
		{"target address", "8080:10.0.2.9/80", guest.Port{Addr4: addr("10.0.2.99")}, "198.51.100.7", "198.51.100.7 -> 10.0.2.9:80"},
		{"mapped peer", "8080:80", guest.Port{}, "::ffff:198.51.100.7", "198.51.100.7 -> 10.0.2.15:80"},
		{"version that the target lacks", "8080:10.0.2.9/80", guest.Port{}, "2001:db8::7", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.c.Port = &tt.port
			l, err := b.listen(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			fd := l.socks[0].fd
			b.h.waiting[fd] = peers(1, tt.peer)
			l.Ready(b.h.cookie[fd], eventloop.In)
			if tt.want == "" {
				if b.h.aborted != 1 || len(b.tcp.got) != 0 {
					t.Errorf("%q", b.tcp.got)
				}
				return
			}
			if len(b.tcp.got) != 1 || b.tcp.got[0] != tt.want {
				t.Errorf("%q, want %q", b.tcp.got, tt.want)
			}
		})
	}
}

// T3, S1: no more accepts than the budget in a turn; without room the listener is
// off the loop, comes back every 100 ms, and after a second clients are told.
func TestAcceptBudgets(t *testing.T) {
	b := newBench(t)
	room := 1 << 20
	b.c.Admit = func() bool { return len(b.tcp.got) < room }
	l, err := b.listen("8080:80")
	if err != nil {
		t.Fatal(err)
	}
	fd := l.socks[0].fd
	ready := func() {
		if b.h.armed[fd]&eventloop.In != 0 {
			l.Ready(b.h.cookie[fd], eventloop.In)
		}
	}
	b.h.waiting[fd] = peers(100, "198.51.100.7")
	ready()
	if len(b.tcp.got) != acceptBudget {
		t.Errorf("%d accepted in one turn", len(b.tcp.got))
	}

	room = len(b.tcp.got) + 4
	ready()
	if len(b.tcp.got) != room || b.h.armed[fd] != 0 {
		t.Errorf("%d accepted, armed %v", len(b.tcp.got), b.h.armed[fd])
	}
	l.Ready(b.h.cookie[fd], eventloop.In) // a stale event
	if len(b.tcp.got) != room || len(l.paused) != 1 {
		t.Errorf("a paused listener went on: %d, %v", len(b.tcp.got), l.paused)
	}
	accepts, turns := b.h.accepts, 0
	for range 95 {
		b.w.Advance(b.w.Now() + eventloop.Time(10*time.Millisecond))
		if b.h.armed[fd] != 0 {
			turns++
			ready()
		}
	}
	if turns < 8 || turns > 10 || b.h.accepts != accepts || b.h.refused != 0 {
		t.Errorf("%d turns, %d accepts and %d refusals in 950 ms", turns, b.h.accepts-accepts, b.h.refused)
	}
	for range 30 {
		b.w.Advance(b.w.Now() + eventloop.Time(10*time.Millisecond))
		ready()
	}
	if b.h.refused != acceptBudget {
		t.Errorf("%d told after more than a second", b.h.refused)
	}

	room = 1 << 20 // flows have ended
	for range 20 {
		b.w.Advance(b.w.Now() + eventloop.Time(10*time.Millisecond))
		ready()
	}
	if left := len(b.h.waiting[fd]); left != 0 || len(l.paused) != 0 {
		t.Errorf("%d still wait", left)
	}
	if _, any := b.w.Next(); any {
		t.Error("the timer runs on")
	}
}

// Patience is for one shortage; an earlier one that has passed does not count.
func TestPatienceStartsAnew(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("8080:80")
	if err != nil {
		t.Fatal(err)
	}
	fd := l.socks[0].fd
	shortage := func(n int) {
		for range n {
			b.h.accept = []syscall.Errno{syscall.EMFILE}
			l.Ready(0, eventloop.In)
			b.w.Advance(b.w.Now() + eventloop.Time(110*time.Millisecond))
		}
	}
	shortage(9)
	l.Ready(0, eventloop.In) // nobody waits any more
	b.h.waiting[fd] = peers(1, "198.51.100.7")
	shortage(9)
	if b.h.refused != 0 {
		t.Error("told after less than a second")
	}
	shortage(2)
	if b.h.refused != 1 {
		t.Error("not told after more than a second")
	}
}

// A socket that cannot be watched again for want of memory is tried again later.
func TestPauseOutlastsMemory(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("8080:80")
	if err != nil {
		t.Fatal(err)
	}
	fd := l.socks[0].fd
	b.h.accept = []syscall.Errno{syscall.ENOMEM}
	l.Ready(0, eventloop.In)
	b.h.watchErr = syscall.ENOMEM
	for range 10 {
		b.w.Advance(b.w.Now() + eventloop.Time(200*time.Millisecond))
	}
	if b.h.armed[fd] != 0 || len(l.paused) != 1 {
		t.Errorf("armed for %v, %d paused", b.h.armed[fd], len(l.paused))
	}
	b.h.watchErr = 0
	b.w.Advance(b.w.Now() + eventloop.Time(200*time.Millisecond))
	if b.h.armed[fd] != eventloop.In || len(l.paused) != 0 {
		t.Errorf("afterwards armed for %v, %d paused", b.h.armed[fd], len(l.paused))
	}
}

func TestAcceptErrors(t *testing.T) {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EINVAL} {
		b := newBench(t)
		l, err := b.listen("8080:80")
		if err != nil {
			t.Fatal(err)
		}
		fd := l.socks[0].fd
		b.h.waiting[fd] = peers(40, "198.51.100.7")
		for range 300 { // 3 s without descriptors
			b.h.accept = []syscall.Errno{e}
			if b.h.armed[fd] != 0 {
				l.Ready(0, eventloop.In)
			}
			b.w.Advance(b.w.Now() + eventloop.Time(10*time.Millisecond))
		}
		if len(b.tcp.got) != 0 || b.h.accepts > 31 || b.h.refused != 2*acceptBudget {
			t.Errorf("%v: %d accepted, %d tries, %d refused", e, len(b.tcp.got), b.h.accepts, b.h.refused)
		}
		b.h.accept = nil
		b.w.Advance(b.w.Now() + eventloop.Time(200*time.Millisecond))
		l.Ready(0, eventloop.In)
		if len(b.tcp.got) != 8 {
			t.Errorf("%v: %d accepted afterwards", e, len(b.tcp.got))
		}
	}
	for _, e := range []syscall.Errno{syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN} {
		b := newBench(t)
		l, err := b.listen("8080:80")
		if err != nil {
			t.Fatal(err)
		}
		b.h.waiting[l.socks[0].fd] = peers(1, "198.51.100.7")
		b.h.accept = []syscall.Errno{e}
		l.Ready(0, eventloop.In)
		if len(b.tcp.got) != 1 || b.h.armed[l.socks[0].fd] != eventloop.In {
			t.Errorf("%v ended accepting", e)
		}
		b.h.accept = slices.Repeat([]syscall.Errno{e}, 1000)
		b.h.accepts = 0
		l.Ready(0, eventloop.In)
		if b.h.accepts != acceptBudget {
			t.Errorf("%v: %d tries in a turn", e, b.h.accepts)
		}
	}
	got := map[string]uint64{}
	b := newBench(t)
	l, _ := b.listen("80", "u:80")
	l.Each(func(name string, v uint64) { got[name] = v })
	if got["sockets"] != 2 || len(got) != 8 {
		t.Errorf("%v", got)
	}
	l.Ready(99, eventloop.In)
}
