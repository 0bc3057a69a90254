package vsockbridge

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge/packet"
)

// initiator notes what it hears.
type initiator struct {
	tb   testing.TB
	kind int
	gone bool // its client has
	log  []string
	s    *socket
	then func()
}

func (i *initiator) Accepted(cookie uint32, hostPort uint32) (int, bool) {
	i.log = append(i.log, fmt.Sprintf("%d accepted", cookie))
	if i.gone {
		return -1, false
	}
	var fd int
	i.s, fd = pair(i.tb, i.kind)
	return fd, true
}

func (i *initiator) Refused(cookie uint32, why unix.Errno) {
	i.log = append(i.log, fmt.Sprintf("%d: %v", cookie, why))
	if i.then != nil {
		i.then()
	}
}

// TestConnect: a connection that the host asked for, for either type.
func TestConnect(t *testing.T) {
	for typ, kind := range map[packet.Type]int{packet.Stream: unix.SOCK_STREAM, packet.SeqPacket: unix.SOCK_SEQPACKET} {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRig(t)
			in := &initiator{tb: t, kind: kind}
			port, errno := r.d.Connect(22, typ, in, 5)
			if errno != 0 || port < firstPort || port > 65535 {
				t.Fatal(port, errno)
			}
			r.post(10)
			r.settle()
			l := r.reap()
			if len(l) != 1 || l[0].Op != packet.Request || l[0].DstPort != 22 || l[0].SrcPort != port || l[0].Type != typ || l[0].BufAlloc != DefaultBufAlloc {
				t.Fatalf("%+v", l)
			}
			g := r.guest(22, port)
			g.typ = typ
			g.do(packet.Response, 0)
			if !slices.Equal(in.log, []string{"5 accepted"}) {
				t.Fatal(in.log)
			}
			r.d.Cancel(port) // too late, and so does nothing
			in.s.write([]byte("hello"))
			g.send([]byte("world"), packet.EndOfMessage)
			r.settle()
			if b, _ := in.s.read(); string(b) != "world" {
				t.Errorf("%q", b)
			}
			if ops, b := g.take(r.reap()); string(b) != "hello" || len(ops) != 1 {
				t.Errorf("%v %q", ops, b)
			}
			g.do(packet.Shutdown, packet.ShutdownBoth)
			if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) || r.d.conns.used != 0 || r.d.ports.find(port) >= 0 {
				t.Errorf("%v, %d connections", ops, r.d.conns.used)
			}
		})
	}
}

