package worker

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/guestagent/proto"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/packet"
)

// maxListeners is how many connections of a guest are told at a time; one is
// enough for an agent.
const maxListeners = 4

// configurer tells a guest how its network card is to be set up: what connects to
// proto.Port of the host gets the configuration at once, and again after every
// change (guestagent/proto/SPEC.md). It is the card's DHCP server for guests that
// have no client, and says nothing that that does not say. All else goes on to the
// host's sockets.
//
// A connection is one end of a pair of sockets, of which the device has the other.
// The guest has nothing to say: what it sends ends the connection, and so does not
// reading, once it has a buffer full of configurations.
type configurer struct {
	next  vsockbridge.Host
	loop  *eventloop.Loop
	nic   *nic
	frame []byte // the present configuration
	open  [maxListeners]listener
	sent  uint64 // configurations
	full  uint64 // connections that were refused
}

// listener is a connection; without a token there is none.
type listener struct {
	fd    int
	token eventloop.Token
}

// newConfigurer puts a configurer in front of the host's sockets, unless a rule has
// something else at its port.
func newConfigurer(cfg *config.Vsock, n *nic, next vsockbridge.Host, loop *eventloop.Loop) *configurer {
	for _, r := range cfg.Host.Connect {
		if r.Port == proto.Port && r.Type == packet.Stream {
			return nil
		}
	}
	c := &configurer{next: next, loop: loop, nic: n}
	c.changed()
	return c
}

// Dial implements vsockbridge.Host.
func (c *configurer) Dial(guest uint64, port uint32, t packet.Type) (fd int, connecting bool, errno unix.Errno) {
	if port != proto.Port || t != packet.Stream {
		return c.next.Dial(guest, port, t)
	}
	for i := range c.open {
		if c.open[i].token == 0 {
			fd, err := c.tell(i)
			if err != nil {
				return -1, false, unix.EAGAIN // out of descriptors: later, perhaps
			}
			return fd, false, 0
		}
	}
	c.full++
	return -1, false, unix.ECONNREFUSED
}

// tell opens connection i and returns the device's end of it.
func (c *configurer) tell(i int) (theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	token, err := c.loop.Add(pair[0], eventloop.In|eventloop.RDHup, c, uint32(i))
	if err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return -1, err
	}
	c.open[i] = listener{pair[0], token}
	c.send(i)
	return pair[1], nil
}

// send sends the present configuration. It fits whole or the guest does not read.
func (c *configurer) send(i int) {
	n, err := unix.SendmsgN(c.open[i].fd, c.frame, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil || n < len(c.frame) {
		c.end(i)
		return
	}
	c.sent++
}

// Ready implements eventloop.Source: the guest has ended the connection, or breaks
// the protocol.
func (c *configurer) Ready(cookie uint32, _ eventloop.Events) { c.end(int(cookie)) }

func (c *configurer) end(i int) {
	if l := &c.open[i]; l.token != 0 {
		c.loop.Remove(l.token)
		unix.Close(l.fd)
		*l = listener{}
	}
}

// changed tells everybody what the configuration is now.
func (c *configurer) changed() {
	if c == nil {
		return
	}
	frame, err := proto.Append(nil, proto.Config, 0, c.nic.announcement())
	if err != nil {
		return // cannot be: it has no more than config allows
	}
	c.frame = frame
	for i := range c.open {
		if c.open[i].token != 0 {
			c.send(i)
		}
	}
}

func (c *configurer) close() {
	if c == nil {
		return
	}
	for i := range c.open {
		c.end(i)
	}
}

func (c *configurer) each(f func(name string, value uint64)) {
	if c == nil {
		return
	}
	f("vsock_configurations", c.sent)
	f("vsock_configurations_refused", c.full)
}

// announcement is what the guest is told, as DHCP and router advertisements tell
// it. Names that a guest would refuse are left out.
func (n *nic) announcement() *proto.Network {
	a := &proto.Network{MTU: n.cfg.MTU, DNS: n.cfg.Announce}
	for _, f := range []*config.Family{&n.cfg.V4, &n.cfg.V6} {
		if !f.Enabled {
			continue
		}
		a.Addresses = append(a.Addresses, f.Guest)
		if f.Gateway.IsValid() {
			a.Routes = append(a.Routes, defaultRoutes(f)...)
		}
		if len(n.cfg.Announce) == 0 && f.DNS.IsValid() {
			a.DNS = append(a.DNS, f.DNS)
		}
	}
	a.DNS = a.DNS[:min(len(a.DNS), proto.MaxDNS)]
	if allowed(&proto.Network{Hostname: n.cfg.Hostname}) {
		a.Hostname = n.cfg.Hostname
	}
	for _, s := range n.resolver.Search() {
		if len(a.Search) < proto.MaxSearch && allowed(&proto.Network{Search: []string{s}}) {
			a.Search = append(a.Search, s)
		}
	}
	return a
}

func allowed(n *proto.Network) bool { return n.Check() == nil }

// defaultRoutes are the default route, and the one to the gateway where the
// guest's prefix does not have it (--address host copies such).
func defaultRoutes(f *config.Family) (list []proto.Route) {
	gw := netip.PrefixFrom(f.Gateway, f.Gateway.BitLen())
	if !f.Guest.Contains(f.Gateway) && !f.Gateway.IsLinkLocalUnicast() {
		list = append(list, proto.Route{To: gw})
	}
	all := netip.PrefixFrom(f.Gateway, 0).Masked()
	return append(list, proto.Route{To: all, Via: f.Gateway})
}
