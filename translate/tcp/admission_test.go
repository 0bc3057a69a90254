package tcp

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
)

// T1: a flood of SYNs meets limits; what is established is untouched.
func TestT1(t *testing.T) {
	t.Run("half-open", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.MaxHalfOpen = 10 }))
		c := r.dial(side4(50000))
		for i := range 30 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(1000 + i), 80}, seg{flags: "S", mss: 1460}))
		}
		if s := r.e.Stats(); s.HalfOpen != 10 || s.Drops[DropSynLimit] != 20 {
			t.Errorf("%d half open, %d refused", s.HalfOpen, s.Drops[DropSynLimit])
		}
		// After its grace time the oldest makes room, one for one.
		r.advance(4 * time.Second)
		for i := range 5 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(2000 + i), 80}, seg{flags: "S", mss: 1460}))
		}
		if s := r.e.Stats(); s.HalfOpen != 10 || s.Evicted != 5 || s.Drops[DropSynLimit] != 20 {
			t.Errorf("%d half open, %d evicted, %d refused", s.HalfOpen, s.Evicted, s.Drops[DropSynLimit])
		}
		r.take(c.side)
		c.send("PA", []byte("x"))
		c.wantAck()
		r.advance(time.Minute + time.Second) // T2: black holes are not held for ever
		if s := r.e.Stats(); s.HalfOpen != 0 || s.Flows != 1 {
			t.Errorf("%d half open, %d flows", s.HalfOpen, s.Flows)
		}
		c.quiet() // and in silence: the guest's own timer decides
		c.p.ReadAll()
		c.bothClose()
	})
	t.Run("rate", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.FlowRate = 100 }))
		burst := func(from, n int) {
			for i := range n {
				r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(from + i), 80}, seg{flags: "S"}))
			}
		}
		burst(1000, 150)
		r.drops(map[Drop]uint64{DropSynRate: 50})
		r.advance(100 * time.Millisecond)
		burst(2000, 50)
		r.drops(map[Drop]uint64{DropSynRate: 90})
		r.e.ResetAll()
		r.clean()
	})
	t.Run("table", func(t *testing.T) {
		r := newRig(t, few(4))
		for i := range 6 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(1000 + i), 80}, seg{flags: "S"}))
		}
		r.drops(map[Drop]uint64{DropFlowLimit: 2})
		r.advance(4 * time.Second)
		r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), 1010, 80}, seg{flags: "S"}))
		r.drops(map[Drop]uint64{DropFlowLimit: 2})
		if s := r.e.Stats(); s.Evicted != 1 || s.Flows != 4 {
			t.Errorf("%d evicted, %d flows", s.Evicted, s.Flows)
		}
		r.e.ResetAll()
		r.clean()
	})
}

// A lingering connection goes before a half-open one, and an established one
// stays.
func TestEviction(t *testing.T) {
	r := newRig(t, few(2))
	a := r.dial(side4(1))
	b := r.dial(side4(2))
	b.p.CloseWrite()
	b.recv()
	b.send("FA", nil)
	b.wantAck()
	b.wantState(TimeWait)
	c := r.dial(side4(3))
	if a.state() != Established || b.state() != Closed || c.state() != Established {
		t.Errorf("states %v %v %v", a.state(), b.state(), c.state())
	}
	r.input(r.frame(side4(4), seg{flags: "S"}))
	r.drops(map[Drop]uint64{DropFlowLimit: 1})
	r.e.ResetAll()
	r.clean()
}

// T3: inbound connections stop at the limits, with a RST to the client.
func TestT3(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.MaxHalfOpen = 1 }))
	c := r.knock(side4(8080))
	l, _ := r.k.Listen(hostsock.TCP, netip.MustParseAddrPort("0.0.0.0:9090"), nil)
	p := r.k.Connect(netip.MustParseAddrPort("198.51.100.8:5000"), netip.MustParseAddrPort("0.0.0.0:9090"))
	fd, peer, local, _ := r.k.Accept(l)
	r.e.Inbound(fd, peer, local, guest4, 8080, wire.FromNetip(peer.Addr()))
	if !p.SawRST() || r.e.Stats().InboundRefused != 1 {
		t.Error("second inbound connection not refused")
	}
	r.k.Close(l, false)
	c.wantState(SynSent)
	r.e.ResetAll()
	r.clean()
}

