package vsockbridge

import (
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
	"guestwire/vsockbridge/packet"
)

// everything is what a driver that knows the whole standard takes.
const everything = uint64(allFeatures)

const (
	guestCID = 7
	pageRoom = 3776 // of a receive buffer of Linux: a page without the overhead of an skb
)

var features0 = vringtest.Features{EventIdx: true, Indirect: true, InOrder: true}

// rig is a Device between a driver of flesh and rings, and host sockets that the
// test holds the other ends of.
type rig struct {
	tb    testing.TB
	clock *eventlooptest.FakeClock
	loop  *eventloop.Loop
	d     *Device
	mem   *vringtest.Memory
	f     uint64
	cfg   Config
	ring  [queues]*vringtest.Driver
	calls [queues]*vringtest.Event
	host  *socketHost
}

type option func(r *rig, size *uint16)

func without(bits uint64) option        { return func(r *rig, _ *uint16) { r.f &^= bits } }
func ringSize(n uint16) option          { return func(_ *rig, size *uint16) { *size = n } }
func config(f func(c *Config)) option   { return func(r *rig, _ *uint16) { f(&r.cfg) } }
func withLoop(l *eventloop.Loop) option { return func(r *rig, _ *uint16) { r.loop = l } }
func (r *rig) has(bit uint64) bool      { return r.f&bit != 0 }
func (r *rig) drops(x Drop) int         { return int(r.d.drops[x]) }
func (r *rig) conn(port, peer uint32) *conn {
	return r.d.conns.find(key{peer: uint32(packet.HostCID), peerPort: peer, port: port})
}

// newRig makes a rig whose rings run. Receive buffers are the test's to post.
func newRig(tb testing.TB, opts ...option) *rig {
	tb.Helper()
	r := &rig{tb: tb, f: everything, clock: &eventlooptest.FakeClock{T: 1}, host: &socketHost{tb: tb}}
	r.cfg = Config{CID: guestCID, Host: r.host}
	size := uint16(128)
	for _, o := range opts {
		o(r, &size)
	}
	var err error
	if r.loop == nil {
		if r.loop, err = eventloop.New(r.clock); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(r.loop.Close)
	}
	if r.d, err = New(r.cfg, r.loop); err != nil {
		tb.Fatal(err)
	}
	r.mem = vringtest.NewMemory(tb, 64<<20, 64<<20)
	r.d.Negotiated(r.f)
	for i := range r.ring {
		r.calls[i] = vringtest.NewEvent(tb)
		r.ring[i] = r.mem.NewRing(size).NewDriver(vringtest.Features{EventIdx: r.has(vhostuser.RingFEventIdx),
			Indirect: r.has(vhostuser.RingFIndirectDesc), InOrder: r.has(vhostuser.FInOrder)}, 0)
		r.start(i)
	}
	tb.Cleanup(r.d.Close) // before the memory goes
	r.turn()
	if !r.d.up {
		tb.Fatal("the device is not up")
	}
	return r
}

// start hands ring i to the device.
func (r *rig) start(i int) {
	c := r.ring[i].Ring.Config(r.mem.Table())
	c.Index, c.CallFD = i, r.calls[i].FD
	c.EventIdx, c.Indirect, c.InOrder = r.has(vhostuser.RingFEventIdx), r.has(vhostuser.RingFIndirectDesc), r.has(vhostuser.FInOrder)
	r.startWith(i, c)
}

func (r *rig) startWith(i int, c vring.Config) {
	r.tb.Helper()
	q, err := vring.NewDeviceQueue(c)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.d.Start(i, q)
	r.d.Enable(i, true)
}

// turn is one turn of the loop, kicks first, as the vhost-user server passes
// them on.
func (r *rig) turn() (kicked bool) {
	r.tb.Helper()
	for i := range r.ring {
		if r.ring[i].Kick.Count() > 0 {
			kicked = true
			r.d.Kick(i)
		}
	}
	if err := r.loop.Turn(0); err != nil {
		r.tb.Fatal(err)
	}
	return kicked
}

// settle turns until nothing happens any more.
func (r *rig) settle() {
	r.tb.Helper()
	turns := 0
	for quiet := 0; quiet < 10; {
		if turns++; turns > 20_000 {
			r.tb.Fatal("the device does not come to rest")
		}
		before := r.loop.Stats()
		r.clock.Advance(5 * time.Microsecond)
		kicked := r.turn()
		after := r.loop.Stats()
		if quiet++; kicked || after.Agains != before.Agains || after.Events != before.Events {
			quiet = 0
		}
	}
}

// post gives the device n receive buffers of size bytes each.
func (r *rig) post(n int, sizes ...uint32) {
	r.tb.Helper()
	if len(sizes) == 0 {
		sizes = []uint32{pageRoom}
	}
	for range n {
		if _, ok := r.ring[rxQueue].Post(sizes...); !ok {
			r.tb.Fatal("receive ring is full")
		}
	}
}

// fill posts receive buffers until the ring is full.
func (r *rig) fill() {
	r.tb.Helper()
	r.post(r.ring[rxQueue].Q.Free())
}

// got is a packet as the driver sees it.
type got struct {
	packet.Header
	data []byte
}

