package tcp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"guestwire/vnet/link/linktest"
)

// fill sends as much as the window takes, in segments of n bytes, and returns
// what it sent.
func (c *g) fill(n int, edge *uint32) (sent []byte) {
	for seed := byte(0); int32(*edge-c.nxt) > 0; seed++ {
		b := pattern(min(n, int(*edge-c.nxt)), seed)
		sent = append(sent, b...)
		c.send("A", b)
		for _, s := range c.take(c.side) {
			c.see(s, edge)
		}
	}
	return sent
}

// see follows the right edge of our window, which must not go back, except for
// what its scale cannot express (RFC 7323 2.4).
func (c *g) see(s seg, edge *uint32) {
	c.t.Helper()
	e := s.ack + uint32(s.wnd)<<5
	if d := int32(e - *edge); d <= -32 {
		c.t.Fatalf("right edge went back by %d", -d)
	} else if d > 0 {
		*edge = e
	}
}

// T25: the kernel takes less than the window promised. Every byte inside the
// window is taken, ACKed and delivered; then the window is closed, and opens by
// itself when there is room.
func TestT25(t *testing.T) {
	for _, buffer := range []int{0, 1, 1000, 20000, 65536} {
		r := newRig(t)
		c := r.dial(side4(1))
		c.p.SetSendBuffer(buffer)
		edge := c.nxt + 65535
		want := c.fill(1400, &edge)
		if len(want) < 65535 {
			t.Errorf("buffer %d: window of %d bytes", buffer, len(want))
		}
		if edge != c.nxt {
			t.Errorf("buffer %d: window not closed", buffer)
		}
		// A probe beyond the window is answered and not taken.
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: []byte("!")})
		if s := c.wantAck(); s.wnd != 0 {
			t.Errorf("buffer %d: window %d", buffer, s.wnd)
		}
		r.drops(map[Drop]uint64{DropWindow: 1})
		var got []byte
		c.p.SetSendBuffer(30000)
		for range 100 {
			r.k.Run()
			got = append(got, c.p.Read(10000)...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("buffer %d: %d bytes arrived, want %d", buffer, len(got), len(want))
		}
		out := c.take(c.side)
		if len(out) == 0 {
			t.Fatalf("buffer %d: no window update", buffer)
		}
		for _, s := range out {
			c.see(s, &edge)
		}
		if edge-c.nxt < startWindow/2 {
			t.Errorf("buffer %d: window %d after everything was taken", buffer, edge-c.nxt)
		}
		if n := r.e.Stats().BufferBytes; n != 0 {
			t.Errorf("buffer %d: %d bytes of buffers kept", buffer, n)
		}
		c.bothClose()
	}
}

// Small segments do not move the edge of a window that should close.
func TestNoCreep(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.p.SetSendBuffer(0)
	for off := 0; off < 60000; off += 1000 {
		c.send("A", pattern(1000, 1))
	}
	edge := c.nxt + 5535
	for range 10000 {
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: []byte("x")})
		out := c.take(c.side)
		if last := out[len(out)-1].ack; last != c.nxt {
			c.nxt = last
			continue
		}
		break
	}
	if c.nxt > edge+32 {
		t.Errorf("%d bytes beyond the window", c.nxt-edge)
	}
	r.e.ResetAll()
	r.clean()
}

// What is staged is written before anything newer, whatever comes when.
func TestStagedOrder(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.p.SetSendBuffer(5000)
		var want, got []byte
		edge := c.nxt + 65535
		for i := range 2000 {
			if n := min(1+i*7%1400, int(edge-c.nxt)); n > 0 {
				b := pattern(n, byte(i))
				want = append(want, b...)
				c.send("A", b)
			}
			if i%3 == 0 {
				got = append(got, c.p.Read(i*11%4000)...)
			}
			if i%2 == 0 {
				r.k.Run()
			}
			for _, s := range c.take(c.side) {
				c.see(s, &edge)
			}
		}
		for range 1000 {
			r.k.Run()
			got = append(got, c.p.ReadAll()...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
		r.drops(nil)
		c.take(c.side)
		c.bothClose()
	})
}