// Two clients whose ends look the same to the guest get different ports.
func TestInboundClash(t *testing.T) {
	r := newRig(t)
	d := side4(8080)
	d.remotePort = 5000
	c := r.accept(d)
	d.remotePort++
	l, _ := r.k.Listen(hostsock.TCP, netip.MustParseAddrPort("0.0.0.0:9090"), nil)
	r.k.Connect(c.remote.AddrPort(c.remotePort), netip.MustParseAddrPort("0.0.0.0:9090"))
	fd, peer, local, _ := r.k.Accept(l)
	r.e.Inbound(fd, peer, local, guest4, 8080, c.remote)
	if out := r.take(d); len(out) != 1 || out[0].flags != "S" {
		t.Errorf("second connection: %v", out)
	}
	r.k.Close(l, false)
	r.e.ResetAll()
	r.clean()
}

func TestInboundRefused(t *testing.T) {
	for name, f := range map[string]func(r *rig, k *flow.Key){
		"no guest address": func(_ *rig, k *flow.Key) { k.Guest = wire.Addr{} },
		"multicast source": func(_ *rig, k *flow.Key) { k.Remote = wire.Addr4([4]byte{224, 0, 0, 1}) },
		"port 0":           func(_ *rig, k *flow.Key) { k.GuestPort = 0 },
		"mixed families":   func(_ *rig, k *flow.Key) { k.Guest = guest6 },
		"link down":        func(r *rig, _ *flow.Key) { r.port.Up = false },
		"no watch":         func(r *rig, _ *flow.Key) { r.k.FailNext("Watch", syscall.ENOSPC) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l, _ := r.k.Listen(hostsock.TCP, netip.MustParseAddrPort("0.0.0.0:9090"), nil)
			p := r.k.Connect(netip.MustParseAddrPort("198.51.100.8:5000"), netip.MustParseAddrPort("0.0.0.0:9090"))
			fd, peer, local, _ := r.k.Accept(l)
			r.k.Close(l, false)
			k := flow.Key{Guest: guest4, Remote: wire.FromNetip(peer.Addr()), GuestPort: 8080}
			f(r, &k)
			r.e.Inbound(fd, peer, local, k.Guest, k.GuestPort, k.Remote)
			if !p.SawRST() {
				t.Error("client not reset")
			}
			r.clean()
		})
	}
}

// T4: a guest that never answers our SYN.
func TestT4(t *testing.T) {
	r := newRig(t)
	c := r.knock(side4(8080))
	var at []time.Duration
	start := r.time.Now()
	for !c.p.SawRST() && r.time.Next(time.Hour) {
		for _, s := range r.take(c.side) {
			if s.flags == "S" && s.seq == c.ours && s.mss == 1460 {
				at = append(at, time.Duration(r.time.Now()-start).Round(time.Second))
			}
		}
	}
	want := "[1s 3s 7s 15s 31s 1m3s]"
	if got := fmt.Sprint(at); got != want {
		t.Errorf("SYN repeated at %v, want %v", got, want)
	}
	if !c.p.SawRST() {
		t.Error("the client was not told")
	}
	r.clean()
}

// The window of a SYN is not scaled (RFC 7323 2.2).
func TestSynWindow(t *testing.T) {
	r := newRig(t)
	c := r.knock(side4(8080))
	c.p.Send(pattern(5000, 1))
	c.input(r.frame(c.side, seg{flags: "SA", seq: guestISN, ack: c.ack, wnd: 1000, mss: 1460, wscale: 7}))
	r.k.Run()
	n := 0
	for _, s := range c.take(c.side) {
		n += len(s.data)
	}
	if n != 1000 {
		t.Errorf("%d bytes into a window of 1,000", n)
	}
	r.e.ResetAll()
	r.clean()
}

