package tcp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"guestwire/vnet/link"
)

// Super-frames: multiples of the MSS, no larger than an IP packet, with the
// offload fields that cut them; one read fills several.
func TestSuperFrames(t *testing.T) {
	for _, d := range []side{side4(1), side6(1)} {
		r := newRig(t)
		c := r.dial(d)
		mss, gso := 1460, link.GSOTCPv4
		if !d.guest.Is4() {
			mss, gso = 1440, link.GSOTCPv6
		}
		want := pattern(1<<20, 1)
		c.p.Send(want)
		var got []byte
		full := 0
		for len(got) < len(want) {
			r.k.Run()
			segs := c.take(d)
			if len(segs) == 0 {
				t.Fatalf("%d bytes, then nothing", len(got))
			}
			for i, s := range segs {
				switch {
				case len(s.data) > mss && (s.gso != gso || int(s.size) != mss):
					t.Errorf("%d bytes with GSO %v of %d", len(s.data), s.gso, s.size)
				case len(s.data) <= mss && s.gso != link.GSONone:
					t.Errorf("%d bytes with GSO %v", len(s.data), s.gso)
				case len(s.data)%mss != 0 && i != len(segs)-1:
					t.Errorf("segment %d of %d has %d bytes", i, len(segs), len(s.data))
				}
				if len(s.data)/mss == 65535/mss-1 || len(s.data)/mss == 65535/mss {
					full++
				}
				got = append(got, s.data...)
				c.ack += uint32(len(s.data))
			}
			if last := segs[len(segs)-1]; last.flags != "PA" {
				t.Errorf("last segment %v without PSH", last)
			}
			c.send("A", nil)
		}
		if !bytes.Equal(got, want) {
			t.Error("stream differs")
		}
		if full < 10 {
			t.Errorf("%d full super-frames in a megabyte", full)
		}
		c.bothClose()
	}
}

// One read per wake for a small answer, and few for a large one.
func TestReadsPerWake(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	for range 10 {
		n := r.k.Calls("Peekv")
		c.p.Send([]byte("small"))
		c.recv()
		if n = r.k.Calls("Peekv") - n; n != 1 {
			t.Errorf("%d reads for a small answer", n)
		}
	}
	n, sets := r.k.Calls("Peekv"), r.k.Calls("SetPeekOffset")
	c.p.Send(pattern(1<<20, 1))
	c.recv()
	if n = r.k.Calls("Peekv") - n; n > 10 {
		t.Errorf("%d reads for a megabyte", n)
	}
	if r.k.Calls("SetPeekOffset") != sets {
		t.Error("peek offset set although nothing was lost")
	}
	c.bothClose()
}

// An ACK that is owed goes along with data.
func TestPiggyback(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1460, wscale: 0, wnd: 3})
	c.p.Send([]byte("abcdef"))
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("abc")})
	c.ack += 3
	c.send("PA", []byte("request"))
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("def")})
	c.ack += 3
	c.send("A", nil)
	c.p.ReadAll()
	c.bothClose()
}

// A guest ring without room: bytes, ACKs, SYNs, FINs and RSTs wait, and go on
// when there is some; connections take turns.
func TestNoRoom(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		r.ep.Room = 0
		want := pattern(300_000, 1)
		c.p.Send(want)
		c.send("PA", []byte("up"))
		r.k.Run()
		c.quiet()
		if got := c.p.ReadAll(); string(got) != "up" {
			t.Errorf("target read %q", got)
		}
		var got []byte
		for range 2000 {
			if r.ep.Post(1) {
				r.e.Writable()
			}
			r.k.Run()
			for _, s := range c.take(d) {
				if s.ack != c.nxt || s.seq != c.ack {
					t.Fatalf("%v, want seq %d ack %d", s, c.ack, c.nxt)
				}
				got = append(got, s.data...)
				c.ack += uint32(len(s.data))
			}
			c.send("A", nil)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
		c.p.CloseWrite()
		r.ep.Room = 0
		r.k.Run()
		c.quiet()
		r.ep.Room = -1
		r.e.Writable()
		c.want(seg{flags: "FA", seq: c.ack, ack: c.nxt})
		c.ack++
		c.send("FA", nil)
		c.wantAck()
		r.advance(2 * time.Second)
		r.clean()
	})
}

