package icmp

import (
	"bytes"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

const ms = eventloop.Time(1_000_000)

var (
	banned4 = addr("169.254.169.254")
	dns4    = addr("10.0.2.3")
)

type world struct{}

func (world) Outbound(proto uint8, dst wire.Addr, port uint16) (netip.AddrPort, forward.Verdict) {
	switch dst {
	case banned4:
		return netip.AddrPort{}, forward.RefuseMetadata
	case dns4:
		return netip.AddrPort{}, forward.RefuseGateway
	}
	return dst.AddrPort(0), forward.Allow
}

type rig struct {
	t     testing.TB
	k     *hostsocktest.Kernel
	ep    *linktest.Endpoint
	wheel *eventloop.Wheel
	flows *flow.Table
	e     *Engine
	now   eventloop.Time
	said  []string
}

func newRig(t testing.TB, c Config) *rig {
	port, ep := newPort(t)
	r := &rig{t: t, k: hostsocktest.New(t), ep: ep, wheel: eventloop.NewWheel(0), flows: flow.NewTable(4096, [16]byte{1})}
	port.Timers = r.wheel
	r.e = New(c, Deps{
		Port: port, Host: r.k, Timers: r.wheel, Flows: r.flows, Policy: world{},
		Log: func(f string, _ ...any) { r.said = append(r.said, f) },
	})
	return r
}

func (r *rig) advance(d eventloop.Time) {
	for end := r.now + d; r.now < end; {
		r.now = min(r.now+100*ms, end)
		r.wheel.Advance(r.now)
	}
}

func (r *rig) stat(name string) (v uint64) {
	found := false
	r.e.Each(func(n string, x uint64) {
		if n == name {
			v, found = x, true
		}
	})
	if !found {
		r.t.Fatalf("no counter %q", name)
	}
	return v
}

// echo is a request of the guest.
func echo(t testing.TB, dst wire.Addr, id, seq uint16, ttl uint8, n int) *link.Frame {
	if dst.Is4() {
		return packet(t, guest4, dst, layers.IPProtocolICMPv4, ttl,
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: id, Seq: seq}, gopacket.Payload(pattern(n)))
	}
	return packet(t, guest6, dst, layers.IPProtocolICMPv6, ttl,
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}, &layers.ICMPv6Echo{Identifier: id, SeqNumber: seq}, gopacket.Payload(pattern(n)))
}

func (r *rig) ping(dst wire.Addr, id, seq uint16, ttl uint8, n int) {
	r.t.Helper()
	f := echo(r.t, dst, id, seq, ttl, n)
	r.e.Input(parse(r.t, f), f)
	for _, s := range f.Segs {
		clear(s)
	}
}

// pong is what the guest reads of an echo reply.
type pong struct {
	src     wire.Addr
	id, seq uint16
	ttl     uint8
	data    []byte
}

func (r *rig) pongs() (out []pong) {
	r.t.Helper()
	for _, f := range r.ep.Take() {
		g := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
		for _, l := range g.Layers() {
			if c, ok := l.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok {
				_ = c.SetNetworkLayerForChecksum(g.NetworkLayer())
			}
		}
		if errs, bad := g.VerifyChecksums(); errs != nil || len(bad) > 0 {
			r.t.Fatalf("checksums %v %v\n%v", errs, bad, g)
		}
		if ic, ok := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
			ip := g.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			if ic.TypeCode != layers.CreateICMPv4TypeCode(0, 0) {
				r.t.Fatalf("%v", g)
			}
			out = append(out, pong{wire.Addr4([4]byte(ip.SrcIP.To4())), ic.Id, ic.Seq, ip.TTL, ic.Payload})
			continue
		}
		ip := g.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		ic := g.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		ec, ok := g.Layer(layers.LayerTypeICMPv6Echo).(*layers.ICMPv6Echo)
		if !ok || ic.TypeCode != layers.CreateICMPv6TypeCode(129, 0) {
			r.t.Fatalf("%v", g)
		}
		out = append(out, pong{wire.Addr(ip.SrcIP), ec.Identifier, ec.SeqNumber, ip.HopLimit, ec.Payload})
	}
	return out
}