// T16: simultaneous open ends both halves.
func TestT16(t *testing.T) {
	r := newRig(t)
	c := r.knock(side4(8080))
	c.raw(seg{flags: "S", seq: 5000, mss: 1460, wscale: 7})
	c.want(seg{flags: "RA", seq: c.ack, ack: 5001})
	if !c.p.SawRST() {
		t.Error("client not reset")
	}
	r.drops(map[Drop]uint64{DropHandshake: 1})
	r.clean()
}

// T17: combinations of control bits that mean nothing, in every state.
func TestT17(t *testing.T) {
	bad := []string{"", "F", "P", "U", "SF", "SR", "FR", "SFA", "SRA", "FRA", "SFRPAU", "FPU", "PU"}
	t.Run("no flow", func(t *testing.T) {
		r := newRig(t)
		for _, f := range bad {
			r.input(r.frame(side4(1), seg{flags: f, seq: 1, ack: 1}))
		}
		r.drops(map[Drop]uint64{DropFlags: uint64(len(bad))})
		if len(r.ep.Sent) != 0 {
			t.Errorf("answered: %v", r.take(side4(1)))
		}
		r.clean()
	})
	t.Run("established", func(t *testing.T) {
		r := newRig(t)
		c := r.dial(side4(1))
		for _, f := range bad {
			c.raw(seg{flags: f, seq: c.nxt, ack: c.ack, wnd: c.wnd, data: []byte("x")})
		}
		c.quiet()
		r.drops(map[Drop]uint64{DropFlags: uint64(len(bad))})
		if got := c.p.ReadAll(); len(got) != 0 {
			t.Errorf("delivered %q", got)
		}
		c.bothClose()
	})
	t.Run("connecting", func(t *testing.T) {
		r := newRig(t)
		r.input(r.frame(side4(1), seg{flags: "S", seq: 1}))
		for _, f := range bad {
			r.input(r.frame(side4(1), seg{flags: f, seq: 2, ack: 1}))
		}
		r.drops(map[Drop]uint64{DropFlags: uint64(len(bad))})
		r.e.ResetAll()
		r.clean()
	})
}

// T18: data on a SYN is not taken; the guest sends it again.
func TestT18(t *testing.T) {
	r := newRig(t)
	d := side4(1)
	srv := r.k.Serve(target4)
	r.input(r.frame(d, seg{flags: "S", seq: guestISN, data: []byte("early"), mss: 1460}))
	r.k.Run()
	out := r.take(d)
	if len(out) != 1 || out[0].flags != "SA" || out[0].ack != guestISN+1 {
		t.Fatalf("%v", out)
	}
	p := srv.Accept()
	r.input(r.frame(d, seg{flags: "PA", seq: guestISN + 1, ack: out[0].seq + 1, wnd: 1000, data: []byte("early")}))
	if got := p.ReadAll(); string(got) != "early" {
		t.Errorf("target read %q", got)
	}
	if out := r.take(d); len(out) != 1 || out[0].ack != guestISN+6 {
		t.Errorf("%v", out)
	}
	r.e.ResetAll()
	r.clean()
}

