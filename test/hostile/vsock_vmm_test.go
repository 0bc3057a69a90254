package hostile

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"guestwire/cmd/config"
	"guestwire/cmd/worker"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/packet"
)

const (
	vsockCID      = 3
	vsockRoom     = 3776 // of a receive buffer of Linux: a page without the overhead of an skb
	vsockFeatures = vhostuser.FVersion1 | vhostuser.RingFIndirectDesc | vhostuser.RingFEventIdx | vsockbridge.FSeqPacket
	vsockAlloc    = 256 << 10 // the room that our guest has, as Linux by default
)

// startVSock runs a worker with one vsock device for the length of the test.
func startVSock(t *testing.T, change func(*config.VsockOptions)) *daemon {
	t.Helper()
	dir := t.TempDir()
	o := config.VsockOptions{SocketPath: filepath.Join(dir, "s"), FD: -1, GuestCID: vsockCID, UDSPath: filepath.Join(dir, "v")}
	if change != nil {
		change(&o)
	}
	c, err := config.ResolveVsock(&o)
	must(t, err)
	fds := descriptors(t)
	clk := &clock{Clock: eventloop.NewClock()}
	w, err := worker.NewOn([]config.Guest{{Vsock: c}}, slog.New(slog.NewTextHandler(io.Discard, nil)), worker.Seams{Clock: clk})
	must(t, err)
	d := &daemon{t: t, path: o.SocketPath, w: w, done: make(chan error, 1), clock: clk}
	go func() { d.done <- w.Run() }()
	t.Cleanup(func() {
		d.stop()
		if now := descriptors(t); now > fds {
			t.Errorf("%d descriptors before, %d after", fds, now)
		}
	})
	return d
}

// uds is the path of the hybrid protocol, beside the frontend's socket.
func (d *daemon) uds() string { return filepath.Join(filepath.Dir(d.path), "v") }

// vsockHealthy checks the promise that holds after every row: a guest that comes
// now is served, both ways.
func (d *daemon) vsockHealthy() {
	d.t.Helper()
	g := d.vsockGuest()
	defer g.f.Close()
	s := d.vsockListen(59999)
	c := g.connect(s, 59999)
	c.send("alive")
	s.want("alive")
	_, err := io.WriteString(s.c, "both ways")
	must(d.t, err)
	c.want("both ways")
	s.c.Close()
	s.l.Close()
	g.await("the end", func(p vpacket) bool { return p.Op == packet.Shutdown || p.Op == packet.Reset })
}

// vguest is a frontend with a driver of a vsock device.
type vguest struct {
	t       *testing.T
	d       *daemon
	f       *vhostuser.Frontend
	mem     *vringtest.Memory
	drivers []*vringtest.Driver
	starved bool // receive buffers that come back are not posted again
	seen    []vpacket
}

// vpacket is a packet that the guest has received.
type vpacket struct {
	packet.Header
	data string
}

// vsockGuest brings a device up, with all receive buffers posted.
func (d *daemon) vsockGuest() *vguest {
	d.t.Helper()
	return d.vsockGuestWith(vsockFeatures, 2, ringSize)
}

// vsockGuestWith acknowledges features, starts that many queues and posts
// buffers on the first.
func (d *daemon) vsockGuestWith(features uint64, queues, buffers int) *vguest {
	d.t.Helper()
	g := &vguest{t: d.t, d: d, mem: vringtest.NewMemory(d.t, 16<<20, 8<<20)}
	got := g.meet(features)
	feat := vringtest.Features{EventIdx: got&vhostuser.RingFEventIdx != 0, Indirect: got&vhostuser.RingFIndirectDesc != 0}
	for i := range queues {
		g.drivers = append(g.drivers, g.mem.NewRing(ringSize).NewDriver(feat, 0))
		g.startRing(i)
	}
	for range buffers {
		g.drivers[0].Post(vsockRoom)
	}
	return g
}

