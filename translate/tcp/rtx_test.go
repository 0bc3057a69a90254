package tcp

import (
	"bytes"
	"testing"
	"time"
)

// lossy sends n bytes to a guest with MSS 1000 as single segments, and returns
// them without having ACKed any.
func lossy(t *testing.T, n int, opts ...option) (*g, []seg, []byte) {
	t.Helper()
	r := newRig(t, append(opts, noCaps)...)
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 7, sackOK: true, wnd: 65535})
	want := pattern(n*1000, 1)
	c.p.Send(want)
	r.k.Run()
	out := c.take(c.side)
	if len(out) != n {
		t.Fatalf("%d segments, want %d", len(out), n)
	}
	return c, out, want
}

// modes runs f with and without SO_PEEK_OFF.
func modes(t *testing.T, f func(t *testing.T, opts ...option)) {
	t.Run("peek", func(t *testing.T) { f(t) })
	t.Run("copy", func(t *testing.T) { f(t, noPeek) })
}

// Three duplicate ACKs bring the missing segment at once, and no more than that
// however many follow (T12); a partial ACK brings the next (RFC 6582).
func TestFastRetransmit(t *testing.T) {
	modes(t, func(t *testing.T, opts ...option) {
		c, out, want := lossy(t, 10, opts...)
		c.send("A", nil)
		c.send("A", nil)
		c.quiet()
		c.send("A", nil)
		again := c.take(c.side)
		if len(again) != 1 || again[0].seq != out[0].seq || !bytes.Equal(again[0].data, want[:1000]) {
			t.Fatalf("after three duplicates: %v", again)
		}
		for range 50 {
			c.send("A", nil)
		}
		c.quiet()
		c.ack += 3000 // 3 is missing too
		c.send("A", nil)
		again = c.take(c.side)
		if len(again) != 1 || again[0].seq != out[3].seq || !bytes.Equal(again[0].data, want[3000:4000]) {
			t.Fatalf("after a partial ACK: %v", again)
		}
		c.ack += 7000
		c.send("A", nil)
		c.quiet()
		// A new window, a new loss.
		c.p.Send(want)
		c.k.Run()
		c.take(c.side)
		for range 3 {
			c.send("A", nil)
		}
		if again = c.take(c.side); len(again) != 1 || again[0].seq != c.ack {
			t.Fatalf("second window: %v", again)
		}
		c.ack += 10000
		c.send("A", nil)
		c.bothClose()
	})
}

// SACK blocks name the holes: each is filled once, right away.
func TestSackRetransmit(t *testing.T) {
	modes(t, func(t *testing.T, opts ...option) {
		c, out, want := lossy(t, 12, opts...)
		at := func(i int) uint32 { return out[0].seq + uint32(1000*i) }
		// 0, 4, 5 and 9 are missing.
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, sack: [][2]uint32{{at(10), at(12)}, {at(6), at(9)}, {at(1), at(4)}}})
		var got []uint32
		for _, s := range c.take(c.side) {
			if !bytes.Equal(s.data, want[s.seq-at(0):][:len(s.data)]) {
				t.Errorf("wrong bytes in %v", s)
			}
			for off := 0; off < len(s.data); off += 1000 {
				got = append(got, (s.seq-at(0)+uint32(off))/1000)
			}
		}
		if len(got) != 4 || got[0] != 0 || got[1] != 4 || got[2] != 5 || got[3] != 9 {
			t.Fatalf("retransmitted %v, want 0 4 5 9", got)
		}
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, sack: [][2]uint32{{at(1), at(5)}, {at(10), at(12)}, {at(6), at(9)}}})
		c.quiet()
		c.ack = at(12)
		c.send("A", nil)
		c.quiet()
		if n := c.p.Undelivered(); n != 0 && !c.k.NoPeek {
			t.Errorf("%d bytes not consumed", n)
		}
		c.bothClose()
	})
}

// Blocks that cannot be true change nothing.
func TestSackNonsense(t *testing.T) {
	c, out, _ := lossy(t, 5)
	a, max := c.ack, c.ack+5000
	for _, b := range [][2]uint32{{a - 2000, a - 1000}, {a, a + 1000}, {a + 3000, a + 2000}, {a + 1000, a + 1000}, {max, max + 1000}, {a + 4000, max + 1}, {a + 1<<31, a + 1<<30}} {
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, sack: [][2]uint32{b}, data: []byte("x")})
		c.nxt++
		c.wantAckAt(out[4].seq + 1000)
	}
	if c.e.boards.Len() != 0 {
		t.Error("a scoreboard for nothing")
	}
	c.ack += 5000
	c.send("A", nil)
	c.p.ReadAll()
	c.bothClose()
}

