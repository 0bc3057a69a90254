package udp

import (
	"bytes"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/reasm"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// capsList are guests with ever more offloads.
var capsList = map[string]link.Caps{
	"plain": {MTU: 1500},
	"csum":  {MTU: 1500, Csum: true},
	"uso":   linktest.AllCaps(1500),
}

// TestReplies: what comes back reaches the guest as the remote sent it, whatever
// the offloads.
func TestReplies(t *testing.T) {
	for name, caps := range capsList {
		for _, v6 := range []bool{false, true} {
			r := newRig(t, Config{}, caps)
			r.ep.SegLen = 700
			dst, src := remote4, guest4
			if v6 {
				dst, src = remote6, guest6
			}
			r.send(dgram{dst: dst, sport: 40000, dport: 5000, data: pattern(1)})
			fd := r.from(dst.AddrPort(5000))
			sizes := []int{0, 1, 100, 1452, 77}
			var want [][]byte
			for _, n := range sizes {
				r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(n), TTL: 57, TOS: 0x10})
				want = append(want, pattern(n))
			}
			r.k.Run()
			got := r.read()
			same(t, payloads(got), want...)
			for _, d := range got {
				if d.src != dst || d.dst != src || d.sport != 5000 || d.dport != 40000 || d.ttl != 57 || d.tos != 0x10 {
					t.Fatalf("%s v6 %v: %+v", name, v6, d)
				}
			}
			if r.ep.Commits != 1 {
				t.Errorf("%s: %d commits for %d datagrams", name, r.ep.Commits, len(sizes))
			}
		}
	}
}

// TestBusySocket: one socket with more than a turn's budget.
func TestBusySocket(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	r.send(to(5000, 1), to(5001, 1))
	const n = 3*readBudget*rxMessages + 5
	for range n {
		r.k.Deliver(r.from(remote4.AddrPort(5000)), hostsocktest.Datagram{Data: pattern(10)})
	}
	r.k.Deliver(r.from(remote4.AddrPort(5001)), hostsocktest.Datagram{Data: pattern(11)})
	r.k.Pump()
	if r.ep.Count != readBudget*rxMessages+1 {
		t.Errorf("%d datagrams in one turn", r.ep.Count)
	}
	r.k.Run()
	if r.ep.Count != n+1 {
		t.Errorf("%d datagrams of %d", r.ep.Count, n+1)
	}
}

// TestRuns: a GRO run becomes frames, or one USO frame where the guest takes it.
func TestRuns(t *testing.T) {
	for name, caps := range capsList {
		for _, v6 := range []bool{false, true} {
			r := newRig(t, Config{}, caps)
			dst := remote4
			if v6 {
				dst = remote6
			}
			r.send(dgram{dst: dst, sport: 40000, dport: 5000, data: pattern(1)})
			fd := r.from(dst.AddrPort(5000))
			run := pattern(40*1400 + 300)
			r.k.Deliver(fd, hostsocktest.Datagram{Data: run, SegSize: 1400})
			r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(500), SegSize: 500}) // a run of one
			r.k.Run()
			got := r.read()
			if name == "uso" {
				same(t, payloads(got), run, pattern(500))
				if got[0].gso != 1400 || got[1].gso != 0 {
					t.Fatalf("GSO sizes %d, %d", got[0].gso, got[1].gso)
				}
				continue
			}
			var want [][]byte
			for off := 0; off < len(run); off += 1400 {
				want = append(want, run[off:min(off+1400, len(run))])
			}
			same(t, payloads(got), append(want, pattern(500))...)
		}
	}
}

// TestLongestRun: a run that is longer than a frame may be is cut in two.
func TestLongestRun(t *testing.T) {
	r := newRig(t, Config{}, linktest.AllCaps(1500))
	r.send(dgram{dst: remote6, sport: 40000, dport: 5000, data: pattern(1)})
	run := pattern(65500)
	r.k.Deliver(r.from(remote6.AddrPort(5000)), hostsocktest.Datagram{Data: run, SegSize: 1000})
	r.k.Run()
	got := r.read()
	if len(got) != 2 || len(got[0].data) != 65000 || !bytes.Equal(append(got[0].data, got[1].data...), run) {
		t.Fatalf("%d frames", len(got))
	}
}