// Many connections and little room: all get on.
func TestFairness(t *testing.T) {
	r := newRig(t, noCaps)
	var cs [10]*g
	got := [10]int{}
	for i := range cs {
		cs[i] = r.dial(side4(uint16(i + 1)))
	}
	r.ep.Room = 0
	for _, c := range cs {
		c.p.Send(pattern(500_000, 1))
	}
	r.k.Run()
	for range 100 {
		if r.ep.Post(7) {
			r.e.Writable()
		}
		for ; r.seen < len(r.ep.Sent); r.seen++ {
			f := r.ep.Sent[r.seen]
			i := int(f.Data[36])<<8 + int(f.Data[37]) - 1
			got[i] += len(r.decode(cs[i].side, f).data)
		}
	}
	for i, n := range got {
		if n < 50_000 || n > 150_000 {
			t.Errorf("connection %d got %d of %d", i, n, got)
		}
	}
	r.ep.Room = -1
	r.e.ResetAll()
	r.clean()
}

// The link goes down and comes up again without a fresh guest (M26).
func TestLinkDown(t *testing.T) {
	r := newRig(t)
	c := r.dial(side4(1))
	r.port.Up = false
	c.p.Send([]byte("later"))
	r.k.Run()
	r.advance(10 * time.Minute)
	c.quiet()
	c.wantState(Established)
	r.port.Up = true
	r.e.Writable()
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("later")})
	c.ack += 5
	c.send("A", nil)
	c.bothClose()
}

// The target's end comes with its last bytes.
func TestFinAlong(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		c.p.Send([]byte("bye"))
		c.p.CloseWrite()
		c.want(seg{flags: "FPA", seq: c.ack, ack: c.nxt, data: []byte("bye")})
		c.ack += 4
		c.send("FA", nil)
		c.wantAck()
		r.advance(2 * time.Second)
		r.clean()
	})
}

// A reader that is always behind must not keep the loop from others: one turn's
// worth, then Again.
func TestTurnBudget(t *testing.T) {
	r := newRig(t)
	c := r.dialWith(side4(1), seg{mss: 1460, wscale: 14, wnd: 65535})
	c.p.SetReceiveBuffer(8 << 20)
	c.p.Send(pattern(4<<20, 1))
	r.k.Pump()
	n := 0
	for _, s := range c.take(c.side) {
		n += len(s.data)
	}
	if n < turnBytes || n > turnBytes+maxRead {
		t.Errorf("%d bytes in a turn, want about %d", n, turnBytes)
	}
	if r.k.Calls("Again") != 1 {
		t.Errorf("Again called %d times", r.k.Calls("Again"))
	}
	r.k.Run()
	for _, s := range c.take(c.side) {
		n += len(s.data)
	}
	if n != 4<<20 {
		t.Errorf("%d bytes", n)
	}
	r.e.ResetAll()
	r.clean()
}