// The kernel must see writes that exceed its free space, or its send buffer never
// grows (DESIGN 4).
func TestWritesExceedFreeSpace(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.p.SetSendBuffer(40000)
	edge := c.nxt + 65535
	for range 20 {
		c.fill(1400, &edge)
		c.p.ReadAll()
		r.k.Run()
		for _, s := range c.take(c.side) {
			c.see(s, &edge)
		}
	}
	if n := r.e.Stats().ShortWrites; n < 20 {
		t.Errorf("%d short writes in 20 rounds", n)
	}
	r.drops(nil)
	c.p.ReadAll()
	r.k.Run()
	c.p.ReadAll()
	c.take(c.side)
	c.bothClose()
}

// The window grows with what comes in a batch, up to its limit, and the guest
// is not asked to wait in between; a slow target makes it no larger.
func TestWindowGrows(t *testing.T) {
	grow := func(t *testing.T, slow bool) int {
		r := newRig(t)
		c := r.dial(side4(1))
		c.p.SetSendBuffer(4 << 20)
		edge := c.nxt + 65535
		for range 12 {
			var frames []linktest.Frame
			for edge-c.nxt > 0 && len(frames) < 100 {
				n := min(1400, int(edge-c.nxt))
				frames = append(frames, r.frame(c.side, seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: pattern(n, 1)}))
				c.nxt += uint32(n)
			}
			if slow {
				c.p.SetSendBuffer(10000)
			}
			r.input(frames...)
			for range 50 {
				if slow {
					r.advance(100 * time.Millisecond)
				}
				c.p.ReadAll()
				r.k.Run()
			}
			for _, s := range c.take(c.side) {
				c.see(s, &edge)
			}
		}
		r.drops(nil)
		defer c.bothClose()
		return int(edge - c.nxt)
	}
	if n := grow(t, false); n < 4*100*1400 || n > 1<<20 {
		t.Errorf("window %d bytes for batches of 140,000", n)
	}
	if n := grow(t, true); n > activeWindow {
		t.Errorf("window %d bytes for a slow target", n)
	}
}

// When half of the buffers are in use windows stay small, but nobody stands
// still, and nothing inside a window is lost.
func TestTightMemory(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.BufferMax = 64 * chunkSize }))
	var cs []*g
	edges := make([]uint32, 12)
	want := make([][]byte, 12)
	got := make([][]byte, 12)
	for i := range edges {
		c := r.dial(side4(uint16(i + 1)))
		c.p.SetSendBuffer(1000)
		cs = append(cs, c)
		edges[i] = c.nxt + 65535
	}
	step := func(i int) {
		c := cs[i]
		r.seen = len(r.ep.Sent)
		want[i] = append(want[i], c.fill(1400, &edges[i])...)
	}
	for i := range cs {
		step(i)
	}
	if s := r.e.Stats(); s.Drops[DropInWindow] != 0 || s.BufferBytes < 32*chunkSize {
		t.Fatalf("%d lost, %d buffered", s.Drops[DropInWindow], s.BufferBytes)
	}
	for round := range 400 {
		for i, c := range cs {
			got[i] = append(got[i], c.p.ReadAll()...)
			sent := len(r.ep.Sent)
			r.k.Run()
			for _, f := range r.ep.Sent[sent:] {
				// Whose is it? Ports tell.
				port := int(f.Data[36])<<8 | int(f.Data[37])
				j := port - 1
				cs[j].see(r.decode(cs[j].side, f), &edges[j])
			}
			r.seen = len(r.ep.Sent)
			if round == 100 {
				c.p.SetSendBuffer(1 << 20)
			}
		}
	}
	for i := range cs {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("connection %d: %d of %d bytes", i, len(got[i]), len(want[i]))
		}
		if edges[i] == cs[i].nxt {
			t.Errorf("connection %d: window still closed", i)
		}
	}
	r.drops(nil)
	r.e.ResetAll()
	r.clean()
}

