package netns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"guestwire/vnet/tap"
)

// queueLen is how many frames of the namespace wait to be read; Linux has 1,000. A
// burst of full-size datagrams of the largest socket buffer fits.
const queueLen = 2000

// setup makes the interface, and the rest of a new namespace.
func (k *keeper) setup(i *Interface, a *answer) (int, error) {
	if len(k.command) > 0 {
		k.furnish(i, a)
	}
	fd, name, err := tap.Open(i.Name)
	if err != nil {
		if _, there := netlink.LinkByName(i.Name); there == nil {
			err = fmt.Errorf("there is an interface %s in the namespace already: choose another name (--ns-ifname)", i.Name)
		}
		return -1, err
	}
	a.Name = name
	if err := i.apply(name); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("configure %s: %w", name, err)
	}
	return fd, nil
}

// furnish makes a new namespace what a program expects: its own processes in /proc,
// a resolver that can be reached, ping for its root.
func (k *keeper) furnish(i *Interface, a *answer) {
	if os.Getpid() == 1 {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			a.Warn = append(a.Warn, fmt.Sprintf("/proc shows the processes of the host: %v", err))
		}
	}
	_ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0)
	if i.Config && len(i.DNS) > 0 {
		if err := resolvConf(i.DNS, i.Search); err != nil {
			a.Warn = append(a.Warn, fmt.Sprintf("resolv.conf is the host's: %v", err))
		}
	}
}

// resolvConf puts ours over the host's, which often names a resolver on loopback.
func resolvConf(dns []netip.Addr, search []string) error {
	path, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "resolv.conf")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // the mount keeps it
	defer f.Close()
	for _, d := range dns {
		fmt.Fprintf(f, "nameserver %s\n", d)
	}
	if len(search) > 0 {
		fmt.Fprintf(f, "search %s\n", strings.Join(search, " "))
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return unix.Mount(f.Name(), path, "", unix.MS_BIND, "")
}

// apply gives the interface its MTU and queue, and with Config addresses and
// routes. Loopback is brought up in any case.
func (i *Interface) apply(name string) error {
	if lo, err := netlink.LinkByName("lo"); err == nil {
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(l, i.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", i.MTU, err)
	}
	if err := netlink.LinkSetTxQLen(l, queueLen); err != nil {
		return fmt.Errorf("queue of %d frames: %w", queueLen, err)
	}
	if !i.Config {
		return nil
	}
	// There is nobody else on the link whose address could be ours, and no
	// advertisement is waited for. Where /proc is read-only it is: a second late.
	for _, key := range []string{"accept_dad", "accept_ra"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/"+key, []byte("0"), 0)
	}
	for _, p := range i.Addresses {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}
	for _, g := range i.Gateways {
		// On the link, even where no prefix says so.
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: g.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Dst: anywhere(g)}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("default route by %s: %w", g, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func anywhere(family netip.Addr) *net.IPNet {
	zero := make(net.IP, len(family.AsSlice()))
	return &net.IPNet{IP: zero, Mask: net.CIDRMask(0, family.BitLen())}
}
