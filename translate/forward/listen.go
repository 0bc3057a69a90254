package forward

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Listen opens the sockets of all rules, strict rules first. It fails, and
// leaves nothing open, when a strict rule's port cannot be had, or not one port
// of a weak rule.
func Listen(c ListenConfig, rules []Rule) (*Listeners, error) {
	if c.MaxSockets <= 0 {
		c.MaxSockets = DefaultMaxSockets
	}
	l := &Listeners{c: c, rules: slices.Clone(rules)}
	l.timer = c.Timers.New(l, 0)
	slices.SortStableFunc(l.rules, func(a, b Rule) int { return cmp.Compare(weak(a), weak(b)) })
	for i := range l.rules {
		if err := l.openRule(int32(i)); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

func weak(r Rule) int {
	if r.Weak {
		return 1
	}
	return 0
}

// openRule opens all ports of a rule.
func (l *Listeners) openRule(i int32) error {
	r := &l.rules[i]
	if l.full && r.Weak {
		return nil
	}
	local, v6only, err := l.localOf(r)
	if err != nil {
		return err
	}
	first, taken, last := len(l.socks), 0, syscall.Errno(0)
	for port := int(r.First); port <= int(r.Last); port++ {
		at := netip.AddrPortFrom(local, uint16(port))
		if len(l.socks) >= l.c.MaxSockets {
			if !r.Weak {
				return fmt.Errorf("forward %s: more than %d listening sockets: forward fewer ports", r, l.c.MaxSockets)
			}
			l.full = true
			l.logf("forward %s stops at port %d: %d sockets listen, which is the limit", r, port, l.c.MaxSockets)
			return nil
		}
		e := l.openPort(i, at, v6only)
		switch {
		case e == 0:
		case !r.Weak:
			return fmt.Errorf("forward %s: %s", r, explain(r, at, e))
		case (e == syscall.EMFILE || e == syscall.ENFILE) && len(l.socks) > first:
			l.full = true
			l.giveBack(first)
			l.logf("forward %s stops at port %d: the open-file limit is reached (ulimit -n raises it); %d ports listen",
				r, port, len(l.socks)-first)
			return nil
		default:
			taken, last = taken+1, e
		}
	}
	if len(l.socks) == first {
		return fmt.Errorf("forward %s: not one port of it can be had: %s", r, explain(r, netip.AddrPortFrom(local, r.First), last))
	}
	if taken > 0 {
		l.logf("forward %s: %d ports are not forwarded since they cannot be had (the last: %v)", r, taken, last)
	}
	return nil
}

// giveBack closes a quarter, rounded up, of the sockets from first on: a
// guest with all its ports open and no descriptor left for a connection is of no
// use.
func (l *Listeners) giveBack(first int) {
	keep := first + (len(l.socks)-first)*3/4
	for i := keep; i < len(l.socks); i++ {
		l.closeSocket(&l.socks[i])
	}
	l.socks = l.socks[:keep]
}

// localOf says what to bind for a rule: its address, or every address of the IP
// versions in use, which is one socket for both.
func (l *Listeners) localOf(r *Rule) (a netip.Addr, v6only bool, err error) {
	a = r.local()
	switch {
	case !a.IsValid() && !l.c.IPv6:
		a = netip.IPv4Unspecified()
	case !a.IsValid():
		return netip.IPv6Unspecified(), !l.c.IPv4, nil
	}
	if a.Is4() && !l.c.IPv4 || a.Is6() && !l.c.IPv6 {
		return a, false, fmt.Errorf("forward %s: its IP version is switched off (--ipv4-only, --ipv6-only)", r)
	}
	if a.Is6() && a.IsLinkLocalUnicast() {
		if r.Device == "" {
			return a, false, fmt.Errorf("forward %s: a link-local address needs its interface, as in %s%%eth0/%d", r, a, r.First)
		}
		a = a.WithZone(r.Device)
	}
	return a, true, nil
}

// openPort opens one socket and puts it to work.
func (l *Listeners) openPort(i int32, at netip.AddrPort, v6only bool) syscall.Errno {
	r := &l.rules[i]
	o := hostsock.Options{Device: r.Device, V6Only: v6only, Transparent: l.c.Freebind && !at.Addr().IsUnspecified()}
	fd, e := l.c.Host.Listen(r.Proto, at, &o)
	if !v6only && (e == syscall.EAFNOSUPPORT || e == syscall.EADDRNOTAVAIL) {
		// A host without IPv6 (disable_ipv6, or not built in).
		at = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
		fd, e = l.c.Host.Listen(r.Proto, at, &o)
	}
	if e != 0 {
		return e
	}
	if at.Port() == 0 {
		if at, e = l.c.Host.LocalAddr(fd); e != 0 {
			l.c.Host.Close(fd, false)
			return e
		}
	}
	s, cookie := socket{fd: fd, rule: i, local: at}, uint32(len(l.socks))
	if n := len(l.holes); n > 0 {
		cookie = l.holes[n-1]
	}
	if r.Proto == hostsock.UDP {
		e = l.c.UDP.Serve(fd, at, wire.FromNetip(r.ToAddr), l.target(&s))
	} else {
		e = l.c.Host.Watch(fd, eventloop.In, l, cookie)
	}
	if e != 0 {
		l.c.Host.Close(fd, false)
		return e
	}
	if n := len(l.holes); n > 0 {
		l.holes, l.socks[cookie] = l.holes[:n-1], s
	} else {
		l.socks = append(l.socks, s)
	}
	return 0
}

// Add opens the sockets of one more rule, all of them or none.
func (l *Listeners) Add(r Rule) error {
	local, v6only, err := l.localOf(&r)
	if err != nil {
		return err
	}
	i := int32(len(l.rules))
	if n := len(l.spare); n > 0 {
		i, l.spare = l.spare[n-1], l.spare[:n-1]
		l.rules[i] = r
	} else {
		l.rules = append(l.rules, r)
	}
	for port := int(r.First); port <= int(r.Last); port++ {
		at := netip.AddrPortFrom(local, uint16(port))
		e := syscall.EMFILE
		if len(l.socks)-len(l.holes) < l.c.MaxSockets {
			e = l.openPort(i, at, v6only)
		}
		if e != 0 {
			l.remove(i)
			return fmt.Errorf("forward %s: %s", r, explain(&r, at, e))
		}
	}
	return nil
}

// Remove closes the sockets of a rule that Add or Listen has opened; what they have
// accepted goes on. It reports whether there was such a rule.
func (l *Listeners) Remove(r Rule) bool {
	for i := range l.rules {
		if l.rules[i] == r && !slices.Contains(l.spare, int32(i)) {
			l.remove(int32(i))
			return true
		}
	}
	return false
}

func (l *Listeners) remove(i int32) {
	for k := range l.socks {
		if s := &l.socks[k]; s.rule == i && s.fd != hostsock.None {
			l.closeSocket(s)
			s.paused = false
			l.holes = append(l.holes, uint32(k))
		}
	}
	l.spare = append(l.spare, i)
}

// explain says what a failure to bind means and what would help.
func explain(r *Rule, at netip.AddrPort, e syscall.Errno) string {
	proto, flag := "tcp", "t"
	if r.Proto == hostsock.UDP {
		proto, flag = "udp", "u"
	}
	switch e {
	case syscall.EADDRINUSE:
		return fmt.Sprintf("%s port %d is in use on the host; `ss -ln%sp sport = :%d` names the process, or forward another port (-%s OTHER:%d)",
			proto, at.Port(), flag, at.Port(), flag, targetOf(r, at))
	case syscall.EACCES, syscall.EPERM:
		return fmt.Sprintf("%s port %d is not ours to open; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE, or forward a higher one (-%s %d:%d)",
			proto, at.Port(), flag, 8000+int(at.Port())%1000, targetOf(r, at))
	case syscall.EADDRNOTAVAIL:
		return fmt.Sprintf("%s is no address of this host", at.Addr())
	case syscall.ENODEV:
		return fmt.Sprintf("there is no interface %q", r.Device)
	case syscall.EAFNOSUPPORT:
		return "the host lacks this IP version"
	case syscall.EMFILE, syscall.ENFILE:
		return "the open-file limit is reached (ulimit -n raises it)"
	}
	return fmt.Sprintf("%s port %d on %s: %v", proto, at.Port(), at.Addr(), e)
}

func targetOf(r *Rule, at netip.AddrPort) uint16 {
	if at.Port() == 0 {
		return r.ToFirst
	}
	return r.Target(at.Port())
}

func (l *Listeners) logf(format string, a ...any) {
	if l.c.Log != nil {
		l.c.Log(format, a...)
	}
}
