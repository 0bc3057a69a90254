package hostile

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// clock is the machine's, ahead of it by what a test has skipped: rows whose
// time is minutes are played in milliseconds.
type clock struct {
	eventloop.Clock
	ahead atomic.Int64 // ns
	since atomic.Int64 // when it became slow, 0: it has not
	reads atomic.Int64 // by the loop, which does not look while it serves a turn
}

// slowness is by how much a slow clock is slower than the machine's.
const slowness = 50

func (c *clock) Now() eventloop.Time {
	c.reads.Add(1)
	now := c.Clock.Now()
	if since := eventloop.Time(c.since.Load()); since != 0 {
		now = since + (now-since)/slowness
	}
	return now + eventloop.Time(c.ahead.Load())
}

// slow has next to no time go by but where the test says so. It does not stand
// still, since the device rests between two looks at its rings.
func (c *clock) slow() { c.since.Store(int64(c.Clock.Now())) }

// pass lets time go by in steps, at each of which everything that is due runs.
func (d *daemon) pass(total, step time.Duration) {
	d.t.Helper()
	for ; total > 0; total -= step {
		d.clock.ahead.Add(int64(min(step, total)))
		d.counters()
	}
	d.counters() // the timers of the turn before have run
}

// detour is the host's network as a row wants it: where the guest's sockets
// really go, or why they go nowhere.
type detour struct {
	hostsock.Host
	route func(p hostsock.Proto, to netip.AddrPort) (hostsock.Proto, netip.AddrPort, syscall.Errno)
}

// Dial implements hostsock.Host.
func (d *detour) Dial(p hostsock.Proto, to netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	p, at, e := d.route(p, to)
	if e != 0 {
		return hostsock.None, e
	}
	return d.Host.Dial(p, at, o)
}

// leads has everything that the guest sends out into the world arrive at to.
func leads(to netip.AddrPort) func(hostsock.Host) hostsock.Host {
	return func(h hostsock.Host) hostsock.Host {
		return &detour{h, func(p hostsock.Proto, at netip.AddrPort) (hostsock.Proto, netip.AddrPort, syscall.Errno) {
			if at.Addr().IsLoopback() {
				return p, at, 0
			}
			return p, to, 0
		}}
	}
}

// family is one IP version, as the guest sees it.
type family struct {
	name     string
	v6       bool
	guest    net.IP
	gateway  net.IP // leads to the host's loopback
	resolver net.IP
	world    net.IP     // somewhere out there (RFC 5737, RFC 3849)
	loopback netip.Addr // the host's
	typ      layers.EthernetType
	ipHeader int // bytes
}

var (
	guestIP6   = net.ParseIP("fd67:7765:7374::15")
	gateway6   = net.ParseIP("fd67:7765:7374::2")
	linkLocal  = net.ParseIP("fe80::5054:ff:fe12:3456") // the guest's
	routerLL   = net.ParseIP("fe80::2")
	bothFamily = []*family{
		{"IPv4", false, guestIP, gateway, net.IP{10, 0, 2, 3}, world, netip.MustParseAddr("127.0.0.1"), layers.EthernetTypeIPv4, 20},
		{"IPv6", true, guestIP6, gateway6, net.ParseIP("fd67:7765:7374::3"), net.ParseIP("2001:db8::1"), netip.MustParseAddr("::1"), layers.EthernetTypeIPv6, 40},
	}
)

// both runs a row once for each IP version.
func both(run func(t *testing.T, f *family)) func(t *testing.T) {
	return func(t *testing.T) {
		for _, f := range bothFamily {
			t.Run(f.name, func(t *testing.T) { run(t, f) })
		}
	}
}

// is says whether a is an address of this IP version.
func (f *family) is(a net.IP) bool { return (a.To4() == nil) == f.v6 }

func familyOf(a net.IP) *family {
	if bothFamily[0].is(a) {
		return bothFamily[0]
	}
	return bothFamily[1]
}

// ipLayer is an IP header that gopacket can compute checksums with.
type ipLayer interface {
	gopacket.SerializableLayer
	gopacket.NetworkLayer
}

// ip is a header of the version of dst.
func ip(proto layers.IPProtocol, src, dst net.IP) ipLayer {
	if familyOf(dst).v6 {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src, DstIP: dst}
	}
	return ip4(proto, src, dst)
}