// meet has the guest's frontend begin a session.
func (g *vguest) meet(features uint64) uint64 {
	g.t.Helper()
	g.d.eventually("a place for a frontend", func() bool {
		var err error
		if g.f, err = vhostuser.DialFrontend(g.d.path); err != nil {
			return false
		}
		_ = g.f.SetTimeout(4 * time.Second)
		if _, err = g.f.GetFeatures(); err != nil { // the one before has not been buried yet
			g.f.Close()
			return false
		}
		return true
	})
	g.t.Cleanup(g.f.Close)
	got, p, err := g.f.Negotiate(features, vhostuser.AlwaysProtocol&^vhostuser.ProtocolFGPAAddresses|vhostuser.ProtocolFConfig)
	must(g.t, err)
	must(g.t, g.f.Share(p, g.mem.Regions()))
	return got
}

// startRing has the backend serve ring i from what it has used.
func (g *vguest) startRing(i int) {
	g.t.Helper()
	r := g.drivers[i].Ring
	must(g.t, g.f.StartRing(i, vhostuser.RingSetup{
		Size: uint32(r.Size), Desc: g.mem.UVA(r.DescGPA), Avail: g.mem.UVA(r.AvailGPA), Used: g.mem.UVA(r.UsedGPA), Base: r.UsedIdx(),
		Kick: g.drivers[i].Kick.FD, Call: vringtest.NewEvent(g.t).FD, Err: vringtest.NewEvent(g.t).FD,
	}))
	must(g.t, g.f.SetVringEnable(i, true))
}

// put sends chains as they are, once there is room.
func (g *vguest) put(parts ...[]byte) {
	g.t.Helper()
	for end := time.Now().Add(4 * time.Second); ; time.Sleep(time.Millisecond) {
		g.drivers[1].Reap()
		if _, ok := g.drivers[1].Send(parts...); ok {
			return
		}
		g.receive()
		if time.Now().After(end) {
			g.t.Fatalf("the transmit ring stays full; counters:%s", g.d.nonzero())
		}
	}
}

// header is one of a connection to the host that does nothing wrong.
func header(op packet.Op, port, hostPort uint32) packet.Header {
	return packet.Header{SrcCID: vsockCID, DstCID: packet.HostCID, SrcPort: port, DstPort: hostPort, Type: packet.Stream, Op: op, BufAlloc: vsockAlloc}
}

func wire(h packet.Header) []byte {
	var b [packet.Size]byte
	h.Put(&b)
	return b[:]
}

// receive notes the packets that have come.
func (g *vguest) receive() {
	for _, u := range g.drivers[0].Reap() {
		if len(u.Data) >= packet.Size {
			g.seen = append(g.seen, vpacket{packet.Parse((*[packet.Size]byte)(u.Data)), string(u.Data[packet.Size:])})
		}
		if !g.starved {
			g.drivers[0].Post(vsockRoom)
		}
	}
}

// await waits for a packet that fits, which is then no longer there.
func (g *vguest) await(what string, fits func(vpacket) bool) vpacket {
	g.t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.receive()
		for i, p := range g.seen {
			if fits(p) {
				g.seen = append(g.seen[:i:i], g.seen[i+1:]...)
				return p
			}
		}
	}
	g.t.Fatalf("waited 4 s for %s; seen %v; counters:%s", what, g.seen, g.d.nonzero())
	return vpacket{}
}

// awaitOp waits for an operation at a port of the guest.
func (g *vguest) awaitOp(op packet.Op, port uint32) vpacket {
	g.t.Helper()
	return g.await(fmt.Sprintf("%v at port %d", op, port), func(p vpacket) bool { return p.Op == op && p.DstPort == port })
}

// none checks that no such packet has come, behind all that was sent before: a
// request that is refused, and answered in order, tells when that has been read.
func (g *vguest) none(what string, fits func(vpacket) bool) {
	g.t.Helper()
	const port, unserved = 61234, 61235
	g.put(wire(header(packet.Request, port, unserved)))
	g.awaitOp(packet.Reset, port)
	for _, p := range g.seen {
		if fits(p) {
			g.t.Fatalf("%s: got %+v", what, p)
		}
	}
}

