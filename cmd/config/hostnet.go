package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"guestwire/translate/forward"
)

// localPorts are those that `-t all` must leave alone.
func localPorts() (g forward.Grammar) {
	g.EphemeralFirst, g.EphemeralLast = LocalPorts()
	return g
}

// LocalPorts reads which ports the host gives to its own outgoing connections.
func LocalPorts() (first, last uint16) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if n, _ := fmt.Sscan(string(b), &first, &last); err != nil || n != 2 || first > last {
		return forward.DefaultGrammar.EphemeralFirst, forward.DefaultGrammar.EphemeralLast
	}
	return first, last
}

// ReadHostNet finds the interfaces that carry the host's default routes and
// copies their first global address, prefix, router and MTU.
func ReadHostNet() (HostNet, error) {
	var h HostNet
	for _, f := range []struct {
		family int
		prefix *netip.Prefix
		gw     *netip.Addr
		ifname *string
	}{
		{netlink.FAMILY_V4, &h.V4, &h.Gw4, &h.Interface4},
		{netlink.FAMILY_V6, &h.V6, &h.Gw6, &h.Interface6},
	} {
		link, gw, err := defaultRoute(f.family)
		if err != nil {
			return h, err
		}
		if link == nil {
			continue
		}
		p, err := firstGlobal(link, f.family)
		if err != nil {
			return h, err
		}
		if !p.IsValid() {
			continue
		}
		if !gw.IsValid() {
			gw = derive(p, 1) // a point-to-point default route has no router
		}
		*f.prefix, *f.gw, *f.ifname = p, gw, link.Attrs().Name
		h.MTU = link.Attrs().MTU
	}
	return h, nil
}

func defaultRoute(family int) (netlink.Link, netip.Addr, error) {
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		index := r.LinkIndex
		gw := r.Gw
		if len(r.MultiPath) > 0 {
			index, gw = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			continue // it went away between the two questions
		}
		return link, addr(gw), nil
	}
	return nil, netip.Addr{}, nil
}

func firstGlobal(link netlink.Link, family int) (netip.Prefix, error) {
	addrs, err := netlink.AddrList(link, family)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		ip := addr(a.IP)
		if !ip.IsGlobalUnicast() {
			continue
		}
		ones, _ := a.Mask.Size()
		return netip.PrefixFrom(ip, ones), nil
	}
	return netip.Prefix{}, nil
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