// TestLongDatagrams go to the guest in fragments.
func TestLongDatagrams(t *testing.T) {
	for name, caps := range capsList {
		r := newRig(t, Config{}, caps)
		r.send(to(5000, 1))
		fd := r.from(remote4.AddrPort(5000))
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(1473)})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(9000), SegSize: 3000})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(100)})
		r.k.Run()
		if n, want := r.ep.Count, 2+3*3+1; n != want || r.stat("to_guest") != 5 || r.stat("fragmented") != 4 {
			t.Errorf("%s: %d frames, want %d; %d datagrams, %d fragmented", name, n, want, r.stat("to_guest"), r.stat("fragmented"))
		}
	}
}

// TestGuestFull: with little room for the guest nothing is lost, nothing comes
// out of order, nothing spins, and everybody gets on.
func TestGuestFull(t *testing.T) {
	for name, caps := range capsList {
		for _, room := range []int{1, 3, 7, 64} {
			r := newRig(t, Config{}, caps)
			const flows = 5
			var ds []dgram
			for f := range flows {
				ds = append(ds, to(uint16(1000+f), 1))
			}
			r.send(ds...)
			r.ep.Room = room
			want := map[uint16][]byte{}
			for n := range 40 {
				for f := range flows {
					port := uint16(1000 + f)
					d := hostsocktest.Datagram{Data: []byte(fmt.Sprintf("%02d %d", n, f))}
					if n%7 == 3 {
						d = hostsocktest.Datagram{Data: bytes.Repeat([]byte{byte(n), byte(f), 1}, 50), SegSize: 30}
					}
					want[port] = append(want[port], d.Data...)
					r.k.Deliver(r.from(remote4.AddrPort(port)), d)
				}
				if n == 20 {
					r.k.Run()
				}
			}
			r.k.Run()
			if r.ep.Count > room {
				t.Fatal("more frames than room")
			}
			got := map[uint16][]byte{}
			seen := map[uint16]bool{}
			for round := 0; ; round++ {
				for _, d := range r.read() {
					got[d.sport] = append(got[d.sport], d.data...)
					seen[d.sport] = true
				}
				if !r.ep.Post(room) {
					break
				}
				r.e.Writable()
				r.k.Run()
				if round > 2000 {
					t.Fatal("no end")
				}
			}
			for p, w := range want {
				if !bytes.Equal(got[p], w) {
					t.Errorf("%s, room %d, port %d: %d bytes of %d, or out of order", name, room, p, len(got[p]), len(w))
				}
			}
		}
	}
}

// TestFragmentsBeyondTheRing: a datagram of more fragments than the guest's ring
// has buffers arrives all the same, and so does what is behind it.
func TestFragmentsBeyondTheRing(t *testing.T) {
	for _, dst := range []wire.Addr{remote4, remote6} {
		r := newRig(t, Config{}, link.Caps{})
		r.send(dgram{dst: dst, sport: 40000, dport: 5000, data: pattern(1)})
		fd := r.from(dst.AddrPort(5000))
		r.ep.Room = 4
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(32768)})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(10)})
		r.k.Run()
		for i := 0; r.stat("to_guest") < 2; i++ {
			if i > 100 {
				t.Fatal("stuck")
			}
			if r.ep.Room > 0 {
				t.Fatalf("%d buffers left unused", r.ep.Room)
			}
			r.ep.Post(3)
			r.e.Writable()
		}
		frames := r.ep.Take()
		whole, next := reassemble(t, frames[:len(frames)-1])
		if !bytes.Equal(whole, pattern(32768)) {
			t.Fatalf("%v: %d bytes, or others", dst, len(whole))
		}
		if d := decode(t, frames[len(frames)-1]); next != len(frames)-1 || !bytes.Equal(d.data, pattern(10)) {
			t.Fatalf("%v: %+v", dst, d)
		}
	}
}

// reassemble has the reasm room, tested on its own, put fragments together.
func reassemble(t *testing.T, frames []linktest.Frame) (payload []byte, used int) {
	t.Helper()
	tab := reasm.New(eventloop.NewWheel(0))
	for i, f := range frames {
		var p wire.Packet
		in := &link.Frame{Len: len(f.Data), Segs: [][]byte{f.Data}}
		if v := wire.Parse(&p, in); v != wire.OK || !p.Frag {
			t.Fatalf("fragment %d: %v", i, v)
		}
		if out := tab.Input(&p, in); out != nil {
			if v := wire.Parse(&p, out); v != wire.OK {
				t.Fatalf("whole: %v", v)
			}
			return bytes.Join(wire.Payload(nil, out, p.PayloadOff, p.PayloadLen), nil), i + 1
		}
	}
	return nil, len(frames)
}

