package setup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machine is the one that we run on, in the network namespace of the calling
// thread.
type machine struct{ c Config }

// metric6 is better than what router advertisements get (1024, IP6_RT_PRIO_USER),
// so that what was set goes before what was heard. For IPv4 0 is best.
const metric6 = 512

func metric(v4 bool) int {
	if v4 {
		return 0
	}
	return metric6
}

func (m *machine) cards() (list []card, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.EncapType != "ether" {
			continue
		}
		_, err := os.Stat("/sys/class/net/" + a.Name + "/device")
		list = append(list, card{name: a.Name, others: a.AltNames, mac: a.HardwareAddr.String(), real: err == nil})
	}
	return list, nil
}

// read finds everything that a plan may compare.
func (m *machine) read(link string, want, first State) (have State, err error) {
	have = State{{VsockBuffer, ""}: readBuffer(m.c.Dir)}
	if have[Key{Hostname, ""}], err = os.Hostname(); err != nil {
		return nil, err
	}
	if have[Key{DNS, ""}], err = m.readDNS(link); err != nil {
		return nil, err
	}
	l, err := netlink.LinkByName(link)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return have, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", link, err)
	}
	return have, readLink(l, want, first, have)
}

func readLink(l netlink.Link, want, first, have State) error {
	name := l.Attrs().Name
	have[Key{MTU, ""}], have[Key{Link, name}] = strconv.Itoa(l.Attrs().MTU), upDown(l)
	if lo, err := netlink.LinkByName("lo"); err == nil {
		have[Key{Link, "lo"}] = upDown(lo)
	}
	if err := readAddresses(l, have); err != nil {
		return fmt.Errorf("%s: list the addresses: %w", name, err)
	}
	if err := readRoutes(l, have); err != nil {
		return fmt.Errorf("%s: list the routes: %w", name, err)
	}
	if err := readDevice(l.Attrs().Index, want, first, have); err != nil {
		return fmt.Errorf("%s: ethtool: %w", name, err)
	}
	return nil
}

func upDown(l netlink.Link) string {
	if l.Attrs().Flags&net.FlagUp != 0 {
		return "up"
	}
	return "down"
}

func readAddresses(l netlink.Link, have State) error {
	list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	for _, a := range list {
		if p, ok := prefix(a.IPNet); ok {
			have[Key{Address, p.String()}] = "set"
		}
	}
	return err
}

func readRoutes(l netlink.Link, have State) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteList(l, family)
		if err != nil {
			return err
		}
		for _, r := range list {
			to, ok := prefix(r.Dst)
			if r.Dst == nil {
				to, ok = netip.PrefixFrom(unspecified(family), 0), true
			}
			if !ok || r.Type != unix.RTN_UNICAST || r.Priority != metric(family == netlink.FAMILY_V4) {
				continue
			}
			have[Key{Route, to.String()}] = nextHop(&r)
		}
	}
	return nil
}

func unspecified(family int) netip.Addr {
	if family == netlink.FAMILY_V4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func nextHop(r *netlink.Route) string {
	a, ok := netip.AddrFromSlice(r.Gw)
	switch {
	case ok:
		return "via " + a.Unmap().String()
	case len(r.MultiPath) > 0:
		return "over several"
	}
	return "direct"
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// apply makes one change.
func (m *machine) apply(link string, c Change) error {
	switch c.Kind {
	case DNS:
		return m.setDNS(link, c.To)
	case Hostname:
		return rights(unix.Sethostname([]byte(c.To)), "CAP_SYS_ADMIN")
	case VsockBuffer:
		return writeBuffer(m.c.Dir, c.To)
	case Link:
		link = c.Name
	}
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return rights(change(l, c), "CAP_NET_ADMIN")
}

func change(l netlink.Link, c Change) error {
	switch index := l.Attrs().Index; {
	case c.Kind == Offload:
		return setFeature(index, c.Name, c.To == "on")
	case c.Kind == Queues:
		return setQueues(index, c.To)
	case c.Kind == MTU:
		n, err := strconv.Atoi(c.To)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, n)
	case c.Kind == Link && c.To == "up":
		return netlink.LinkSetUp(l)
	case c.Kind == Link:
		return netlink.LinkSetDown(l)
	case c.Kind == Address:
		return setAddress(l, c)
	}
	return setRoute(l, c)
}

// setAddress adds an address, usable at once: nobody else is on a guest's link who
// could have it too, so duplicates are not looked for.
func setAddress(l netlink.Link, c Change) error {
	p, err := netip.ParsePrefix(c.Name)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: ipNet(p)}
	if c.To == "" {
		return unless(netlink.AddrDel(l, a), unix.EADDRNOTAVAIL)
	}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrReplace(l, a)
}

func setRoute(l netlink.Link, c Change) error {
	to, err := netip.ParsePrefix(c.Name)
	if err != nil {
		return err
	}
	v4 := to.Addr().Is4()
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(to), Priority: metric(v4), Protocol: unix.RTPROT_STATIC}
	if c.To == "" { // it may have gone with its address
		return unless(netlink.RouteDel(&netlink.Route{LinkIndex: r.LinkIndex, Dst: r.Dst, Priority: r.Priority}), unix.ESRCH)
	}
	if via, ok := strings.CutPrefix(c.To, "via "); ok {
		gw, err := netip.ParseAddr(via)
		if err != nil {
			return err
		}
		r.Gw = gw.AsSlice()
	} else if v4 {
		r.Scope = netlink.SCOPE_LINK
	}
	return netlink.RouteReplace(r)
}

func unless(err error, fine unix.Errno) error {
	if errors.Is(err, fine) {
		return nil
	}
	return err
}

// rights says which capability is missing.
func rights(err error, capability string) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: it takes %s (run it as root)", err, capability)
	}
	return err
}

const bufferFile = "vsock-buffer"

// Buffer returns how many bytes the agent's vsock sockets shall have, 0: the
// kernel's default. It is what the last Apply has left.
func (s *Setup) Buffer() int {
	n, _ := strconv.Atoi(readBuffer(s.c.Dir))
	return n
}

func readBuffer(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, bufferFile))
	return strings.TrimSpace(string(b))
}

func writeBuffer(dir, size string) error {
	path := filepath.Join(dir, bufferFile)
	if size == "" {
		return os.Remove(path)
	}
	return os.WriteFile(path, []byte(size+"\n"), 0o644)
}