// T20: the guest's MSS is clamped.
func TestT20(t *testing.T) {
	for _, tt := range []struct{ mss, mtu, want int }{
		{0, 1500, 536}, {1, 1500, 256}, {256, 1500, 256}, {1000, 1500, 1000}, {65535, 1500, 1460}, {65535, 9000, 8960}, {1460, 1280, 1240},
	} {
		t.Run(fmt.Sprint(tt.mss, "/", tt.mtu), func(t *testing.T) {
			r := newRig(t, noCaps, mtu(tt.mtu))
			c := r.dialWith(side4(1), seg{mss: tt.mss, wscale: 7, wnd: 65535})
			if c.first.mss != tt.mtu-40 {
				t.Errorf("we announce MSS %d, want %d", c.first.mss, tt.mtu-40)
			}
			c.p.Send(pattern(20000, 1))
			r.k.Run()
			biggest := 0
			for _, s := range r.take(c.side) {
				biggest = max(biggest, len(s.data))
			}
			if biggest != tt.want {
				t.Errorf("segments of %d bytes, want %d", biggest, tt.want)
			}
			r.e.ResetAll()
			r.clean()
		})
	}
}

// T8: window scale is clamped to 14, and off unless both SYNs have it. T21: SACK
// is offered only when it was, timestamps never.
func TestT8(t *testing.T) {
	for _, tt := range []struct {
		wscale int
		wnd    uint16
		want   uint32 // window that the engine takes from the guest's ACK
		ours   int
	}{
		{-1, 1000, 1000, -1}, {0, 1000, 1000, 5}, {3, 1000, 8000, 5}, {14, 1000, 1000 << 14, 5}, {15, 1000, 1000 << 14, 5}, {255, 1000, 1000 << 14, 5},
	} {
		t.Run(fmt.Sprint(tt.wscale), func(t *testing.T) {
			r := newRig(t)
			c := r.dialWith(side4(1), seg{mss: 1460, wscale: tt.wscale, wnd: tt.wnd})
			if c.first.wscale != tt.ours || c.first.sackOK {
				t.Errorf("SYN-ACK %+v", c.first)
			}
			k := flow.Key{Guest: c.guest, Remote: c.remote, GuestPort: 1, RemotePort: 80, Proto: 6}
			i, _ := r.flows.Lookup(&k)
			if got := r.e.conns.At(r.flows.At(i).Slot).wnd; got != tt.want {
				t.Errorf("window %d, want %d", got, tt.want)
			}
			r.e.ResetAll()
			r.clean()
		})
	}
}

// T26: ports and addresses that no connection can have.
func TestT26(t *testing.T) {
	a := wire.Addr4
	for i, d := range []side{
		{guest4, a([4]byte{198, 51, 100, 7}), 0, 80},
		{guest4, a([4]byte{198, 51, 100, 7}), 1000, 0},
		{guest4, a([4]byte{255, 255, 255, 255}), 1000, 80},
		{guest4, a([4]byte{224, 0, 0, 1}), 1000, 80},
		{guest4, a([4]byte{0, 0, 0, 0}), 1000, 80},
		{a([4]byte{127, 0, 0, 1}), a([4]byte{198, 51, 100, 7}), 1000, 80},
		{a([4]byte{224, 0, 0, 1}), a([4]byte{198, 51, 100, 7}), 1000, 80},
		{guest6, wire.FromNetip(netip.MustParseAddr("ff02::1")), 1000, 80},
		{guest6, wire.FromNetip(netip.MustParseAddr("::1")), 1000, 80},
	} {
		r := newRig(t)
		r.input(r.frame(d, seg{flags: "S", seq: 1}))
		r.input(r.frame(d, seg{flags: "A", seq: 1}))
		r.drops(map[Drop]uint64{DropAddr: 2})
		if len(r.ep.Sent) != 0 || r.k.Open() != 0 {
			t.Errorf("case %d: answered or dialled", i)
		}
		r.clean()
	}
}

// T27: where the policy says no, the guest gets a RST.
func TestT27(t *testing.T) {
	r := newRig(t)
	r.refuse = true
	d := side4(1)
	r.input(r.frame(d, seg{flags: "S", seq: 77}))
	out := r.take(d)
	if len(out) != 1 || out[0].flags != "RA" || out[0].seq != 0 || out[0].ack != 78 {
		t.Errorf("%v", out)
	}
	r.drops(map[Drop]uint64{DropRefused: 1})
	r.clean()
}