// Beyond the limit of all buffers together bytes are lost, and counted; the
// stream stays whole.
func TestMemoryLimit(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.BufferMax = 64 * chunkSize }))
	var cs []*g
	for i := range 30 {
		c := r.dial(side4(uint16(i + 1)))
		c.p.SetSendBuffer(0)
		cs = append(cs, c)
	}
	for _, c := range cs {
		for off := 0; off < 65000; off += 1000 {
			c.send("A", pattern(1000, byte(off/1000)))
		}
	}
	s := r.e.Stats()
	if s.BufferBytes > 64*chunkSize || s.Drops[DropInWindow] == 0 {
		t.Errorf("%d bytes of buffers, %d dropped", s.BufferBytes, s.Drops[DropInWindow])
	}
	for i, c := range cs {
		c.p.SetSendBuffer(1 << 20)
		r.k.Run()
		got := c.p.ReadAll()
		var want []byte
		for off := 0; off < 65000; off += 1000 {
			want = append(want, pattern(1000, byte(off/1000))...)
		}
		if !bytes.HasPrefix(want, got) {
			t.Errorf("connection %d: stream broken after %d bytes", i, len(got))
		}
	}
	r.e.ResetAll()
	r.clean()
}

// T6: a window that stays closed is probed, with growing pauses; the bytes stay
// in the kernel; when it opens, output goes on.
func TestT6(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dialWith(d, seg{mss: 1000, wscale: 0, wnd: 2000})
		want := pattern(5000, 1)
		c.p.Send(want)
		r.k.Run()
		out := c.take(d)
		var got []byte
		for _, s := range out {
			got = append(got, s.data...)
		}
		if len(got) != 2000 {
			t.Fatalf("%d bytes into a window of 2,000", len(got))
		}
		c.ack += 2000
		c.wnd = 0
		c.send("A", nil)
		c.quiet()
		var probes []time.Duration
		start := r.time.Now()
		for len(probes) < 14 && r.time.Next(10*time.Minute) {
			for _, s := range c.take(d) {
				if s.flags != "A" || s.seq != c.ack-1 || len(s.data) != 0 {
					t.Fatalf("not a probe: %v", s)
				}
				probes = append(probes, time.Duration(r.time.Now()-start))
				c.send("A", nil)
			}
		}
		if len(probes) < 14 || probes[0] > time.Second || probes[5]-probes[4] < 2*(probes[2]-probes[1]) || probes[13]-probes[12] > maxRTO+time.Second {
			t.Errorf("probes at %v", probes)
		}
		if n := c.p.Undelivered(); n != 3000 && !r.k.NoPeek {
			t.Errorf("%d bytes in the kernel, want 3,000", n)
		}
		c.wnd = 65535
		c.send("A", nil)
		more, _ := c.recv()
		if got = append(got, more...); !bytes.Equal(got, want) {
			t.Errorf("%d bytes", len(got))
		}
		c.bothClose()
	})
}

// T6: for ever is not for ever.
func TestT6Limit(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.IdleLimit = time.Hour }))
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 0, wnd: 0})
	c.p.Send([]byte("x"))
	r.k.Run()
	for r.time.Next(time.Hour) && c.state() != Closed {
		for _, s := range c.take(c.side) {
			if s.flags == "A" {
				c.send("A", nil)
			}
		}
	}
	if !c.p.SawRST() {
		t.Error("target not reset")
	}
	if d := time.Duration(r.time.Now()) - time.Hour; d < time.Hour || d > 2*time.Hour {
		t.Errorf("given up after %v", d)
	}
	r.clean()
}

// A guest that does not answer window probes is gone.
func TestPersistUnanswered(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 0, wnd: 0})
	c.p.Send([]byte("x"))
	r.k.Run()
	r.advance(20 * time.Minute)
	if !c.p.SawRST() {
		t.Error("target not reset")
	}
	out := c.take(c.side)
	if last := out[len(out)-1]; last.flags != "RA" || last.seq != c.ack {
		t.Errorf("%v", last)
	}
	r.clean()
}

