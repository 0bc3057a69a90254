package tcp

import (
	"syscall"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
)

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
