package tcp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/wire"
)

func frameKey(d side) flow.Key {
	return flow.Key{Guest: d.guest, Remote: d.remote, GuestPort: d.guestPort, RemotePort: d.remotePort, Proto: wire.ProtoTCP}
}

// The guest closes first: its FIN is shutdown(SHUT_WR), the other half goes on,
// and the last ACK ends everything at once.
func TestGuestClosesFirst(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.send("FA", []byte("request"))
		c.wantAck()
		c.wantState(CloseWait)
		if got := c.p.ReadAll(); string(got) != "request" || !c.p.SawFIN() {
			t.Errorf("target read %q, FIN %v", got, c.p.SawFIN())
		}
		want := pattern(100_000, 1)
		c.p.Send(want)
		got, _ := c.recv()
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes after the guest's FIN", len(got))
		}
		c.p.Close()
		r.k.Run()
		c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
		c.wantState(LastAck)
		c.ack++
		c.send("A", nil)
		c.quiet()
		c.clean()
		if c.p.SawRST() {
			t.Error("RST at the end of an orderly close")
		}
	})
}

// The target closes first: our FIN, the guest goes on, then TIME-WAIT ACKs a
// repeated FIN.
func TestHostClosesFirst(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.p.CloseWrite()
		c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
		c.wantState(FinWait1)
		c.ack++
		c.send("A", nil)
		c.wantState(FinWait2)
		c.send("PA", []byte("still here"))
		c.wantAck()
		if got := c.p.ReadAll(); string(got) != "still here" {
			t.Errorf("target read %q", got)
		}
		c.send("FA", nil)
		c.wantAck()
		c.wantState(TimeWait)
		if r.k.Open() != 0 || !c.p.SawFIN() {
			t.Error("host socket not closed")
		}
		c.nxt--
		c.send("FA", nil)
		c.wantAck()
		r.advance(2 * time.Second)
		r.clean()
		if c.p.SawRST() {
			t.Error("RST at the end of an orderly close")
		}
	})
}

// Both at once.
func TestSimultaneousClose(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.p.CloseWrite()
	c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
	c.send("FA", nil) // does not ACK our FIN
	c.want(seg{flags: "A", seq: c.ack + 1, ack: c.nxt})
	c.wantState(Closing)
	c.ack++
	c.send("A", nil)
	c.wantState(TimeWait)
	r.advance(2 * time.Second)
	r.clean()
}

// T22: a repeated FIN is ACKed, one out of order waits, data behind it is
// dropped.
func TestT22(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		base := c.nxt
		c.raw(seg{flags: "FA", seq: base + 5, ack: c.ack, wnd: c.wnd, data: []byte("56789")})
		c.want(seg{flags: "A", seq: c.ack, ack: base})
		c.wantState(Established)
		c.raw(seg{flags: "A", seq: base, ack: c.ack, wnd: c.wnd, data: []byte("01234")})
		c.want(seg{flags: "A", seq: c.ack, ack: base + 11})
		c.wantState(CloseWait)
		if got := c.p.ReadAll(); string(got) != "0123456789" || !c.p.SawFIN() {
			t.Errorf("target read %q, FIN %v", got, c.p.SawFIN())
		}
		c.nxt = base + 11
		c.raw(seg{flags: "FA", seq: base + 10, ack: c.ack, wnd: c.wnd})
		c.wantAck()
		c.raw(seg{flags: "A", seq: base + 11, ack: c.ack, wnd: c.wnd, data: []byte("after")})
		c.wantAck()
		c.raw(seg{flags: "FA", seq: base + 11, ack: c.ack, wnd: c.wnd})
		c.wantAck()
		r.drops(map[Drop]uint64{DropOld: 1, DropAfterFin: 2})
		if got := c.p.ReadAll(); len(got) != 0 {
			t.Errorf("target read %q behind the FIN", got)
		}
		c.p.CloseWrite()
		c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
		c.ack++
		c.send("A", nil)
		c.clean()
	})
}