// T7: the guest takes back a window that is in flight.
func TestT7(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dialWith(d, seg{mss: 1000, wscale: 0, wnd: 10000})
		want := pattern(15000, 1)
		c.p.Send(want)
		r.k.Run()
		first := c.take(d)
		n := 0
		for _, s := range first {
			n += len(s.data)
		}
		if n != 10000 {
			t.Fatalf("%d bytes into a window of 10,000", n)
		}
		// Only the first 1,000 were taken, and there is room for 2,000 more.
		c.ack += 1000
		c.wnd = 2000
		c.send("A", nil)
		for range 3 {
			r.advance(300 * time.Millisecond)
		}
		for _, s := range c.take(d) {
			if end := s.seq + uint32(len(s.data)); int32(end-c.ack) > 2000 {
				t.Errorf("%v beyond the window that ends at %d", s, c.ack+2000)
			}
		}
		c.wnd = 60000
		c.send("A", nil)
		if again := c.take(d); len(again) == 0 || again[0].seq != c.ack+2000 {
			t.Errorf("goes on with %v, want %d, where the window ended", again, c.ack+2000)
		}
		got := want[:1000:1000]
		for range 100 {
			for _, s := range c.take(d) {
				if skip := int32(c.ack - s.seq); skip >= 0 && int(skip) < len(s.data) {
					got = append(got, s.data[skip:]...)
					c.ack += uint32(len(s.data)) - uint32(skip)
				}
			}
			c.send("A", nil)
			r.advance(50 * time.Millisecond)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
		c.bothClose()
	})
}

// An old segment does not bring an old window back (RFC 9293 3.10.7.4).
func TestOldWindow(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 0, wnd: 60000})
	c.send("A", []byte("old"))
	c.wnd = 0
	c.send("A", []byte("new"))
	c.take(c.side)
	// The first segment once more, with the window that it had.
	c.raw(seg{flags: "A", seq: c.nxt - 6, ack: c.ack, wnd: 60000, data: []byte("oldnew")})
	c.take(c.side)
	c.p.Send([]byte("x"))
	c.quiet()
	c.wnd = 60000
	c.send("A", nil)
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("x")})
	c.ack++
	c.send("A", nil)
	c.p.ReadAll()
	c.bothClose()
}

// What the guest got before it took its window back may be ACKed beyond nxt.
func TestAckBeyondRetreat(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 0, wnd: 10000})
	c.p.Send(pattern(10000, 1))
	r.k.Run()
	c.take(c.side)
	c.wnd = 0
	c.send("A", nil)
	c.take(c.side)
	c.ack += 10000
	c.wnd = 10000
	c.send("A", nil)
	c.quiet()
	if n := c.p.Undelivered(); n != 0 {
		t.Errorf("%d bytes not consumed", n)
	}
	r.drops(nil)
	c.p.Send([]byte("more"))
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("more")})
	c.ack += 4
	c.send("A", nil)
	c.bothClose()
}

// Silly windows: no small segment into a large stream while an ACK is to come.
func TestSillyWindow(t *testing.T) {
	r := newRig(t, noCaps)
	c := r.dialWith(side4(1), seg{mss: 1000, wscale: 0, wnd: 10500})
	c.p.Send(pattern(50000, 1))
	r.k.Run()
	n := 0
	for _, s := range c.take(c.side) {
		if len(s.data) != 1000 {
			t.Errorf("segment of %d bytes", len(s.data))
		}
		n += len(s.data)
	}
	if n != 10000 {
		t.Errorf("%d bytes into a window of 10,500", n)
	}
	// With nothing in flight it takes what there is.
	c.ack += 10000
	c.wnd = 10
	c.send("A", nil)
	if out := c.take(c.side); len(out) != 1 || len(out[0].data) != 10 {
		t.Errorf("%v into a window of 10", out)
	}
	r.e.ResetAll()
	r.clean()
}

// An Out edge that never comes (a kernel short of memory): the guest's window
// probes bring the bytes on their way.
func TestForgottenEdge(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	r.k.FailNext("Writev", syscall.EAGAIN)
	c.send("A", []byte("stuck"))
	c.wantAck()
	r.advance(3 * time.Second)
	if got := c.p.ReadAll(); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	c.raw(seg{flags: "A", seq: c.nxt - 1, ack: c.ack, wnd: c.wnd})
	c.wantAck()
	if got := c.p.ReadAll(); string(got) != "stuck" {
		t.Errorf("%q", got)
	}
	c.bothClose()
}
