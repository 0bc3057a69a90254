package tcp

import (
	"bytes"
	"testing"
	"time"

	"guestwire/vnet/link/linktest"
)

// T9: RST at the start of the window, inside it, outside (RFC 5961 3.2).
func TestT9(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	c.raw(seg{flags: "R", seq: c.nxt + 10})
	c.wantAck() // challenge
	c.raw(seg{flags: "R", seq: c.nxt - 1})
	c.raw(seg{flags: "R", seq: c.nxt + 1<<20})
	c.quiet()
	c.wantState(Established)
	c.raw(seg{flags: "RA", seq: c.nxt, ack: c.ack})
	c.quiet()
	if !c.p.SawRST() {
		t.Error("target not reset")
	}
	r.drops(map[Drop]uint64{DropResetInside: 1, DropReset: 2})
	r.clean()
}

// Challenge ACKs are limited (RFC 5961 7).
func TestChallengeLimit(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	for range 250 {
		c.raw(seg{flags: "R", seq: c.nxt + 10})
	}
	if n := len(r.take(c.side)); n != challengeRate {
		t.Errorf("%d challenge ACKs at once, want %d", n, challengeRate)
	}
	r.advance(500 * time.Millisecond)
	for range 250 {
		c.raw(seg{flags: "R", seq: c.nxt + 10})
	}
	if n := len(r.take(c.side)); n != challengeRate/2 {
		t.Errorf("%d challenge ACKs half a second later, want %d", n, challengeRate/2)
	}
	c.bothClose()
}

// T10: a SYN on an established connection is answered with a challenge ACK, in
// the window or not, and starts nothing.
func TestT10(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	for _, seq := range []uint32{c.nxt, c.nxt - 1, c.nxt + 100, c.nxt + 1<<30} {
		c.raw(seg{flags: "S", seq: seq, mss: 1460})
		c.wantAck()
	}
	c.raw(seg{flags: "SA", seq: c.nxt, ack: c.ack})
	c.wantAck()
	if r.e.Stats().Flows != 1 || r.k.Calls("Dial") != 1 {
		t.Error("a second flow")
	}
	r.drops(map[Drop]uint64{DropSyn: 5})
	c.bothClose()
}

// T11: an ACK of what was never sent is answered, and takes nothing from the
// host socket.
func TestT11(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.p.Send([]byte("0123456789"))
		c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("0123456789")})
		discards := r.k.Calls("Discard")
		c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack + 11, wnd: c.wnd})
		c.want(seg{flags: "A", seq: c.ack + 10, ack: c.nxt})
		if r.k.Calls("Discard") != discards {
			t.Error("bytes were consumed")
		}
		r.drops(map[Drop]uint64{DropAckAhead: 1})
		c.ack += 10
		c.send("A", nil)
		c.bothClose()
	})
}

// T12: old ACKs are ignored, ancient ones challenged (RFC 5961 5.2).
func TestT12(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1460, wscale: 0, wnd: 1000})
	for range 30 {
		c.p.Send(pattern(1000, 1))
		c.recv()
	}
	c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack - 500, wnd: 1000})
	c.quiet()
	r.drops(nil)
	c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack - 5000, wnd: 1000})
	c.wantAck()
	r.drops(map[Drop]uint64{DropAckOld: 1})
	c.bothClose()
}