func (r *rig) one() pong {
	r.t.Helper()
	p := r.pongs()
	if len(p) != 1 {
		r.t.Fatalf("%d replies", len(p))
	}
	return p[0]
}

// answer has the far end echo what the socket has sent, seq and payload kept and
// the identifier that of the socket.
func (r *rig) answer(fd hostsock.FD, typ byte, ttl uint8) {
	r.t.Helper()
	for _, d := range r.k.Sent(fd) {
		b := append([]byte(nil), d.Data...)
		b[0] = typ
		r.k.Deliver(fd, hostsocktest.Datagram{Data: b, TTL: ttl})
	}
	r.k.Run()
}

// TestGatewayAnswers: pings to our own addresses need no socket.
func TestGatewayAnswers(t *testing.T) {
	for _, dst := range []wire.Addr{gate4, gate6, gateLL, dns4} {
		r := newRig(t, Config{})
		for _, n := range []int{0, 1, 56, 1400} {
			r.ping(dst, 77, 5, 1, n) // even with the last hop used up
			p := r.one()
			if p.src != dst || p.id != 77 || p.seq != 5 || !bytes.Equal(p.data, pattern(n)) {
				t.Errorf("%v, %d bytes: %+v", dst, n, p)
			}
		}
		if r.k.Open() != 0 || r.flows.Len() != 0 {
			t.Errorf("%v: %d sockets", dst, r.k.Open())
		}
	}
}

// TestEcho: identifier, sequence number, payload and TTL survive both ways.
func TestEcho(t *testing.T) {
	for _, dst := range []wire.Addr{remote4, remote6} {
		r := newRig(t, Config{})
		typ, req := byte(0), byte(8)
		if !dst.Is4() {
			typ, req = 129, 128
		}
		for seq := range uint16(3) {
			r.ping(dst, 0x4d4d, seq, 64, 56)
			fd := r.k.FDs()[0]
			r.answer(fd, typ, 57)
			p := r.one()
			if p.src != dst || p.id != 0x4d4d || p.seq != seq || p.ttl != 57 || !bytes.Equal(p.data, pattern(56)) {
				t.Fatalf("%v: %+v", dst, p)
			}
		}
		if r.k.Open() != 1 || r.k.Calls("Dial") != 1 || r.flows.Len() != 1 {
			t.Errorf("%v: %d sockets, %d dials", dst, r.k.Open(), r.k.Calls("Dial"))
		}
		// Another identifier is another session.
		r.ping(dst, 0x4d4e, 9, 64, 8)
		if r.k.Open() != 2 {
			t.Errorf("%v: %d sockets for two identifiers", dst, r.k.Open())
		}
		fd := r.k.FDs()[1]
		sent := r.k.Sent(fd)
		if len(sent) != 1 || sent[0].Data[0] != req || sent[0].Data[7] != 9 || sent[0].TTL != 63 {
			t.Errorf("%v: request %+v", dst, sent)
		}
		// Neither noise nor somebody else's type reaches the guest.
		r.k.Deliver(fd, hostsocktest.Datagram{Data: []byte{req, 0, 0, 0, 0, 0, 0, 1}})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: []byte{typ, 0, 0}})
		r.k.Run()
		if n := len(r.pongs()); n != 0 || r.stat("drop_reply") != 2 {
			t.Errorf("%v: %d bogus replies passed on", dst, n)
		}
	}
}

