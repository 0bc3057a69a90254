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