// reap takes the packets that the driver has got.
func (r *rig) reap() (list []got) {
	r.tb.Helper()
	for _, u := range r.ring[rxQueue].Reap() {
		if u.Written == 0 {
			continue // a buffer that nothing could be done with
		}
		if len(u.Data) < packet.Size {
			r.tb.Fatalf("packet of %d bytes", len(u.Data))
		}
		g := got{packet.Parse((*[packet.Size]byte)(u.Data)), u.Data[packet.Size:]}
		if int(g.Len) != len(g.data) {
			r.tb.Fatalf("%v: %d bytes of payload, header says %d", g.Op, len(g.data), g.Len)
		}
		if g.DstCID != r.cfg.CID {
			r.tb.Fatalf("packet for CID %d", g.DstCID)
		}
		list = append(list, g)
	}
	return list
}

// guest is one end of a connection inside the guest: a small model of the
// driver, which keeps the credit of both directions.
type guest struct {
	r          *rig
	peer       uint64
	port, host uint32
	typ        packet.Type
	alloc, fwd uint32 // what it tells
	sent       uint32
	peerAlloc  uint32 // what it was told
	peerFwd    uint32
}

func (r *rig) guest(port, host uint32) *guest {
	return &guest{r: r, peer: packet.HostCID, port: port, host: host, typ: packet.Stream, alloc: 256 << 10}
}

func (g *guest) header(op packet.Op, n int) packet.Header {
	return packet.Header{SrcCID: g.r.cfg.CID, DstCID: g.peer, SrcPort: g.port, DstPort: g.host,
		Len: uint32(n), Type: g.typ, Op: op, BufAlloc: g.alloc, FwdCnt: g.fwd}
}

func encode(h packet.Header) []byte {
	var b [packet.Size]byte
	h.Put(&b)
	return b[:]
}

// put puts a packet into the transmit ring, header and payload apart.
func (g *guest) put(h packet.Header, data []byte) {
	g.r.tb.Helper()
	parts := [][]byte{encode(h)}
	if len(data) > 0 {
		parts = append(parts, data)
	}
	if _, ok := g.r.ring[txQueue].Send(parts...); !ok {
		g.r.tb.Fatal("transmit ring is full")
	}
}

// do sends a packet without payload and lets things settle.
func (g *guest) do(op packet.Op, flags uint32) {
	g.r.tb.Helper()
	h := g.header(op, 0)
	h.Flags = flags
	g.put(h, nil)
	g.r.settle()
}

// send sends data as one packet.
func (g *guest) send(data []byte, flags uint32) {
	g.r.tb.Helper()
	h := g.header(packet.RW, len(data))
	h.Flags = flags
	g.put(h, data)
	g.sent += uint32(len(data))
}

// take picks the packets of this connection out of list, checks them, and gives
// the payload back as read.
func (g *guest) take(list []got) (ops []packet.Op, data []byte) {
	g.r.tb.Helper()
	for _, p := range list {
		if p.SrcCID != g.peer || p.SrcPort != g.host || p.DstPort != g.port {
			continue
		}
		if p.Type != g.typ {
			g.r.tb.Fatalf("%v of type %v", p.Op, p.Type)
		}
		if p.Op != packet.Reset {
			g.peerAlloc, g.peerFwd = p.BufAlloc, p.FwdCnt
		}
		if p.Op == packet.RW {
			if p.Len == 0 {
				g.r.tb.Fatal("RW without payload")
			}
			data = append(data, p.data...)
			g.fwd += p.Len
			if len(ops) > 0 && ops[len(ops)-1] == packet.RW {
				continue
			}
		}
		ops = append(ops, p.Op)
	}
	return ops, data
}

// connect opens a connection to the host port; the test has the host's end.
func (g *guest) connect() *socket {
	g.r.tb.Helper()
	n := len(g.r.host.opened)
	g.r.post(1)
	g.do(packet.Request, 0)
	if ops, _ := g.take(g.r.reap()); len(ops) != 1 || ops[0] != packet.Response || len(g.r.host.opened) != n+1 {
		g.r.tb.Fatalf("answered %v, %d sockets", ops, len(g.r.host.opened)-n)
	}
	return g.r.host.opened[n]
}

// socketHost serves every port of the host by a socket pair.
type socketHost struct {
	tb      testing.TB
	opened  []*socket
	errno   unix.Errno
	connect func() (fd int, connecting bool) // instead of a socket pair
	ports   []uint32
}

func (h *socketHost) Dial(_ uint64, port uint32, t packet.Type) (int, bool, unix.Errno) {
	h.ports = append(h.ports, port)
	if h.errno != 0 {
		return -1, false, h.errno
	}
	if h.connect != nil {
		fd, connecting := h.connect()
		return fd, connecting, 0
	}
	kind := unix.SOCK_STREAM
	if t == packet.SeqPacket {
		kind = unix.SOCK_SEQPACKET
	}
	s, fd := pair(h.tb, kind)
	h.opened = append(h.opened, s)
	return fd, false, 0
}

// socket is the test's end of a host socket.
type socket struct {
	tb testing.TB
	fd int
}

func pair(tb testing.TB, kind int) (s *socket, fd int) {
	tb.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	s = &socket{tb, p[0]}
	tb.Cleanup(s.close)
	return s, p[1]
}

func (s *socket) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

func (s *socket) write(b []byte) int {
	s.tb.Helper()
	n, err := unix.Write(s.fd, b)
	if err != nil && err != unix.EAGAIN {
		s.tb.Fatal(err)
	}
	return max(n, 0)
}

// read reads what is there. eof says that no more will come.
func (s *socket) read() (b []byte, eof bool) {
	s.tb.Helper()
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(s.fd, buf)
		switch {
		case err == unix.EAGAIN:
			return b, false
		case err != nil:
			s.tb.Fatal(err)
		case n == 0:
			return b, true
		}
		b = append(b, buf[:n]...)
	}
}

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	s := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}
