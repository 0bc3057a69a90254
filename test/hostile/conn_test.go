package hostile

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"guestwire/vring/vhostuser"
)

// server is a real service on the host's loopback, which the guest reaches at
// the gateway's address.
type server struct {
	t *testing.T
	f *family
	l *net.TCPListener
}

func listen(t *testing.T) *server {
	t.Helper()
	return listenOn(t, bothFamily[0])
}

func listenOn(t *testing.T, f *family) *server {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.loopback, 0)))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return &server{t, f, l}
}

func (s *server) port() uint16 { return uint16(s.l.Addr().(*net.TCPAddr).Port) }

// peer is the host's end of a flow.
type peer struct {
	t *testing.T
	c *net.TCPConn
}

func (s *server) accept() *peer {
	s.t.Helper()
	_ = s.l.SetDeadline(time.Now().Add(4 * time.Second))
	c, err := s.l.AcceptTCP()
	must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(4 * time.Second))
	return &peer{s.t, c}
}

func (p *peer) want(text string) {
	p.t.Helper()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(p.c, b); err != nil || string(b) != text {
		p.t.Fatalf("the host got %q, %v; want %q", b, err, text)
	}
}

func (p *peer) wantReset() {
	p.t.Helper()
	if _, err := p.c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		p.t.Fatalf("the host got %v, want a reset", err)
	}
}

// conn is the guest's end, driven by hand.
type conn struct {
	g            *guest
	to           net.IP
	sport, dport uint16
	seq, ack     uint32
}

// connect opens a connection from guest port sport.
func (g *guest) connect(s *server, sport uint16) *conn {
	g.t.Helper()
	c := &conn{g: g, to: s.f.gateway, sport: sport, dport: s.port(), seq: 1000}
	c.segment("", func(s *layers.TCP) { s.SYN = true })
	sa := g.awaitSegment("a SYN-ACK", sport, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	if sa.Ack != 1001 {
		g.t.Fatalf("SYN-ACK acknowledges %d, want 1001", sa.Ack)
	}
	c.seq, c.ack = 1001, sa.Seq+1
	c.segment("", func(*layers.TCP) {})
	g.taken()
	return c
}

// established is a worker with a guest that has one connection to a service on
// the host, from guest port 4001.
func established(t *testing.T) (*daemon, *guest, *conn, *peer) {
	t.Helper()
	return establishedOn(t, bothFamily[0])
}

func establishedOn(t *testing.T, f *family) (*daemon, *guest, *conn, *peer) {
	t.Helper()
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	c := g.connect(srv, 4001)
	return d, g, c, srv.accept()
}

// segment sends a segment at the connection's numbers, with ACK unless change
// makes it a SYN.
func (c *conn) segment(data string, change func(*layers.TCP)) {
	c.g.t.Helper()
	c.g.send(tcp(c.g.t, c.to, c.sport, c.dport, []byte(data), func(s *layers.TCP) {
		s.Seq, s.Ack, s.ACK = c.seq, c.ack, true
		change(s)
		if s.SYN && s.Seq == 1000 {
			s.ACK, s.Ack = false, 0
		}
	}))
}

func (c *conn) send(text string) {
	c.g.t.Helper()
	c.segment(text, func(s *layers.TCP) { s.PSH = true })
	c.seq += uint32(len(text))
}

// alive checks that the connection still carries data.
func (c *conn) alive(p *peer) {
	c.g.t.Helper()
	c.send("alive")
	p.want("alive")
}

// taken waits until the device has taken all frames, and acted on them.
func (g *guest) taken() {
	g.t.Helper()
	g.d.eventually("the guest's frames to be taken", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	g.d.counters()
}

// read takes n bytes of the stream as they come in order, and acknowledges them.
func (c *conn) read(n int) (b []byte) {
	c.g.t.Helper()
	for end := time.Now().Add(4 * time.Second); len(b) < n; {
		was := len(b)
		for _, f := range c.g.receive() {
			if s := segment(f, c.sport); s != nil && s.Seq == c.ack {
				b = append(b, s.Payload...)
				c.ack += uint32(len(s.Payload))
			}
		}
		switch {
		case len(b) > was:
			c.segment("", func(*layers.TCP) {})
		case time.Now().After(end):
			c.g.t.Fatalf("the guest got %d bytes of %d in 4 s; counters:%s", len(b), n, c.g.d.nonzero())
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return b
}

// pattern is n bytes that differ by place and by seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8*7 ^ i>>16*13 ^ seed*31)
	}
	return b
}

// restartRing starts a ring again that GET_VRING_BASE has stopped.
func (g *guest) restartRing(i, kick int) error {
	r := g.rings[i]
	if err := g.f.SetVringAddr(vhostuser.VringAddr{Index: uint32(i), Desc: g.mem.UVA(r.DescGPA), Avail: g.mem.UVA(r.AvailGPA), Used: g.mem.UVA(r.UsedGPA)}); err != nil {
		return err
	}
	if err := g.f.SetVringKick(i, kick); err != nil {
		return err
	}
	return g.f.SetVringCall(i, g.call[i].FD)
}