func (c *g) wantAckAt(seq uint32) {
	c.t.Helper()
	c.want(seg{flags: "A", seq: seq, ack: c.nxt})
}

// More blocks than are remembered.
func TestSackMany(t *testing.T) {
	c, _, want := lossy(t, 60)
	base := c.ack
	for i := 58; i > 0; i -= 2 {
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, sack: [][2]uint32{{base + uint32(1000*i), base + uint32(1000*i+1000)}}})
	}
	have := map[uint32]bool{}
	for i := 58; i > 0; i -= 2 {
		have[uint32(i)] = true
	}
	got := make([]byte, len(want))
	for i := range have {
		copy(got[i*1000:], want[i*1000:][:1000])
	}
	for range 40 {
		c.advance(300 * time.Millisecond)
		for _, s := range c.take(c.side) {
			copy(got[s.seq-base:], s.data)
			for i := range len(s.data) / 1000 {
				have[(s.seq-base)/1000+uint32(i)] = true
			}
		}
		for have[(c.ack-base)/1000] {
			c.ack += 1000
		}
		c.send("A", nil)
	}
	if c.ack != base+60000 || !bytes.Equal(got, want) {
		t.Errorf("guest has %d of 60000", c.ack-base)
	}
	c.bothClose()
}

// RFC 6298: the timer, its back-off, and going back to the first byte.
func TestTimeout(t *testing.T) {
	modes(t, func(t *testing.T, opts ...option) {
		c, out, want := lossy(t, 60, opts...)
		var at []time.Duration
		start := c.time.Now()
		for len(at) < 4 && c.time.Next(time.Minute) {
			for _, s := range c.take(c.side) {
				if s.seq == out[0].seq {
					at = append(at, time.Duration(c.time.Now()-start).Round(10*time.Millisecond))
				}
				if s.seq != out[0].seq && s.seq != out[1].seq {
					t.Errorf("%v after a timeout, window of two segments", s)
				}
			}
		}
		if len(at) != 4 || at[0] != time.Second || at[1] != 3*time.Second || at[2] != 7*time.Second {
			t.Errorf("timeouts at %v, want 1 s, 3 s, 7 s", at)
		}
		// One ACK and everything follows, twice as much with every round.
		var got []byte
		next := c.ack + 2000
		for rounds := 0; c.ack != out[0].seq+60000; rounds++ {
			if rounds > 6 {
				t.Fatalf("%d rounds, at %d", rounds, c.ack-out[0].seq)
			}
			c.ack = next
			c.send("A", nil)
			for _, s := range c.take(c.side) {
				if s.seq != next {
					t.Fatalf("%v, want %d", s, next)
				}
				next += uint32(len(s.data))
				got = append(got, s.data...)
			}
		}
		if !bytes.Equal(got, want[2000:]) {
			t.Errorf("%d bytes sent again", len(got))
		}
		// The back-off ends with the ACK.
		c.p.Send([]byte("x"))
		c.k.Run()
		if s := c.take(c.side); len(s) != 1 {
			t.Fatalf("%v", s)
		}
		c.advance(1100 * time.Millisecond)
		if s := c.take(c.side); len(s) != 1 || string(s[0].data) != "x" {
			t.Errorf("after 1.1 s: %v", s)
		}
		c.ack++
		c.send("A", nil)
		c.bothClose()
	})
}

// A guest may throw away what it has SACKed (RFC 2018 8): after a timeout all of
// it is sent again.
func TestReneging(t *testing.T) {
	c, out, want := lossy(t, 5)
	a := c.ack
	c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, sack: [][2]uint32{{a + 1000, a + 5000}}})
	c.take(c.side)
	c.advance(1200 * time.Millisecond)
	var got []byte
	for c.ack != out[4].seq+1000 {
		segs := c.take(c.side)
		if len(segs) == 0 {
			t.Fatalf("nothing behind %d", c.ack-a)
		}
		for _, s := range segs {
			if s.seq == c.ack {
				got = append(got, s.data...)
				c.ack += uint32(len(s.data))
			}
		}
		c.send("A", nil)
	}
	if !bytes.Equal(got, want) {
		t.Error("stream differs")
	}
	c.bothClose()
}