// TestConnectEnds: each way that a connect can fail is told once.
func TestConnectEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(r *rig, in *initiator, g *guest)
		log  []string
		left []packet.Op // what the guest hears afterwards
	}{
		{"refused", func(_ *rig, _ *initiator, g *guest) { g.do(packet.Reset, 0) }, []string{"5: connection refused"}, nil},
		{"no answer", func(r *rig, _ *initiator, _ *guest) { r.clock.Advance(time.Duration(answerLimit) + time.Second) },
			[]string{"5: connection timed out"}, []packet.Op{packet.Reset}},
		{"wrong answer", func(_ *rig, _ *initiator, g *guest) { g.do(packet.Request, 0) }, []string{"5: connection refused"}, []packet.Op{packet.Reset}},
		{"client gone before", func(r *rig, _ *initiator, g *guest) { r.d.Cancel(g.host) }, nil, []packet.Op{packet.Reset}},
		{"client gone at last", func(_ *rig, in *initiator, g *guest) { in.gone = true; g.do(packet.Response, 0) }, []string{"5 accepted"}, []packet.Op{packet.Reset}},
		{"guest resets", func(r *rig, _ *initiator, _ *guest) {
			r.d.Stop(rxQueue)
			r.d.Stop(txQueue)
			r.d.Reset()
		}, []string{"5: connection reset by peer"}, nil},
		{"refused, and asked again from within", func(r *rig, in *initiator, g *guest) {
			in.then = func() { r.d.Connect(22, packet.Stream, in, 6) }
			g.do(packet.Reset, 0)
		}, []string{"5: connection refused"}, []packet.Op{packet.Request}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			in := &initiator{tb: t, kind: unix.SOCK_STREAM}
			port, _ := r.d.Connect(22, packet.Stream, in, 5)
			r.post(5)
			r.settle()
			r.reap()
			tc.do(r, in, r.guest(22, port))
			r.settle()
			var ops []packet.Op
			for _, p := range r.reap() {
				ops = append(ops, p.Op)
			}
			if !slices.Equal(in.log, tc.log) || !slices.Equal(ops, tc.left) {
				t.Errorf("heard %q, guest %v; want %q, %v", in.log, ops, tc.log, tc.left)
			}
			if n := r.d.conns.used; n != 0 && in.then == nil {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

// TestConnectRefusedAtOnce: what can be known without the guest.
func TestConnectRefusedAtOnce(t *testing.T) {
	r := newRig(t, without(FSeqPacket), config(func(c *Config) { c.MaxConns = 2 }))
	in := &initiator{tb: t}
	if _, errno := r.d.Connect(1, packet.SeqPacket, in, 0); errno != unix.ESOCKTNOSUPPORT {
		t.Errorf("seqpacket: %v", errno)
	}
	p1, e1 := r.d.Connect(1, packet.Stream, in, 0)
	p2, e2 := r.d.Connect(1, packet.Stream, in, 0)
	if e1 != 0 || e2 != 0 || p1 == p2 {
		t.Errorf("%v %v, ports %d and %d", e1, e2, p1, p2)
	}
	if _, errno := r.d.Connect(1, packet.Stream, in, 0); errno != unix.EAGAIN {
		t.Errorf("too many: %v", errno)
	}
	r.d.Cancel(p1)
	if r.d.conns.used != 1 {
		t.Error("one that the guest has not heard of is kept")
	}
	r.d.Enable(rxQueue, false)
	if _, errno := r.d.Connect(1, packet.Stream, in, 0); errno != unix.ENOTCONN {
		t.Errorf("no guest: %v", errno)
	}
	if len(in.log) != 0 {
		t.Errorf("heard %q", in.log)
	}
}

// TestPortsWrap is V15: ports in use are skipped when the range comes round.
func TestPortsWrap(t *testing.T) {
	r := newRig(t, config(func(c *Config) { c.MaxConns = 3 }))
	in := &initiator{tb: t}
	kept, _ := r.d.Connect(1, packet.Stream, in, 0)
	seen := map[uint32]int{}
	for range 2 * numPorts {
		p, errno := r.d.Connect(1, packet.Stream, in, 1)
		if errno != 0 || p == kept {
			t.Fatal(p, errno)
		}
		seen[p]++
		r.d.Cancel(p)
	}
	if len(seen) != numPorts-1 {
		t.Errorf("%d ports of %d", len(seen), numPorts-1)
	}
}

// TestDialing: a host connect that is under way (complaint fc/5995) stalls
// nobody, and its end is told.
func TestDialing(t *testing.T) {
	r := newRig(t)
	// A TCP connect to a listener whose queue is full stays under way.
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(l) }()
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, _ := unix.Getsockname(l)
	r.host.connect = func() (int, bool) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd, unix.Connect(fd, addr) == unix.EINPROGRESS
	}
	r.post(20)
	g := r.guest(1000, 80) // nobody listens: refused
	g.do(packet.Request, 0)
	if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) {
		t.Errorf("nobody listens: %v", ops)
	}
	if err := unix.Listen(l, 0); err != nil {
		t.Fatal(err)
	}
	var answers [4][]packet.Op
	var gs [4]*guest
	for i := range gs {
		gs[i] = r.guest(2000+uint32(i), 80)
		gs[i].do(packet.Request, 0)
		answers[i], _ = gs[i].take(r.reap())
	}
	if !slices.Equal(answers[0], []packet.Op{packet.Response}) || answers[3] != nil {
		t.Fatalf("%v", answers)
	}
	r.host.connect = nil
	g = r.guest(1000, 81)
	g.connect() // another goes through meanwhile
	gs[3].do(packet.Reset, 0)
	r.clock.Advance(time.Duration(dialLimit) + time.Second)
	r.settle()
	if ops, _ := gs[2].take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) {
		t.Errorf("a connect that does not end: %v", ops)
	}
}