// A FIN alone out of order.
func TestLoneFinAhead(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.raw(seg{flags: "FA", seq: c.nxt + 4, ack: c.ack, wnd: c.wnd})
	c.wantAck()
	c.send("A", []byte("data"))
	c.nxt++
	c.wantAck()
	c.wantState(CloseWait)
	c.p.ReadAll()
	c.p.CloseWrite()
	c.recv()
	c.clean()
}

// T23: half-closed connections live while both sides do, and no longer.
func TestT23(t *testing.T) {
	for _, host := range []bool{false, true} {
		for _, answers := range []bool{false, true} {
			r := newRig(t, with(func(c *Config) { c.IdleLimit = time.Hour }))
			c := r.dial(side4(1))
			if host {
				c.p.CloseWrite()
				c.recv()
			} else {
				c.send("FA", nil)
				c.wantAck()
			}
			for c.state() != Closed && r.time.Next(24*time.Hour) {
				for _, s := range c.take(c.side) {
					if s.flags == "A" && answers {
						c.send("A", nil)
						c.take(c.side)
					}
				}
			}
			d := time.Duration(r.time.Now()) - time.Hour
			low, high := 2*time.Minute, 10*time.Minute
			if answers {
				low, high = time.Hour, 70*time.Minute
			}
			if d < low || d > high {
				t.Errorf("host first %v, guest answers %v: given up after %v", host, answers, d)
			}
			if !c.p.SawRST() {
				t.Errorf("host first %v, guest answers %v: target not reset", host, answers)
			}
			r.clean()
		}
	}
}

// T24: the target resets: RST to the guest, once, behind what was sent before.
func TestT24(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.p.Send([]byte("last words"))
		c.p.Reset()
		c.want(
			seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("last words")},
			seg{flags: "RA", seq: c.ack + 10, ack: c.nxt},
		)
		r.clean()
		c.send("A", nil)
		c.want(seg{flags: "R", seq: c.ack}) // of no connection any more
	})
}

// T24 at every point where it can be noticed.
func TestHostResetWhile(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    func(c *g)
	}{
		{"idle", func(c *g) {}},
		{"writing", func(c *g) {
			c.k.FailNext("Writev", syscall.ECONNRESET)
			c.send("A", []byte("x"))
		}},
		{"staged", func(c *g) {
			c.p.SetSendBuffer(10)
			c.send("A", pattern(1000, 1))
		}},
		{"guest closed", func(c *g) { c.send("FA", nil) }},
		{"target closed", func(c *g) {
			c.p.CloseWrite()
			c.k.Run()
		}},
		{"no room", func(c *g) { c.ep.Room = 0 }},
		{"window closed", func(c *g) {
			c.wnd = 0
			c.send("A", nil)
			c.p.Send([]byte("cannot go"))
			c.k.Run()
		}},
		{"gap", func(c *g) {
			c.raw(seg{flags: "A", seq: c.nxt + 5, ack: c.ack, wnd: c.wnd, data: []byte("x")})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, d side, opts ...option) {
				r := newRig(t, opts...)
				c := r.dial(d)
				tt.f(c)
				c.p.Reset()
				r.k.Run()
				if r.ep.Room == 0 {
					c.wantState(Aborted)
					r.ep.Room = -1
					r.e.Writable()
				}
				n := 0
				for _, s := range c.take(d) {
					if s.flags == "RA" {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%d RSTs to the guest, want 1", n)
				}
				r.clean()
			})
		})
	}
}

// A RST that the guest never makes room for is not kept for ever, and is sent
// when the guest speaks first.
func TestAborted(t *testing.T) {
	r := newRig(t)
	c, other := r.dial(side4(1)), r.dial(side4(2))
	r.ep.Room = 0
	c.p.Reset()
	other.p.Reset()
	r.k.Run()
	c.wantState(Aborted)
	r.ep.Room = -1
	c.send("A", nil)
	if out := c.take(c.side); len(out) != 1 || out[0].flags != "R" || out[0].seq != c.ack {
		t.Errorf("%v", out)
	}
	c.wantState(Closed)
	r.ep.Room = 0
	r.advance(abortTime + time.Second)
	other.wantState(Closed)
	r.clean()
}