// TestLinkDown: datagrams wait for LinkUp.
func TestLinkDown(t *testing.T) {
	for name, caps := range capsList {
		r := newRig(t, Config{}, caps)
		r.send(to(5000, 1))
		fd := r.from(remote4.AddrPort(5000))
		r.port.Up = false
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(10)})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(3000)})
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(2000), SegSize: 1000})
		r.k.Run()
		for range 50 {
			r.e.Writable()
		}
		r.port.Up = true
		r.e.Writable()
		r.k.Run()
		if r.ep.Count < 5 || r.stat("drop_long") != 0 || r.stat("to_guest") != 4 {
			t.Errorf("%s: %d frames, %d datagrams", name, r.ep.Count, r.stat("to_guest"))
		}
	}
}

// TestFlowEndsWhileStalled: what was read for it is dropped, the others go on.
func TestFlowEndsWhileStalled(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	r.send(to(1000, 1), to(1001, 1))
	r.ep.Room = 0
	for range 3 {
		r.k.Deliver(r.from(remote4.AddrPort(1000)), hostsocktest.Datagram{Data: pattern(5)})
		r.k.Deliver(r.from(remote4.AddrPort(1001)), hostsocktest.Datagram{Data: pattern(6)})
	}
	r.k.Run()
	i, _ := r.flows.OldestIdle(wire.ProtoUDP)
	key := r.flows.At(i).Key
	r.e.evict()
	r.ep.Post(100)
	r.e.Writable()
	r.k.Run()
	got := r.read()
	for _, d := range got {
		if d.sport == key.RemotePort {
			t.Fatal("a datagram of a flow that has ended")
		}
	}
	if len(got) != 3 {
		t.Fatalf("%d datagrams of the other", len(got))
	}
}

// TestTimeouts: 30 s without an answer, 120 s with; traffic either way counts.
func TestTimeouts(t *testing.T) {
	const second = 1000 * ms
	r := newRig(t, Config{}, link.Caps{})
	r.send(to(1000, 1), to(1001, 1))
	fd := r.from(remote4.AddrPort(1001))
	r.advance(20 * second)
	r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(5)})
	r.k.Run()
	r.advance(9 * second)
	if r.flows.Len() != 2 {
		t.Fatal("ended early")
	}
	r.advance(2 * second)
	if r.flows.Len() != 1 || r.k.Open() != 1 || r.stat("expired") != 1 {
		t.Fatalf("after 31 s: %d flows, %d sockets", r.flows.Len(), r.k.Open())
	}
	r.advance(100 * second)
	r.send(to(1001, 1)) // 131 s: 111 s after the answer
	r.advance(119 * second)
	if r.flows.Len() != 1 {
		t.Fatal("an active flow ended early")
	}
	r.advance(2 * second)
	if r.flows.Len() != 0 || r.k.Open() != 0 || r.wheel.Len() != 0 {
		t.Fatalf("%d flows, %d sockets, %d timers at the end", r.flows.Len(), r.k.Open(), r.wheel.Len())
	}
}

// TestPressure: more flows than there may be push out the oldest, unanswered
// ones first.
func TestPressure(t *testing.T) {
	for _, limit := range []string{"flows", "descriptors"} {
		c := Config{}
		if limit == "flows" {
			c.MaxFlows = 10
		}
		r := newRig(t, c, link.Caps{})
		said := 0
		r.e.d.Log = func(string, ...any) { said++ }
		if limit == "descriptors" {
			r.k.MaxFDs = 10
		}
		r.send(to(999, 1))
		answered := r.from(remote4.AddrPort(999))
		r.k.Deliver(answered, hostsocktest.Datagram{Data: pattern(5)})
		r.k.Run()
		for p := range 100 {
			r.advance(10 * ms)
			r.send(to(uint16(1000+p), 1))
		}
		if r.flows.Len() != 10 || r.k.Open() != 10 || r.stat("evicted") != 91 || r.stat("drop_flows")+r.stat("drop_host") != 0 {
			t.Errorf("%s: %d flows, %d sockets, %d evicted", limit, r.flows.Len(), r.k.Open(), r.stat("evicted"))
		}
		k := flow.Key{Guest: guest4, Remote: remote4, GuestPort: 40000, RemotePort: 999, Proto: wire.ProtoUDP}
		if _, ok := r.flows.Lookup(&k); !ok {
			t.Errorf("%s: the answered flow went before the unanswered", limit)
		}
		if (limit == "descriptors") != (said == 1) {
			t.Errorf("%s: said it %d times", limit, said)
		}
		// All in one batch: what is pending for a flow that is pushed out is sent.
		var ds []dgram
		for p := range 50 {
			ds = append(ds, to(uint16(3000+p), 1))
		}
		before := r.stat("to_host")
		r.send(ds...)
		if n := r.stat("to_host") - before; n != 50 {
			t.Errorf("%s: %d of 50 sent", limit, n)
		}
	}
}

