package worker

import (
	"net"
	"net/netip"

	"guestwire/cmd/config"
	"guestwire/translate/hostsock"
)

// checkOutbound opens what --outbound and --outbound-if4, -if6 name, once: what is
// not there would only show as silence in the guest.
func checkOutbound(c *config.Net) error {
	for i, name := range c.OutboundIf {
		if name == "" {
			continue
		}
		if _, err := net.InterfaceByName(name); err != nil {
			return &config.Error{
				Option: []string{"--outbound-if4", "--outbound-if6"}[i], Value: name,
				Want: "this host has no such interface (`ip -br link` lists them)",
			}
		}
	}
	for _, a := range []netip.Addr{c.Outbound4, c.Outbound6} {
		if !a.IsValid() {
			continue
		}
		s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		if err != nil {
			return &config.Error{
				Option: "--outbound", Value: a.String(),
				Want: "is no address of this host that can be sent from (`ip -br address` lists them)",
			}
		}
		s.Close()
	}
	return nil
}

// outbound is how the guest's outbound sockets are bound.
func outbound(a netip.Addr, device string) hostsock.Options {
	o := hostsock.Options{Device: device}
	if a.IsValid() {
		o.Bind = netip.AddrPortFrom(a, 0)
	}
	return o
}