// T28: what the guest learns of a connect that failed, at once or later.
func TestT28(t *testing.T) {
	const none = Why(99)
	for _, tt := range []struct {
		errno syscall.Errno
		why   Why
		rst   bool
	}{
		{syscall.ECONNREFUSED, none, true},
		{syscall.ECONNRESET, none, true},
		{syscall.EHOSTUNREACH, HostUnreach, false},
		{syscall.EHOSTDOWN, HostUnreach, false},
		{syscall.ENETUNREACH, NetUnreach, false},
		{syscall.EACCES, AdminProhibited, false},
		{syscall.EPERM, AdminProhibited, false},
		{syscall.ETIMEDOUT, none, false},
		{syscall.EADDRNOTAVAIL, none, false},
		{syscall.EMFILE, none, false},
		{syscall.ENFILE, none, false},
		{syscall.ENOBUFS, none, false},
	} {
		for _, late := range []bool{false, true} {
			for _, d := range []side{side4(1), side6(1)} {
				t.Run(fmt.Sprint(tt.errno, late, d.guest), func(t *testing.T) {
					r := newRig(t)
					if late {
						r.k.Rule(d.remote.AddrPort(80), tt.errno)
					} else {
						r.k.FailNext("Dial", tt.errno)
					}
					r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460}))
					r.k.Run()
					out := r.take(d)
					if tt.rst {
						if len(out) != 1 || out[0].flags != "RA" || out[0].seq != 0 || out[0].ack != 78 {
							t.Errorf("%v", out)
						}
					} else if len(out) != 0 {
						t.Errorf("%v", out)
					}
					switch {
					case tt.why == none && len(r.icmps) != 0:
						t.Errorf("ICMP %v", r.icmps[0].why)
					case tt.why != none && (len(r.icmps) != 1 || r.icmps[0].why != tt.why):
						t.Errorf("ICMP %v, want %v", r.icmps, tt.why)
					case tt.why != none:
						checkQuote(t, d, &r.icmps[0].quot)
					}
					r.clean()
				})
			}
		}
	}
}

// checkQuote looks at the SYN that an ICMP error will quote.
func checkQuote(t *testing.T, d side, q *wire.Packet) {
	t.Helper()
	off := 14 + 20
	if q.V6 {
		off = 14 + 40
	}
	if q.Src != d.guest || q.Dst != d.remote || q.L4Off != off || q.HeadLen != off+20 || q.V6 == d.guest.Is4() {
		t.Errorf("quote %+v", q)
	}
	h := q.Head[off:]
	if h[0] != 0 || h[1] != 1 || h[2] != 0 || h[3] != 80 || h[7] != 77 || h[13] != 2 {
		t.Errorf("quoted TCP header % x", h[:20])
	}
}