// The measured round trip gives the timeout, 200 ms at least; a timeout does not
// measure (Karn).
func TestRoundTrip(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	for range 20 {
		c.p.Send([]byte("x"))
		r.k.Run()
		r.time.Advance(100 * time.Millisecond)
		c.take(c.side)
		c.ack++
		c.send("A", nil)
	}
	k := r.conn(c)
	if rtt := time.Duration(k.srtt) * time.Microsecond; rtt < 95*time.Millisecond || rtt > 105*time.Millisecond {
		t.Errorf("round trip %v, want 100 ms", rtt)
	}
	if rto := k.rto(); rto != minRTO {
		t.Errorf("timeout %v", rto)
	}
	c.p.Send([]byte("y"))
	r.k.Run()
	r.advance(250 * time.Millisecond) // timeout
	r.time.Advance(10 * time.Second / 64)
	c.ack++
	c.send("A", nil)
	if rtt := time.Duration(k.srtt) * time.Microsecond; rtt > 105*time.Millisecond {
		t.Errorf("round trip %v measured on a retransmission", rtt)
	}
	c.take(c.side)
	c.bothClose()
}

func (r *rig) conn(c *g) *conn {
	p := frameKey(c.side)
	i, ok := r.flows.Lookup(&p)
	if !ok {
		r.t.Fatal("no such connection")
	}
	return r.e.conns.At(r.flows.At(i).Slot)
}

// T5: the guest vanishes in the middle of a transfer: retries, then both sides
// are reset.
func TestT5(t *testing.T) {
	modes(t, func(t *testing.T, opts ...option) {
		c, out, _ := lossy(t, 3, opts...)
		for c.time.Next(10*time.Minute) && c.state() != Closed {
		}
		if !c.p.SawRST() {
			t.Error("target not reset")
		}
		again := c.take(c.side)
		if last := again[len(again)-1]; last.flags != "RA" || last.seq != out[2].seq+1000 {
			t.Errorf("%v", last)
		}
		if d := time.Duration(c.time.Now()) - time.Hour; d < 100*time.Second || d > 20*time.Minute {
			t.Errorf("given up after %v; RFC 9293 3.8.3 asks for 100 s at least", d)
		}
		c.clean()
	})
}

// T5: an idle guest that is gone is noticed by keepalives; one that answers stays.
func TestKeepalive(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	fd := r.k.FDs()[0]
	r.time.Advance(2*time.Hour - time.Minute)
	c.quiet()
	r.time.Advance(2 * time.Minute)
	c.want(seg{flags: "A", seq: c.ack - 1, ack: c.nxt})
	if !r.k.Keepalive(fd) {
		t.Error("host's keepalive not on")
	}
	c.send("A", nil)
	r.time.Advance(119 * time.Minute)
	c.quiet()
	c.wantState(Established)
	n := 0
	for c.state() != Closed && r.time.Next(24*time.Hour) {
		for _, s := range c.take(c.side) {
			if s.flags == "A" {
				n++
			}
		}
	}
	if n != keepProbes || !c.p.SawRST() {
		t.Errorf("%d probes, target reset %v", n, c.p.SawRST())
	}
	r.clean()
}

// The FIN is repeated like a byte.
func TestFinLost(t *testing.T) {
	modes(t, func(t *testing.T, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(side4(1))
		c.p.CloseWrite()
		c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
		for range 3 {
			r.advance(10 * time.Second)
			for _, s := range c.take(c.side) {
				if s.flags != "FA" || s.seq != c.ack {
					t.Errorf("%v", s)
				}
			}
		}
		if r.e.Stats().Timeouts < 3 {
			t.Errorf("%d timeouts", r.e.Stats().Timeouts)
		}
		c.ack++
		c.send("FA", nil)
		c.wantAck()
		r.advance(2 * time.Second)
		r.clean()
	})
}

// While the guest has no room for frames nothing counts as lost.
func TestTimeoutWithoutRoom(t *testing.T) {
	c, _, want := lossy(t, 3)
	c.ep.Room = 0
	c.p.Send(want) // more that waits
	c.k.Run()
	c.advance(30 * time.Minute)
	c.wantState(Established)
	c.ep.Room = -1
	c.e.Writable()
	c.advance(2 * time.Minute)
	out := c.take(c.side)
	if len(out) == 0 {
		t.Fatal("nothing goes on")
	}
	c.e.ResetAll()
	c.clean()
}