// The guest resets in every state that it can: RST to the target.
func TestGuestResetWhile(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    func(c *g)
		rst  bool
	}{
		{"established", func(c *g) {}, true},
		{"staged", func(c *g) {
			c.p.SetSendBuffer(0)
			c.send("A", []byte("x"))
		}, true},
		{"guest closed", func(c *g) { c.send("FA", nil) }, true},
		{"target closed", func(c *g) {
			c.p.CloseWrite()
			c.k.Run()
		}, true},
		{"time-wait", func(c *g) {
			c.p.CloseWrite()
			c.recv()
			c.send("FA", nil)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			c := r.dial(side4(1))
			tt.f(c)
			c.take(c.side)
			c.send("R", nil)
			c.quiet()
			if c.p.SawRST() != tt.rst {
				t.Errorf("target saw RST: %v", c.p.SawRST())
			}
			r.clean()
		})
	}
}

// The guest's FIN reaches the target only behind the last byte, also when those
// are staged while everything on the guest's side is over.
func TestFlushBeforeClose(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		for _, first := range []string{"guest", "host"} {
			r := newRig(t, opts...)
			c := r.dial(d)
			c.p.SetSendBuffer(1000)
			want := pattern(20_000, 1)
			if first == "host" {
				c.p.CloseWrite()
				c.recv()
			}
			for off := 0; off < len(want); off += 1000 {
				c.send("A", want[off:off+1000])
			}
			c.send("FA", nil)
			if first == "guest" {
				c.p.CloseWrite()
				r.k.Run()
			}
			c.take(d)
			c.ack++
			if first == "guest" {
				c.send("A", nil)
			} else {
				c.ack--
			}
			r.advance(5 * time.Second)
			if c.p.SawFIN() {
				t.Fatal("FIN before the last byte")
			}
			if r.k.Open() != 1 {
				t.Fatal("socket closed before the last byte")
			}
			var got []byte
			for range 100 {
				r.k.Run()
				got = append(got, c.p.ReadAll()...)
			}
			if !bytes.Equal(got, want) || !c.p.SawFIN() {
				t.Errorf("%s first: %d bytes, FIN %v", first, len(got), c.p.SawFIN())
			}
			r.advance(5 * time.Second)
			r.clean()
			if c.p.SawRST() {
				t.Error("RST")
			}
		}
	})
}

// A target that never takes the rest of a connection that the guest has finished
// with is not waited for without end.
func TestFlushLimit(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.IdleLimit = time.Hour }))
	c := r.dial(side4(1))
	c.p.CloseWrite()
	c.recv()
	c.p.SetSendBuffer(0)
	c.send("FA", []byte("never read"))
	c.wantAck()
	c.wantState(TimeWait)
	r.advance(30 * time.Minute)
	c.wantState(TimeWait)
	r.advance(40 * time.Minute)
	if !c.p.SawRST() {
		t.Error("target not reset")
	}
	r.clean()
}

// M25: the guest starts anew: every target is reset, nothing is said to the guest.
func TestResetAll(t *testing.T) {
	r := newRig(t)
	a := r.dial(side4(1))
	b := r.accept(side4(2))
	c := r.dial(side4(3))
	c.send("FA", nil)
	r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), 9, 80}, seg{flags: "S"}))
	r.seen = len(r.ep.Sent)
	sent := r.seen
	r.e.ResetAll()
	for _, x := range []*g{a, b, c} {
		if !x.p.SawRST() {
			t.Error("a target was not reset")
		}
	}
	if len(r.ep.Sent) != sent {
		t.Error("something was sent to the guest")
	}
	r.clean()
	d := r.dial(side4(1))
	d.bothClose()
}