// TestGuestRestarts: connections last through a pause, and end with the guest.
func TestGuestRestarts(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	stop := func() {
		for i := range r.ring {
			r.d.Enable(i, false)
			r.d.Stop(i)
		}
	}
	restart := func(base uint16) {
		for i := range r.ring {
			c := r.ring[i].Ring.Config(r.mem.Table())
			c.Index, c.CallFD, c.EventIdx, c.Indirect, c.InOrder = i, r.calls[i].FD, true, true, true
			if c.Base = r.d.stopped[i].avail; base == 0 {
				c.Base = 0
				r.ring[i] = r.mem.NewRing(128).NewDriver(features0, 0)
				c = r.ring[i].Ring.Config(r.mem.Table())
				c.Index, c.CallFD, c.EventIdx, c.Indirect, c.InOrder = i, r.calls[i].FD, true, true, true
			}
			r.startWith(i, c)
		}
		r.turn()
	}
	stop()
	s.write([]byte("meanwhile"))
	r.post(3)
	r.settle()
	if len(r.reap()) != 0 {
		t.Fatal("a guest that is paused is sent something")
	}
	restart(1)
	r.settle()
	if _, b := g.take(r.reap()); string(b) != "meanwhile" {
		t.Fatalf("%q after the pause", b)
	}
	stop()
	restart(0)
	r.post(3)
	r.settle()
	if b, eof := s.read(); len(b) != 0 || !eof || r.d.conns.used != 0 {
		t.Errorf("the host hears %q, eof %v, when the guest starts anew", b, eof)
	}
	if l := r.reap(); len(l) != 0 {
		t.Errorf("the new guest hears %+v", l)
	}
}

// TestTransportReset is V14: a guest that outlived an earlier device is told,
// and as soon as it has a buffer for that.
func TestTransportReset(t *testing.T) {
	r := newRig(t)
	for i := range r.ring {
		r.d.Stop(i)
	}
	r.d.Disconnected()
	for i := range r.ring {
		ring := r.mem.NewRing(128)
		ring.Start(7)
		r.ring[i] = ring.NewDriver(features0, 7)
		c := ring.Config(r.mem.Table())
		c.Index, c.CallFD, c.EventIdx, c.Indirect, c.InOrder, c.Base = i, r.calls[i].FD, true, true, true, 7
		r.startWith(i, c)
	}
	r.settle()
	if !r.d.owesEvent {
		t.Fatal("not noticed")
	}
	r.ring[eventQueue].Post(2) // too small
	r.ring[eventQueue].Post(1, 3)
	r.settle()
	u := r.ring[eventQueue].Reap()
	if len(u) != 2 || u[0].Written != 0 || !bytes.Equal(u[1].Data, []byte{0, 0, 0, 0}) || r.d.owesEvent {
		t.Errorf("%+v", u)
	}
	r.ring[eventQueue].Post(4)
	r.settle()
	if u := r.ring[eventQueue].Reap(); len(u) != 0 {
		t.Errorf("told twice: %+v", u)
	}
}

// TestFeatures: which sockets there are by which bits (5.10.3), and what cannot
// be withheld.
func TestFeatures(t *testing.T) {
	for f, want := range map[uint64]types{
		0:                                       {stream: true},
		FStream:                                 {stream: true},
		FSeqPacket:                              {stream: true, seqpacket: true},
		FSeqPacket | FNoImpliedStream:           {seqpacket: true},
		FSeqPacket | FNoImpliedStream | FStream: {stream: true, seqpacket: true},
	} {
		if got := typesOf(f); got != want {
			t.Errorf("%#x: %+v, want %+v", f, got, want)
		}
	}
	r := newRig(t, config(func(c *Config) { c.Withhold = ^uint64(0) }))
	if r.d.Features() != vhostuser.FVersion1 {
		t.Errorf("%#x", r.d.Features())
	}
	var b [8]byte
	if !r.d.ReadConfig(b[:], 0) || b != [8]byte{guestCID} || r.d.ReadConfig(b[:], 1) || r.d.ReadConfig(b[:1], -1) || !r.d.ReadConfig(nil, 8) {
		t.Errorf("config space %v", b)
	}
}