// Without SO_PEEK_OFF: what is kept is bounded, per connection and in total, and
// given back when it is ACKed.
func TestCopyBounds(t *testing.T) {
	r := newRig(t, noPeek, with(func(c *Config) { c.BufferMax, c.CopyMax = 64*chunkSize, 16*chunkSize }))
	var cs [8]*g
	got := [8][]byte{}
	want := pattern(1<<20, 1)
	for i := range cs {
		cs[i] = r.dial(side4(uint16(i + 1)))
	}
	for _, c := range cs {
		c.p.Send(want)
	}
	r.k.Run()
	if n := r.e.Stats().BufferBytes; n > 64*chunkSize {
		t.Fatalf("%d bytes of buffers", n)
	}
	for range 3000 {
		r.k.Run()
		var moved [8]bool
		for ; r.seen < len(r.ep.Sent); r.seen++ {
			f := r.ep.Sent[r.seen]
			i := int(f.Data[36])<<8 + int(f.Data[37]) - 1
			s := r.decode(cs[i].side, f)
			if s.seq == cs[i].ack {
				got[i] = append(got[i], s.data...)
				cs[i].ack += uint32(len(s.data))
			}
			moved[i] = true
		}
		done := true
		for i, c := range cs {
			if moved[i] {
				c.input(r.frame(c.side, seg{flags: "A", seq: c.nxt, ack: c.ack, wnd: c.wnd}))
			}
			done = done && len(got[i]) == len(want)
		}
		if done {
			break
		}
	}
	for i := range got {
		if !bytes.Equal(got[i], want) {
			t.Errorf("connection %d: %d bytes", i, len(got[i]))
		}
	}
	if n := r.e.Stats().BufferBytes; n != 0 {
		t.Errorf("%d bytes of buffers at rest", n)
	}
	r.e.ResetAll()
	r.clean()
}

// S1: every call on the host socket fails once with an errno; the guest is told,
// and nothing is left.
func TestHostCallsFail(t *testing.T) {
	for _, method := range []string{"Writev", "Peekv", "Readv", "Discard", "SetPeekOffset", "Shutdown", "SetKeepalive", "Watch", "Dial"} {
		for _, errno := range []syscall.Errno{syscall.ECONNRESET, syscall.EPIPE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ETIMEDOUT, syscall.EIO} {
			for _, opts := range [][]option{nil, {noPeek}} {
				r := newRig(t, opts...)
				d := side4(1)
				r.k.Serve(target4)
				if method == "Dial" || method == "Watch" {
					r.k.FailNext(method, errno)
				}
				r.input(r.frame(d, seg{flags: "S", seq: guestISN, mss: 1460, wscale: 7, wnd: 65535}))
				r.k.Run()
				if out := r.take(d); len(out) == 1 && out[0].flags == "SA" {
					c := &g{rig: r, side: d, nxt: guestISN + 1, ack: out[0].seq + 1, wnd: 65535, p: r.k.Peer(r.k.FDs()[0])}
					c.send("A", nil)
					r.k.FailNext(method, errno)
					if method == "SetPeekOffset" {
						c.p.Send([]byte("lost"))
						r.k.Run()
						r.advance(2 * time.Second) // the timeout goes back
					}
					c.send("A", []byte("hello"))
					r.k.Run()
					c.p.Send([]byte("world"))
					r.k.Run()
					c.ack = ackAll(c.take(d), c.ack)
					c.send("A", nil)
					c.raw(seg{flags: "A", seq: c.nxt - 1, ack: c.ack, wnd: c.wnd})
					c.send("FA", nil)
					r.k.Run()
					c.p.Close()
					r.k.Run()
					c.ack = ackAll(c.take(d), c.ack)
					c.send("A", nil)
					r.k.Run()
				}
				r.advance(10 * time.Minute)
				r.clean()
			}
		}
	}
}

// ackAll is the ACK number for segs that follow each other from ack on.
func ackAll(segs []seg, ack uint32) uint32 {
	for _, s := range segs {
		n := uint32(len(s.data))
		if len(s.flags) > 0 && s.flags[0] == 'F' {
			n++
		}
		if s.seq == ack {
			ack += n
		}
	}
	return ack
}

// TestEndWithinShortRoom: an end that is read into fewer buffers than were asked
// for needs none that the guest would have to post.
func TestEndWithinShortRoom(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, append(opts, noCaps)...)
		c := r.dial(d)
		c.p.Send([]byte("answer"))
		c.recv()
		r.ep.Room = 1
		c.p.CloseWrite()
		if data, fin := c.recv(); len(data) > 0 || !fin {
			t.Errorf("got %q, FIN %v", data, fin)
		}
	})
}