// TestLongReply: an echo beyond the MTU comes back in fragments.
func TestLongReply(t *testing.T) {
	r := newRig(t, Config{})
	r.ping(remote4, 1, 1, 64, 1400)
	fd := r.k.FDs()[0]
	d := append([]byte{0, 0, 0, 0, 0, 0, 0, 1}, pattern(5000)...)
	r.k.Deliver(fd, hostsocktest.Datagram{Data: d})
	r.k.Run()
	if n := len(r.ep.Take()); n != 4 {
		t.Errorf("%d fragments", n)
	}
	// More fragments than the guest has buffers at a time.
	r.ep.Room = 1
	r.k.Deliver(fd, hostsocktest.Datagram{Data: d})
	r.k.Run()
	for range 3 {
		r.ep.Post(1)
		r.e.Writable()
	}
	if n := len(r.ep.Take()); n != 4 || r.stat("replies") != 2 {
		t.Errorf("%d fragments one by one, %d replies", n, r.stat("replies"))
	}
}

func TestTraceroute(t *testing.T) {
	r := newRig(t, Config{})
	r.ping(remote4, 7, 1, 1, 8)
	from, typ, _, _, _ := icmpError(t, r.ep.Take()[0])
	if from != gate4 || typ != 11 || r.k.Open() != 0 {
		t.Fatalf("first hop: type %d from %v, %d sockets", typ, from, r.k.Open())
	}
	for ttl := uint8(2); ttl < 5; ttl++ {
		r.ping(remote4, 7, uint16(ttl), ttl, 8)
		fd := r.k.FDs()[0]
		sent := r.k.Sent(fd)
		if len(sent) != 1 || sent[0].TTL != ttl-1 {
			t.Fatalf("TTL %d: %+v", ttl, sent)
		}
		r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: 11, Offender: router4}, sent[0].Data)
		r.k.Run()
		from, typ, _, _, quote := icmpError(t, r.ep.Take()[0])
		g := gopacket.NewPacket(quote, layers.LayerTypeIPv4, gopacket.Default)
		ic := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if from != wire.FromNetip(router4) || typ != 11 || ic.Id != 7 || ic.Seq != uint16(ttl) {
			t.Errorf("TTL %d: type %d from %v about %+v", ttl, typ, from, ic)
		}
	}
}

// TestForbidden: a host without ping sockets says so once, and the guest hears
// it each time.
func TestForbidden(t *testing.T) {
	r := newRig(t, Config{})
	for i := range 3 {
		r.k.FailNext("Dial", syscall.EACCES)
		r.ping(remote4, uint16(i), 1, 64, 8)
		if _, typ, code, _, _ := icmpError(t, r.ep.Take()[0]); typ != 3 || code != 13 {
			t.Errorf("type %d code %d", typ, code)
		}
	}
	if len(r.said) != 1 || !strings.Contains(r.said[0], "net.ipv4.ping_group_range") || r.stat("forbidden") != 3 || r.flows.Len() != 0 {
		t.Errorf("said %q, %d forbidden, %d flows", r.said, r.stat("forbidden"), r.flows.Len())
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, Config{})
	r.ping(banned4, 1, 1, 64, 8)
	if _, typ, code, _, _ := icmpError(t, r.ep.Take()[0]); typ != 3 || code != 13 || r.stat("drop_policy") != 1 {
		t.Errorf("policy: type %d code %d", typ, code)
	}
	for _, typ := range []uint8{0, 3, 5, 11, 13, 17} { // of the guest: reply, unreachable, redirect, ...
		f := packet(t, guest4, remote4, layers.IPProtocolICMPv4, 64, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(typ, 0)}, gopacket.Payload(pattern(40)))
		r.e.Input(parse(t, f), f)
	}
	if r.stat("drop_type") != 6 || r.ep.Count != 1 || r.k.Open() != 0 {
		t.Errorf("%d dropped, %d frames, %d sockets", r.stat("drop_type"), r.ep.Count, r.k.Open())
	}
	for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH} {
		r.ep.Reset()
		r.k.FailNext("Dial", errno)
		r.ping(remote4, 1, 1, 64, 8)
		if _, typ, _, _, _ := icmpError(t, r.ep.Take()[0]); typ != 3 {
			t.Errorf("%v: type %d", errno, typ)
		}
	}
}