func serve(t *testing.T, r *rig, local string) hostsock.FD {
	t.Helper()
	a := netip.MustParseAddrPort(local)
	fd, e := r.k.Listen(hostsock.UDP, a, nil)
	if e == 0 {
		e = r.e.Serve(fd, a, wire.Addr{}, 6000)
	}
	if e != 0 {
		t.Fatal(e)
	}
	return fd
}

// TestServe: peers keep their addresses, answers leave from where the peer had
// sent to, and one peer's answers never go to another.
func TestServe(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	fd := serve(t, r, "[::]:5300")
	local := netip.MustParseAddrPort("192.0.2.99:5300")
	peers := []netip.AddrPort{
		netip.MustParseAddrPort("203.0.113.5:1000"), netip.MustParseAddrPort("203.0.113.6:1000"),
		netip.MustParseAddrPort("127.0.0.1:7000"), netip.MustParseAddrPort("127.0.0.2:7000"), // both are the gateway to the guest
		netip.MustParseAddrPort("[2001:db8::9]:1000"),
	}
	for i, p := range peers {
		r.k.Deliver(fd, hostsocktest.Datagram{From: p, To: local, Data: []byte{byte(i)}})
	}
	r.k.Run()
	got := r.read()
	if len(got) != len(peers) {
		t.Fatalf("%d datagrams", len(got))
	}
	var ds []dgram
	for i, d := range got {
		dst, src := guest4, wire.FromNetip(peers[i].Addr())
		if peers[i].Addr().Is6() {
			dst = guest6
		}
		if peers[i].Addr().IsLoopback() {
			src = gate4
		}
		if d.data[0] != byte(i) || d.dst != dst || d.dport != 6000 || d.src != src {
			t.Fatalf("%d: %+v", i, d)
		}
		ds = append(ds, dgram{dst: d.src, sport: 6000, dport: d.sport, data: []byte{byte(i), 1}},
			dgram{dst: d.src, sport: 6000, dport: d.sport, data: []byte{byte(i), 2}})
	}
	if got[2].sport == got[3].sport {
		t.Fatal("two peers have one address and port")
	}
	sends := r.k.Calls("Send")
	r.send(ds...)
	if n := r.k.Calls("Send") - sends; n != 1 || r.k.Open() != 1 {
		t.Errorf("answers took %d sends, %d sockets", n, r.k.Open())
	}
	sent := r.k.Sent(fd)
	if len(sent) != 2*len(peers) {
		t.Fatalf("%d answers", len(sent))
	}
	for _, s := range sent {
		if s.To != peers[s.Data[0]] || s.From.Addr() != local.Addr() || s.From.Port() != 5300 {
			t.Errorf("answer %v from %v to %v", s.Data, s.From, s.To)
		}
	}
	// An error about one of them finds its flow.
	r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.ECONNREFUSED, Type: 3, Code: 3, Offender: peers[1].Addr(), Dest: peers[1]}, []byte{1, 1})
	r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.ECONNREFUSED, Type: 3, Code: 3, Dest: netip.MustParseAddrPort("203.0.113.77:1")}, nil)
	r.k.Run()
	if typ, code, from := r.icmp4(t); typ != 3 || code != 3 || from != "203.0.113.6" {
		t.Errorf("type %d code %d from %s", typ, code, from)
	}
	// Both ways: 120 s.
	r.advance(119_000 * ms)
	if r.flows.Len() != len(peers) {
		t.Errorf("%d flows left", r.flows.Len())
	}
	r.advance(3000 * ms)
	if r.flows.Len() != 0 || r.k.Open() != 1 {
		t.Errorf("%d flows, %d sockets", r.flows.Len(), r.k.Open())
	}
}

