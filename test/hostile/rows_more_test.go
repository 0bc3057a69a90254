package hostile

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

var moreRows = []row{
	{"R16", smallBuffers},
	{"R22", noCall},
	{"M8", secondOwner},
	{"M18", wrongKicks},
	{"T6", zeroWindow},
	{"T8", hugeScale},
	{"T12", duplicateACKs},
	{"T21", unofferedOptions},
	{"T23", halfClosed},
	{"U10", lastHop},
}

// smallBuffers: receive buffers smaller than the virtio header come back with
// nothing in them, and never with a part of a frame.
func smallBuffers(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(vhostuser.FVersion1)
	var drv [2]*vringtest.Driver
	for i := range g.rings {
		g.rings[i] = g.mem.NewRing(ringSize)
		drv[i] = g.rings[i].NewDriver(vringtest.Features{}, 0)
		must(t, g.startRing(i, drv[i].Kick.FD))
	}
	for range 8 {
		drv[0].Post(8)
	}
	drv[1].Send(make([]byte, netHdr), arpFor(t, gateway))
	d.counts("net_tx_frames", 1)
	time.Sleep(20 * time.Millisecond)
	for _, u := range drv[0].Reap() {
		if len(u.Data) != 0 {
			t.Errorf("% x in a buffer that is too small", u.Data)
		}
	}
	g.leave()
	d.healthy()
}

// noCall: a driver that polls gives no call descriptor.
func noCall(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	must(t, g.f.SetVringCall(0, -1))
	must(t, g.f.SetVringCall(1, -1))
	g.ping()
	g.leave()
	d.healthy()
}

// secondOwner says who owns the session again and again: allowed, or refused,
// but never harmful.
func secondOwner(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for range 3 {
		_ = g.f.Send(vhostuser.MsgSetOwner, nil)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// wrongKicks: a folder and a regular file cannot be waited for.
func wrongKicks(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	for _, path := range []string{"/", "/proc/self/exe"} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		if err := g.f.SetVringKick(1, fd); err == nil {
			t.Errorf("%s is taken for a kick", path)
		}
		unix.Close(fd)
	}
	g.leave()
	d.healthy()
}

// zeroWindow: what the host sends waits in its socket, and comes when the window
// opens.
func zeroWindow(t *testing.T) {
	d, g, c, p := established(t)
	c.segment("", func(s *layers.TCP) { s.Window = 0 })
	c.send("shut") // its ACK's answer carries a window too
	p.want("shut")
	c.segment("", func(s *layers.TCP) { s.Window = 0 })
	d.eventually("the guest's frames to be taken", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	g.receive()
	if _, err := p.c.Write([]byte("patience")); err != nil {
		t.Fatal(err)
	}
	g.silence("data in a closed window", func(f []byte) bool { s := segment(f, 4001); return s != nil && len(s.Payload) > 1 })
	c.segment("", func(*layers.TCP) {})
	g.awaitSegment("the data", 4001, func(s *layers.TCP) bool { return s.Seq == c.ack && string(s.Payload) == "patience" })
	g.leave()
	d.healthy()
}

// hugeScale: a window scale of 255 counts as 14 (RFC 7323, 2.3).
func hugeScale(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	g.send(tcp(t, gateway, 4001, srv.port(), nil, func(s *layers.TCP) {
		syn(s)
		s.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{255}}}
	}))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	c := &conn{g: g, to: gateway, sport: 4001, dport: srv.port(), seq: 1001, ack: sa.Seq + 1}
	c.segment("", func(s *layers.TCP) { s.Window = 1 })
	c.alive(srv.accept())
	g.leave()
	d.healthy()
}

func duplicateACKs(t *testing.T) {
	d, g, c, p := established(t)
	if _, err := p.c.Write([]byte("once")); err != nil {
		t.Fatal(err)
	}
	g.awaitSegment("the data", 4001, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
	for range 1000 {
		c.segment("", func(*layers.TCP) {})
	}
	d.eventually("the storm to pass", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	n := 0
	for _, f := range g.receive() {
		if s := segment(f, 4001); s != nil && len(s.Payload) > 0 {
			n++
		}
	}
	if n > 5 {
		t.Errorf("1,000 duplicate ACKs cause %d retransmissions", n)
	}
	c.ack += 4
	c.alive(p)
	g.leave()
	d.healthy()
}

// unofferedOptions: a SYN without options gets a SYN-ACK without those that both
// must offer (RFC 7323, 1.3; RFC 2018, 2).
func unofferedOptions(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	g.send(tcp(t, gateway, 4001, srv.port(), nil, syn))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	for _, o := range sa.Options {
		switch o.OptionType {
		case layers.TCPOptionKindWindowScale, layers.TCPOptionKindSACKPermitted, layers.TCPOptionKindTimestamps:
			t.Errorf("the SYN-ACK has %v, which the SYN had not", o)
		}
	}
	g.leave()
	d.healthy()
}

// halfClosed: the guest has said its last word, the host has not.
func halfClosed(t *testing.T) {
	d, g, c, p := established(t)
	c.segment("", func(s *layers.TCP) { s.FIN = true })
	c.seq++
	if n, err := p.c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d, %v; want the end", n, err)
	}
	if _, err := p.c.Write([]byte("still talking")); err != nil {
		t.Fatal(err)
	}
	g.awaitSegment("data", 4001, func(s *layers.TCP) bool { return string(s.Payload) == "still talking" })
	g.leave()
	d.healthy()
}

// lastHop: a packet whose hop count ends here makes no flow.
func lastHop(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for _, ttl := range []uint8{0, 1} {
		ip := ip4(layers.IPProtocolUDP, guestIP, net.IP{198, 51, 100, 1})
		ip.TTL = ttl
		u := &layers.UDP{SrcPort: 4000, DstPort: 53}
		_ = u.SetNetworkLayerForChecksum(ip)
		g.send(frame(t, layers.EthernetTypeIPv4, ip, u))
	}
	d.counts("net_tx_frames", 2)
	if n := d.counters()["udp_flows"]; n != 0 {
		t.Errorf("%d flows", n)
	}
	g.leave()
	d.healthy()
}
