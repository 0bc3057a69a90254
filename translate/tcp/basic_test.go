package tcp

import (
	"bytes"
	"testing"
)

// each runs f in the ways the engine can work: families, offloads, and kernels
// with and without SO_PEEK_OFF.
func each(t *testing.T, f func(t *testing.T, d side, opts ...option)) {
	for _, tt := range []struct {
		name string
		d    side
		opts []option
	}{
		{"v4", side4(40001), nil},
		{"v6", side6(40001), nil},
		{"plain", side4(40001), []option{noCaps}},
		{"copy", side4(40001), []option{noPeek}},
		{"copy6plain", side6(40001), []option{noPeek, noCaps}},
	} {
		t.Run(tt.name, func(t *testing.T) { f(t, tt.d, tt.opts...) })
	}
}

func TestOutbound(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		mss := 1460
		if !d.guest.Is4() {
			mss = 1440
		}
		if s := c.first; s.mss != mss || s.wscale != 5 || !s.sackOK || s.wnd != 65535 {
			t.Errorf("SYN-ACK options: %+v", s)
		}
		c.send("PA", []byte("request"))
		c.wantAck()
		if got := c.p.ReadAll(); string(got) != "request" {
			t.Errorf("target read %q", got)
		}
		c.p.Send([]byte("answer"))
		c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("answer")})
		c.ack += 6
		c.send("A", nil)
		c.quiet()
		if n := c.p.Undelivered(); n != 0 {
			t.Errorf("%d bytes left in the kernel after the ACK", n)
		}
		c.bothClose()
	})
}

func TestInbound(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.knock(d)
		if s := c.first; s.mss == -1 || s.wscale != 5 || !s.sackOK {
			t.Errorf("SYN options: %+v", s)
		}
		c.p.Send([]byte("early"))
		r.k.Run()
		c.quiet()
		c.input(r.frame(d, seg{flags: "SA", seq: guestISN, ack: c.ack, wnd: 65535, mss: 1460, wscale: 7, sackOK: true}))
		c.nxt = guestISN + 1
		c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("early")})
		c.ack += 5
		c.send("PA", []byte("reply"))
		c.wantAck()
		if got := c.p.ReadAll(); string(got) != "reply" {
			t.Errorf("peer read %q", got)
		}
		c.bothClose()
	})
}

// TestBulk moves a megabyte each way.
func TestBulk(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, opts...)
		c := r.dial(d)
		want := pattern(1<<20, 1)
		var got []byte
		for off := 0; off < len(want); {
			n := min(1400, len(want)-off)
			c.send("A", want[off:off+n])
			off += n
			c.wantAck()
			got = append(got, c.p.ReadAll()...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("upload: %d bytes, want %d", len(got), len(want))
		}
		want = pattern(1<<20, 2)
		c.p.Send(want)
		got, _ = c.recv()
		if !bytes.Equal(got, want) {
			t.Fatalf("download: %d bytes, want %d", len(got), len(want))
		}
		c.bothClose()
	})
}