func TestSendFails(t *testing.T) {
	r := newRig(t, Config{})
	r.ping(remote4, 1, 1, 64, 8)
	fd := r.k.FDs()[0]
	r.k.Sent(fd)
	r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: 3, Code: 1, Offender: router4}, []byte{8, 0, 0, 0, 0, 0, 0, 1})
	r.ping(remote4, 1, 2, 64, 8)
	if sent := r.k.Sent(fd); len(sent) != 1 || sent[0].Data[7] != 2 || r.stat("errors_out") != 1 {
		t.Errorf("a pending error took the request: %+v", sent)
	}
	r.ep.Reset()
	r.k.FailAt("Send", 1, syscall.ENETUNREACH)
	r.k.FailAt("Send", 2, syscall.ENETUNREACH)
	r.ping(remote4, 1, 3, 64, 8)
	if _, typ, code, _, _ := icmpError(t, r.ep.Take()[0]); typ != 3 || code != 0 {
		t.Errorf("type %d code %d", typ, code)
	}
	r.k.FailNext("Send", syscall.EAGAIN)
	r.ping(remote4, 1, 4, 64, 8)
	if r.ep.Take() != nil || r.flows.Len() != 1 {
		t.Error("a full buffer was told to the guest")
	}
}

// TestGuestFull: replies wait in the sockets while the guest has no room.
func TestGuestFull(t *testing.T) {
	r := newRig(t, Config{})
	for id := range uint16(4) {
		r.ping(remote4, id, 0, 64, 8)
	}
	r.ep.Room = 0
	for seq := range byte(20) {
		for _, fd := range r.k.FDs() {
			r.k.Deliver(fd, hostsocktest.Datagram{Data: []byte{0, 0, 0, 0, 0, 0, 0, seq}})
		}
		r.k.Run()
	}
	next := map[uint16]uint16{}
	total := 0
	for round := 0; total < 80; round++ {
		if round > 200 {
			t.Fatalf("%d of 80 replies", total)
		}
		if r.ep.Post(1) {
			r.e.Writable()
		}
		r.k.Run()
		for _, p := range r.pongs() {
			if p.seq != next[p.id] {
				t.Fatalf("session %d: reply %d, want %d", p.id, p.seq, next[p.id])
			}
			next[p.id]++
			total++
		}
	}
	// A session that ends while its reply is held lets the others go on.
	r.ep.Room = 0
	for _, fd := range r.k.FDs() {
		r.k.Deliver(fd, hostsocktest.Datagram{Data: make([]byte, 8)})
	}
	r.k.Run()
	r.e.end(r.e.held.Index)
	r.ep.Post(10)
	r.e.Writable()
	r.k.Run()
	if n := len(r.pongs()); n != 3 {
		t.Errorf("%d replies of the other three", n)
	}
}

// TestLostMemory: a fault costs the session that was served; those that wait
// behind it are read.
func TestLostMemory(t *testing.T) {
	r := newRig(t, Config{})
	for id := range uint16(3) {
		r.ping(remote4, id, 0, 64, 8)
	}
	r.ep.Room = 0
	for _, fd := range r.k.FDs() {
		r.k.Deliver(fd, hostsocktest.Datagram{Data: make([]byte, 8)})
	}
	r.k.Run()
	r.ep.Room, r.ep.Short = linktest.Unlimited, false
	r.e.Break(&eventloop.Fault{Cookie: r.e.held.Index})
	r.k.Run()
	if n := len(r.pongs()); n != 2 || r.flows.Len() != 2 || r.k.Open() != 2 {
		t.Errorf("%d replies, %d flows, %d sockets", n, r.flows.Len(), r.k.Open())
	}
}