// T13: segments fully old, partly old, ahead, and overlapping with other bytes.
func TestT13(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		base := c.nxt
		at := func(off int, data string) seg {
			return seg{flags: "A", seq: base + uint32(off), ack: c.ack, wnd: c.wnd, data: []byte(data)}
		}
		ack := func(off int, sack ...[2]uint32) {
			t.Helper()
			s := c.want(seg{flags: "A", seq: c.ack, ack: base + uint32(off)})[0]
			for i := range sack {
				sack[i][0] += base
				sack[i][1] += base
			}
			if len(s.sack) != len(sack) {
				t.Fatalf("SACK %v, want %v", s.sack, sack)
			}
			for i := range sack {
				if s.sack[i] != sack[i] {
					t.Fatalf("SACK %v, want %v (base %d)", s.sack, sack, base)
				}
			}
		}
		c.raw(at(0, "0123456789"))
		ack(10)
		c.raw(at(0, "----------")) // fully old
		ack(10)
		c.raw(at(5, "-----abcde")) // partly old
		ack(15)
		c.raw(at(20, "klmno")) // ahead
		ack(15, [2]uint32{20, 25})
		c.raw(at(30, "uvwxy"))
		ack(15, [2]uint32{30, 35}, [2]uint32{20, 25})
		c.raw(at(18, "YYZZZZZpqr")) // around what is there: only the rest is new
		ack(15, [2]uint32{18, 28}, [2]uint32{30, 35})
		c.raw(at(27, "Wst!!!!!")) // joins two
		ack(15, [2]uint32{18, 35})
		c.raw(at(15, "fghQQQQ")) // the gap
		ack(35)
		want := "0123456789" + "abcde" + "fgh" + "YY" + "klmno" + "pqr" + "st" + "uvwxy"
		if got := c.p.ReadAll(); string(got) != want {
			t.Errorf("target read %q, want %q", got, want)
		}
		r.drops(map[Drop]uint64{DropOld: 1})
		c.nxt = base + 35
		c.bothClose()
	})
}

// A segment that begins in the window and ends beyond it is cut.
func TestBeyondWindow(t *testing.T) {
	for _, gap := range []uint32{0, 100} {
		r := newRig(t)
		c := r.dial(side4(1))
		c.p.SetSendBuffer(0)
		for off := 0; off < 65000; off += 1000 {
			c.send("A", pattern(1000, byte(off/1000)))
		}
		c.take(c.side)
		// 535 bytes of window are left.
		c.raw(seg{flags: "FA", seq: c.nxt + gap, ack: c.ack, wnd: c.wnd, data: pattern(1000, 77)[gap:]})
		if gap > 0 {
			c.wantAck()
			c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: pattern(1000, 77)[:gap]})
		}
		c.nxt += 535
		if s := c.wantAck(); s.wnd != 0 {
			t.Errorf("window %d", s.wnd)
		}
		c.wantState(Established)
		c.p.SetSendBuffer(1 << 20)
		r.k.Run()
		got := c.p.ReadAll()
		if len(got) != 65535 || !bytes.Equal(got[65000:], pattern(1000, 77)[:535]) {
			t.Errorf("%d bytes", len(got))
		}
		c.take(c.side)
		r.drops(nil)
		c.bothClose()
	}
}

// Reordering inside one batch shows nowhere.
func TestReorderedBatch(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	f := func(off int, data string) linktest.Frame {
		return r.frame(c.side, seg{flags: "A", seq: c.nxt + uint32(off), ack: c.ack, wnd: c.wnd, data: []byte(data)})
	}
	writes := r.k.Calls("Writev")
	c.input(f(0, "01"), f(4, "45"), f(2, "23"), f(6, "67"))
	c.nxt += 8
	s := c.take(c.side)
	if last := s[len(s)-1]; last.ack != c.nxt || len(last.sack) != 0 {
		t.Errorf("%v", s)
	}
	if got := c.p.ReadAll(); string(got) != "01234567" {
		t.Errorf("target read %q", got)
	}
	if n := r.k.Calls("Writev") - writes; n > 4 {
		t.Errorf("%d writes", n)
	}
	c.bothClose()
}