// vserver is the host's end at a port: a listener and the connection that has
// come last.
type vserver struct {
	t *testing.T
	l *net.UnixListener
	c *net.UnixConn
}

func (d *daemon) vsockListen(port uint32) *vserver {
	d.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("%s_%d", d.uds(), port), Net: "unix"})
	must(d.t, err)
	d.t.Cleanup(func() { l.Close() })
	return &vserver{t: d.t, l: l}
}

func (s *vserver) accept() {
	s.t.Helper()
	_ = s.l.SetDeadline(time.Now().Add(4 * time.Second))
	c, err := s.l.AcceptUnix()
	must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(4 * time.Second))
	s.c = c
}

func (s *vserver) want(text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	if n, err := io.ReadFull(s.c, b); err != nil || string(b) != text {
		s.t.Fatalf("the host got %.60q (%d bytes), %v; want %.60q", b[:n], n, err, text)
	}
}

// wantEnd checks that the connection is over, by EOF or reset.
func (s *vserver) wantEnd() {
	s.t.Helper()
	if _, err := io.Copy(io.Discard, s.c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		s.t.Fatalf("the host's connection did not end: %v", err)
	}
}

// vconn is the guest's end of a connection to the host.
type vconn struct {
	g          *vguest
	port, host uint32
	fwd        uint32 // bytes that the guest has taken
	got        string
}

// connect opens a connection from the guest to a port of s, from port 1000 on.
func (g *vguest) connect(s *vserver, hostPort uint32) *vconn {
	g.t.Helper()
	return g.connectFrom(1000+hostPort%1000, s, hostPort)
}

func (g *vguest) connectFrom(port uint32, s *vserver, hostPort uint32) *vconn {
	g.t.Helper()
	g.put(wire(header(packet.Request, port, hostPort)))
	g.awaitOp(packet.Response, port)
	s.accept()
	return &vconn{g: g, port: port, host: hostPort}
}

// header is one of this connection, with honest credit.
func (c *vconn) header(op packet.Op) packet.Header {
	h := header(op, c.port, c.host)
	h.FwdCnt = c.fwd
	return h
}

func (c *vconn) send(text string) {
	c.g.t.Helper()
	h := c.header(packet.RW)
	h.Len = uint32(len(text))
	c.g.put(wire(h), []byte(text))
}

func (c *vconn) do(op packet.Op, flags uint32) {
	c.g.t.Helper()
	h := c.header(op)
	h.Flags = flags
	c.g.put(wire(h))
}

// want takes text, and gives the credit back.
func (c *vconn) want(text string) {
	c.g.t.Helper()
	for len(c.got) < len(text) {
		p := c.g.awaitOp(packet.RW, c.port)
		c.got += p.data
		c.fwd += uint32(len(p.data))
		c.do(packet.CreditUpdate, 0)
	}
	if c.got[:len(text)] != text {
		c.g.t.Fatalf("the guest got %.60q, want %.60q", c.got, text)
	}
	c.got = c.got[len(text):]
}

// wantReset checks that the connection was reset.
func (c *vconn) wantReset() { c.g.t.Helper(); c.g.awaitOp(packet.Reset, c.port) }

// hybrid opens a connection of a client of the host, without a word.
func (d *daemon) hybrid() *net.UnixConn {
	d.t.Helper()
	var c *net.UnixConn
	d.eventually("a place in the backlog", func() bool { // for which a blocking client would wait
		var err error
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: d.uds(), Net: "unix"})
		return err == nil
	})
	d.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(4 * time.Second))
	return c
}

// wantClosed checks that the daemon has closed a client's connection without a
// word.
func wantClosed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) || len(b) > 0 {
		t.Errorf("%s: got %q, %v; want the end of the connection", what, b, err)
	}
}