func TestLimitsAndTimeout(t *testing.T) {
	for _, limit := range []string{"sessions", "descriptors", "table"} {
		c := Config{MaxFlows: 1000}
		if limit == "sessions" {
			c.MaxFlows = 10
		}
		r := newRig(t, c)
		switch limit {
		case "descriptors":
			r.k.MaxFDs = 10
		case "table":
			r.flows.SetLimit(wire.ProtoICMP, 10)
		}
		for id := range uint16(100) {
			r.ping(remote4, id, 0, 64, 8)
		}
		if r.flows.Len() != 10 || r.k.Open() != 10 || r.stat("evicted") != 90 {
			t.Errorf("%s: %d flows, %d sockets, %d evicted", limit, r.flows.Len(), r.k.Open(), r.stat("evicted"))
		}
		r.advance(50_000 * ms)
		r.ping(remote4, 99, 1, 64, 8)
		r.advance(11_000 * ms)
		if r.flows.Len() != 1 || r.k.Open() != 1 {
			t.Errorf("%s: %d flows after 61 s", limit, r.flows.Len())
		}
		r.advance(50_000 * ms)
		if r.flows.Len() != 0 || r.k.Open() != 0 || r.wheel.Len() != 0 {
			t.Errorf("%s: %d flows, %d timers at the end", limit, r.flows.Len(), r.wheel.Len())
		}
	}
	r := newRig(t, Config{})
	for id := range uint16(10) {
		r.ping(remote4, id, 0, 64, 8)
	}
	r.e.ResetAll()
	if r.flows.Len() != 0 || r.k.Open() != 0 || r.wheel.Len() != 0 {
		t.Errorf("after ResetAll: %d flows, %d sockets", r.flows.Len(), r.k.Open())
	}
}

// FuzzEcho plays a script and checks that nothing leaks, spins or panics.
func FuzzEcho(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{0, 0, 0x16, 1, 1, 3, 5, 5, 2, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 300 {
			return
		}
		r := newRig(t, Config{MaxFlows: 5})
		for i, op := range script {
			arg := int(op >> 4)
			switch op & 7 {
			case 0:
				r.ping([]wire.Addr{remote4, remote6, gate4, banned4}[arg%4], uint16(arg), uint16(i), uint8(arg), i*10)
			case 1:
				for _, fd := range r.k.FDs() {
					r.k.Deliver(fd, hostsocktest.Datagram{Data: append([]byte{byte(129 * (arg & 1))}, pattern(arg*200)...)})
				}
			case 2:
				r.k.Run()
			case 3:
				for _, fd := range r.k.FDs() {
					r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: uint8(arg), V6: arg&1 == 0, Offender: router4}, pattern(arg))
				}
			case 4:
				r.ep.Room = arg
			case 5:
				if r.ep.Room == linktest.Unlimited {
					r.ep.Room = 0
				}
				if r.ep.Post(arg + 1) {
					r.e.Writable()
				}
			case 6:
				r.k.FailNext([]string{"Dial", "Send", "Recv", "Errors", "SetTTL"}[arg%5], []syscall.Errno{syscall.EMFILE, syscall.EACCES, syscall.EPERM}[arg%3])
			case 7:
				r.advance([]eventloop.Time{10 * ms, 61_000 * ms}[arg%2])
			}
			if r.flows.Len() > 5 || r.flows.Len() != r.k.Open() || r.flows.Len() != r.e.slab.Len() || r.wheel.Len() != r.flows.Len() {
				t.Fatalf("%d flows, %d sockets, %d timers", r.flows.Len(), r.k.Open(), r.wheel.Len())
			}
		}
		r.ep.Room, r.ep.Short = linktest.Unlimited, false
		r.e.Writable()
		r.k.Run()
		if r.e.held != (flow.Handle{}) || len(r.e.waiting) != 0 {
			t.Fatal("held back with room for everything")
		}
		r.e.ResetAll()
	})
}