// Every out-of-order segment of a batch is answered, so that a guest without
// SACK sees three duplicates.
func TestDuplicateAcks(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1460, wscale: 7, wnd: 65535})
	f := func(off int) linktest.Frame {
		return r.frame(c.side, seg{flags: "A", seq: c.nxt + uint32(off), ack: c.ack, wnd: c.wnd, data: pattern(1000, byte(off/1000))})
	}
	c.input(f(0), f(2000), f(3000), f(4000))
	base := c.nxt + 1000
	out := c.take(c.side)
	if len(out) != 4 {
		t.Fatalf("%d ACKs, want one that moves and three duplicates", len(out))
	}
	for _, s := range out {
		if s.ack != base || s.wnd != out[0].wnd || len(s.sack) != 0 {
			t.Errorf("%v", s)
		}
	}
	c.input(f(1000))
	c.nxt += 5000
	c.wantAck()
	want := append(append(append(append(pattern(1000, 0), pattern(1000, 1)...), pattern(1000, 2)...), pattern(1000, 3)...), pattern(1000, 4)...)
	if !bytes.Equal(c.p.ReadAll(), want) {
		t.Error("stream differs")
	}
	c.bothClose()
}

// T14: the out-of-order queue is bounded, per connection by ranges and bytes,
// and in total.
func TestT14(t *testing.T) {
	t.Run("ranges", func(t *testing.T) {
		r := newRig(t)
		c := r.dial(side4(1))
		for i := range 100 {
			c.raw(seg{flags: "A", seq: c.nxt + uint32(2*i) + 1, ack: c.ack, wnd: c.wnd, data: []byte{byte(2*i + 1)}})
		}
		r.drops(map[Drop]uint64{DropOutOfOrder: 100 - maxRanges})
		for i := range maxRanges { // the gaps of those that were kept
			c.raw(seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: []byte{byte(2 * i)}})
			c.nxt += 2
		}
		c.k.Run()
		var want []byte
		for i := range 2 * maxRanges {
			want = append(want, byte(i))
		}
		if got := c.p.ReadAll(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes", len(got))
		}
		c.take(c.side)
		c.bothClose()
	})
	t.Run("bytes", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.OutOfOrder = 10000 }))
		c := r.dial(side4(1))
		for i := range 20 {
			c.raw(seg{flags: "A", seq: c.nxt + uint32(1000*(i+1)), ack: c.ack, wnd: c.wnd, data: pattern(1000, byte(i))})
		}
		r.drops(map[Drop]uint64{DropOutOfOrder: 10})
		if n := r.e.Stats().BufferBytes; n > 2*chunkSize {
			t.Errorf("%d bytes of buffers for 10,000", n)
		}
		r.e.ResetAll()
		r.clean()
	})
	t.Run("total", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.BufferMax = 64 * chunkSize }))
		var cs []*g
		for i := range 100 {
			cs = append(cs, r.dial(side4(uint16(i+1))))
		}
		for _, c := range cs {
			c.raw(seg{flags: "A", seq: c.nxt + 1, ack: c.ack, wnd: c.wnd, data: []byte("x")})
			c.take(c.side)
		}
		s := r.e.Stats()
		if s.BufferBytes > 64*chunkSize || s.Drops[DropOutOfOrder] == 0 {
			t.Errorf("%d bytes of buffers, %d dropped", s.BufferBytes, s.Drops[DropOutOfOrder])
		}
		r.e.ResetAll()
		r.clean()
	})
}

// T15: the urgent pointer means nothing, the bytes are in band.
func TestT15(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	for _, urg := range []uint16{0, 1, 3, 65535} {
		c.raw(seg{flags: "UPA", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: []byte("abc"), urg: urg})
		c.nxt += 3
		c.wantAck()
	}
	if got := c.p.ReadAll(); string(got) != "abcabcabcabc" {
		t.Errorf("target read %q", got)
	}
	c.bothClose()
}