// A connect in flight: repeated SYNs are ignored, a new one replaces the first,
// a RST ends it, and the answer comes when the target does.
func TestConnecting(t *testing.T) {
	d := side4(1)
	start := func(t *testing.T) (*rig, hostsock.FD) {
		r := newRig(t)
		r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460}))
		r.k.Run()
		if len(r.take(d)) != 0 || r.k.Open() != 1 {
			t.Fatal("SYN answered before the target did")
		}
		return r, r.k.FDs()[0]
	}
	t.Run("repeat", func(t *testing.T) {
		r, fd := start(t)
		r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460}))
		r.drops(map[Drop]uint64{DropSynRepeat: 1})
		r.k.Peer(fd).Connect(0)
		r.k.Run()
		if out := r.take(d); len(out) != 1 || out[0].flags != "SA" || out[0].ack != 78 {
			t.Errorf("%v", out)
		}
		if r.k.Calls("Dial") != 1 {
			t.Error("dialled twice")
		}
		r.e.ResetAll()
		r.clean()
	})
	t.Run("new", func(t *testing.T) {
		r, fd := start(t)
		r.input(r.frame(d, seg{flags: "S", seq: 5000, mss: 1460}))
		r.k.Peer(fd).Connect(0)
		r.k.Run()
		if out := r.take(d); len(out) != 1 || out[0].ack != 5001 {
			t.Errorf("%v", out)
		}
		r.e.ResetAll()
		r.clean()
	})
	t.Run("reset", func(t *testing.T) {
		r, _ := start(t)
		r.input(r.frame(d, seg{flags: "R", seq: 99}))
		if r.k.Open() != 1 {
			t.Error("a RST from outside ended it")
		}
		r.input(r.frame(d, seg{flags: "R", seq: 78}))
		r.drops(map[Drop]uint64{DropReset: 1})
		r.clean()
	})
	t.Run("ack", func(t *testing.T) {
		r, _ := start(t)
		r.input(r.frame(d, seg{flags: "A", seq: 78, ack: 1234}))
		if out := r.take(d); len(out) != 1 || out[0].flags != "R" || out[0].seq != 1234 {
			t.Errorf("%v", out)
		}
		r.e.ResetAll()
		r.clean()
	})
	t.Run("watch fails", func(t *testing.T) {
		r := newRig(t)
		r.k.FailNext("Watch", syscall.ENOSPC)
		r.input(r.frame(d, seg{flags: "S", seq: 77}))
		r.clean()
	})
}

// The SYN-ACK is lost: it is repeated by timer and when the SYN comes again.
func TestSynAckLost(t *testing.T) {
	r := newRig(t)
	d := side4(1)
	r.k.Serve(target4)
	r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460, wscale: 7}))
	r.k.Run()
	first := r.take(d)[0]
	r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460, wscale: 7}))
	again := r.take(d)
	if len(again) != 1 || again[0].seq != first.seq || again[0].flags != "SA" {
		t.Errorf("%v", again)
	}
	r.advance(1100 * time.Millisecond)
	if again = r.take(d); len(again) != 1 || again[0].seq != first.seq || again[0].flags != "SA" {
		t.Errorf("%v", again)
	}
	// Never answered: both sides are reset.
	r.advance(5 * time.Minute)
	out := r.take(d)
	if last := out[len(out)-1]; last.flags != "RA" || last.seq != first.seq+1 || last.ack != 78 {
		t.Errorf("%v", last)
	}
	r.clean()
}

// While the SYN-ACK is on its way.
func TestSynReceived(t *testing.T) {
	d := side4(1)
	for _, tt := range []struct {
		name string
		in   seg
		out  []seg
		left State
	}{
		{"bad ack", seg{flags: "A", seq: 78, ack: 4}, []seg{{flags: "R", seq: 4}}, SynReceived},
		{"reset", seg{flags: "R", seq: 78}, nil, Closed},
		{"reset in window", seg{flags: "R", seq: 79}, []seg{{flags: "A", seq: 1, ack: 78}}, SynReceived},
		{"reset outside", seg{flags: "R", seq: 70}, nil, SynReceived},
		{"other syn", seg{flags: "S", seq: 990}, []seg{{flags: "A", seq: 1, ack: 78}}, SynReceived},
		{"old", seg{flags: "A", seq: 70, ack: 1}, []seg{{flags: "A", seq: 1, ack: 78}}, SynReceived},
		{"ack", seg{flags: "A", seq: 78, ack: 1}, nil, Established},
		{"ack with data and fin", seg{flags: "FA", seq: 78, ack: 1, data: []byte("q")}, []seg{{flags: "A", seq: 1, ack: 80}}, CloseWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.k.Serve(target4)
			r.input(r.frame(d, seg{flags: "S", seq: 77, mss: 1460, wscale: 7}))
			r.k.Run()
			c := &g{rig: r, side: d, ours: r.take(d)[0].seq}
			in := tt.in
			if in.ack == 1 {
				in.ack += c.ours
			}
			in.wnd = 1000
			c.raw(in)
			for i := range tt.out {
				if tt.out[i].seq == 1 {
					tt.out[i].seq += c.ours
				}
			}
			c.want(tt.out...)
			c.wantState(tt.left)
			r.e.ResetAll()
			r.clean()
		})
	}
}

