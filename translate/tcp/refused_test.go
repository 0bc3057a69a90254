package tcp

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/wire"
)

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