// Segments without a flow (RFC 9293 3.10.7.1), so that connections of an earlier
// backend end (M27).
func TestNoFlow(t *testing.T) {
	r := newRig(t)
	d := side4(1)
	for _, tt := range []struct {
		in   seg
		want string
		seq  uint32
		ack  uint32
	}{
		{seg{flags: "A", seq: 10, ack: 20}, "R", 20, 0},
		{seg{flags: "PA", seq: 10, ack: 20, data: []byte("abc")}, "R", 20, 0},
		{seg{flags: "FA", seq: 10, ack: 20}, "R", 20, 0},
		{seg{flags: "SA", seq: 10, ack: 20}, "R", 20, 0},
	} {
		r.input(r.frame(d, tt.in))
		out := r.take(d)
		if len(out) != 1 || out[0].flags != tt.want || out[0].seq != tt.seq || out[0].ack != tt.ack {
			t.Errorf("%v answered with %v", tt.in, out)
		}
	}
	r.input(r.frame(d, seg{flags: "R", seq: 1}))
	r.input(r.frame(d, seg{flags: "RA", seq: 1, ack: 7}))
	if out := r.take(d); len(out) != 0 {
		t.Errorf("RST answered with %v", out)
	}
	r.drops(map[Drop]uint64{DropNoFlow: 4, DropReset: 2})
	r.clean()
}

// Keepalives of the guest are ACKed, with and without their byte of garbage, and
// turn the host's on.
func TestGuestKeepalive(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	fd := r.k.FDs()[0]
	if r.k.Keepalive(fd) {
		t.Error("keepalive from the start")
	}
	c.raw(seg{flags: "A", seq: c.nxt - 1, ack: c.ack, wnd: c.wnd})
	c.wantAck()
	if !r.k.Keepalive(fd) {
		t.Error("host's keepalive not on")
	}
	c.raw(seg{flags: "A", seq: c.nxt - 1, ack: c.ack, wnd: c.wnd, data: []byte{0}})
	c.wantAck()
	if got := c.p.ReadAll(); len(got) != 0 {
		t.Errorf("delivered %q", got)
	}
	c.bothClose()
}

// Segments of many connections in one batch: one write and one ACK for each.
func TestInterleaved(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		var cs []*g
		var want [8][]byte
		for i := range 8 {
			e := d
			e.guestPort += uint16(i)
			cs = append(cs, r.dial(e))
		}
		var frames []linktest.Frame
		for j := range 20 {
			for i, c := range cs {
				b := pattern(1000, byte(8*j+i))
				want[i] = append(want[i], b...)
				frames = append(frames, r.frame(c.side, seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: b}))
				c.nxt += 1000
			}
		}
		writes, sent := r.k.Calls("Writev"), len(r.ep.Sent)
		r.input(frames...)
		if n := r.k.Calls("Writev") - writes; n != 8 {
			t.Errorf("%d writes, want 8", n)
		}
		if n := len(r.ep.Sent) - sent; n != 8 {
			t.Errorf("%d frames to the guest, want 8", n)
		}
		for i, c := range cs {
			if s := r.decode(c.side, r.ep.Sent[sent+i]); s.ack != c.nxt {
				t.Errorf("ACK %v of connection %d, want %d", s, i, c.nxt)
			}
			if !bytes.Equal(c.p.ReadAll(), want[i]) {
				t.Errorf("stream %d differs", i)
			}
		}
		r.e.ResetAll()
		r.clean()
	})
}

// More slices than one writev takes, in one frame and in one batch.
func TestManySlices(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	want := pattern(60000, 1)
	f := r.frame(c.side, seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: want})
	c.nxt += 60000
	batch := linktest.Batch(10, f) // 6,000 slices
	r.parsed(batch)
	c.wantAck()
	if got := c.p.ReadAll(); !bytes.Equal(got, want) {
		t.Errorf("%d bytes", len(got))
	}
	var frames []linktest.Frame
	want = nil
	for i := range 200 {
		b := pattern(300, byte(i))
		want = append(want, b...)
		frames = append(frames, r.frame(c.side, seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd, data: b}))
		c.nxt += 300
	}
	r.parsed(linktest.Batch(8, frames...))
	c.wantAck()
	if got := c.p.ReadAll(); !bytes.Equal(got, want) {
		t.Errorf("%d bytes of many frames", len(got))
	}
	c.bothClose()
}