// While our SYN is on its way (RFC 9293 3.10.7.3).
func TestSynSent(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   seg
		out  []seg
		left State
	}{
		{"refused", seg{flags: "RA", seq: 0, ack: 1}, nil, Closed},
		{"reset without ack", seg{flags: "R", seq: 0}, nil, SynSent},
		{"reset of something else", seg{flags: "RA", ack: 99}, nil, SynSent},
		{"half-open guest", seg{flags: "A", seq: 5, ack: 99}, []seg{{flags: "R", seq: 99}}, SynSent},
		{"wrong syn-ack", seg{flags: "SA", seq: 5, ack: 99}, []seg{{flags: "R", seq: 99}}, SynSent},
		{"ack alone", seg{flags: "A", seq: 5, ack: 1}, []seg{{flags: "R", seq: 1}}, SynSent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			c := r.knock(side4(8080))
			in := tt.in
			if in.ack == 1 {
				in.ack += c.ours
			}
			c.raw(in)
			for i := range tt.out {
				if tt.out[i].seq == 1 {
					tt.out[i].seq += c.ours
				}
			}
			c.want(tt.out...)
			c.wantState(tt.left)
			if c.p.SawRST() != (tt.left == Closed) {
				t.Error("client's RST")
			}
			r.e.ResetAll()
			r.clean()
		})
	}
}

// T29: a 4-tuple used again right after it was closed, by a SYN in TIME-WAIT
// (RFC 9293 3.10.7.4), and the clock in our ISN. T30: another secret gives other
// numbers.
func TestT29(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.p.CloseWrite()
	c.recv()
	c.send("FA", nil)
	c.wantAck()
	c.wantState(TimeWait)
	// Not ahead of what was seen: challenge ACK.
	c.raw(seg{flags: "S", seq: c.nxt - 100, mss: 1460})
	c.want(seg{flags: "A", seq: c.ack, ack: c.nxt})
	c.raw(seg{flags: "S", seq: c.nxt + 100, mss: 1460})
	r.k.Run()
	out := r.take(c.side)
	if len(out) != 1 || out[0].flags != "SA" || out[0].ack != c.nxt+101 {
		t.Errorf("%v", out)
	}
	r.e.ResetAll()
	r.clean()

	k := flow.Key{Guest: guest4, Remote: c.remote, GuestPort: 1, RemotePort: 80}
	a := r.e.isn(&k)
	r.time.Advance(4 * time.Millisecond)
	if d := r.e.isn(&k).Diff(a); d != 1000 {
		t.Errorf("ISN moved by %d in 4 ms, want 1000", d)
	}
	other := newRig(t, with(func(c *Config) { c.Secret = [16]byte{4} }))
	other.time.T = r.time.T
	if other.e.isn(&k) == r.e.isn(&k) {
		t.Error("the same ISN under another secret")
	}
}

// A sequence space that wraps in the middle of a transfer.
func TestSequenceWrap(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		srv := r.k.Serve(d.remote.AddrPort(80))
		const isn = 1<<32 - 3000
		r.input(r.frame(d, seg{flags: "S", seq: isn, mss: 1460, wscale: 7, wnd: 65535}))
		r.k.Run()
		c := &g{rig: r, side: d, nxt: isn + 1, ack: r.take(d)[0].seq + 1, wnd: 65535, p: srv.Accept()}
		c.send("A", nil)
		want := pattern(100_000, 3)
		for off := 0; off < len(want); off += 1000 {
			c.send("A", want[off:off+1000])
			c.wantAck()
		}
		if got := c.p.ReadAll(); string(got) != string(want) {
			t.Error("stream differs")
		}
		c.bothClose()
	})
}