// TestServeManyPeers: a flood of peers does not get beyond the limits.
func TestServeManyPeers(t *testing.T) {
	r := newRig(t, Config{MaxFlows: 20}, link.Caps{})
	fd := serve(t, r, "0.0.0.0:5300")
	r.ep.Discard = true
	for i := range 2000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), 1000)
		r.k.Deliver(fd, hostsocktest.Datagram{From: from, To: netip.MustParseAddrPort("192.0.2.1:5300"), Data: pattern(5)})
		r.k.Run()
	}
	if r.flows.Len() != 20 || r.k.Open() != 1 || r.wheel.Len() != 20 || r.ep.Count != 2000 {
		t.Errorf("%d flows, %d sockets, %d timers, %d frames", r.flows.Len(), r.k.Open(), r.wheel.Len(), r.ep.Count)
	}
}

func TestUnserveAndReset(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	a, b := serve(t, r, "192.0.2.1:5300"), serve(t, r, "192.0.2.1:5301")
	peer := netip.MustParseAddrPort("203.0.113.5:1000")
	for _, fd := range []hostsock.FD{a, b} {
		r.k.Deliver(fd, hostsocktest.Datagram{From: peer, Data: pattern(5)})
	}
	r.send(to(5000, 1))
	r.k.Run()
	if r.flows.Len() != 2 { // both listeners lead to one port of the guest: one flow, carried by the first
		t.Fatalf("%d flows", r.flows.Len())
	}
	r.e.Unserve(a)
	r.k.Close(a, false)
	if r.flows.Len() != 1 {
		t.Fatalf("%d flows after Unserve", r.flows.Len())
	}
	r.ep.Room = 0
	for range 2*rxMessages + 5 {
		r.k.Deliver(b, hostsocktest.Datagram{From: peer, Data: pattern(6)})
	}
	r.k.Deliver(r.from(remote4.AddrPort(5000)), hostsocktest.Datagram{Data: pattern(7)})
	r.k.Run()
	r.e.ResetAll()
	if r.flows.Len() != 0 || r.k.Open() != 1 || r.wheel.Len() != 0 {
		t.Fatalf("%d flows, %d sockets, %d timers after ResetAll", r.flows.Len(), r.k.Open(), r.wheel.Len())
	}
	r.ep.Reset()
	r.ep.Room, r.ep.Short = linktest.Unlimited, false
	r.k.Run()
	if r.ep.Count != rxMessages+5 { // what was already read went with the flows
		t.Fatalf("%d datagrams that had waited in the served socket", r.ep.Count)
	}
	r.k.Deliver(b, hostsocktest.Datagram{From: peer, Data: pattern(8)})
	r.k.Run()
	got := r.read()
	if len(got) == 0 || !bytes.Equal(got[len(got)-1].data, pattern(8)) {
		t.Fatalf("the served socket is silent after the reset: %d datagrams", len(got))
	}
}

// TestErrorsFlood: a full error queue is worked off in turns.
func TestErrorsFlood(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	r.send(to(5000, 1))
	fd := r.from(remote4.AddrPort(5000))
	for range 100 {
		r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: 3, Code: 1, Offender: remote4.ToNetip()}, pattern(1))
	}
	r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(9)})
	r.k.Run()
	if r.stat("errors_in") != 100 || r.ep.Count != 101 {
		t.Errorf("%d errors, %d frames", r.stat("errors_in"), r.ep.Count)
	}
}

// TestRecvFails: no errno of recvmmsg makes the engine spin or lose the flow.
func TestRecvFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ECONNREFUSED, syscall.ENOMEM, syscall.EBADF, syscall.EINTR} {
		r := newRig(t, Config{}, link.Caps{})
		r.send(to(5000, 1))
		fd := r.from(remote4.AddrPort(5000))
		r.k.FailNext("Recv", errno)
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(9)})
		r.k.Run()
		same(t, payloads(r.read()), pattern(9))
		for i := 1; i < 10; i++ {
			r.k.FailAt("Recv", i, errno)
		}
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(9)})
		r.k.Run()
		if r.flows.Len() != 1 {
			t.Errorf("%v ended the flow", errno)
		}
	}
}
