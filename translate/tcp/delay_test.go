package tcp

import (
	"testing"
	"time"
)

// timed gives the scripted kernel a clock, so that a socket can be asked about
// again at a time.
func timed(r *rig, _ *Config) { r.k.Clock = r.time }

// request sends one, which is acknowledged at once or with the answer.
func (c *g) request(alone bool, after time.Duration) {
	c.t.Helper()
	c.send("PA", []byte("request"))
	if alone {
		c.wantAck()
	} else {
		c.quiet()
	}
	if string(c.p.ReadAll()) != "request" {
		c.t.Fatal("the target has not got the request")
	}
	c.advance(after)
	c.p.Send([]byte("answer"))
	c.want(seg{flags: "PA", seq: c.ack, ack: c.nxt, data: []byte("answer")})
	c.ack += 6
	c.send("A", nil)
	c.quiet()
}

const soon, late = 50 * time.Microsecond, 300 * time.Microsecond

// TestDelayedAck: where answers come at once the ACK goes with them (RFC 9293
// 3.8.6.3), else at once; also on the next connection.
func TestDelayedAck(t *testing.T) {
	each(t, func(t *testing.T, d side, opts ...option) {
		r := newRig(t, append(opts, timed)...)
		c := r.dial(d)
		for range ackAnswers {
			c.request(true, soon)
		}
		for range 3 {
			c.request(false, soon)
		}
		if n := r.e.Stats().AcksHeld; n != 3 {
			t.Errorf("%d ACKs have waited, want 3", n)
		}
		c.bothClose()

		d.guestPort++
		c = r.dial(d)
		c.request(false, soon)
		c.bothClose()
	})
}

// TestDelayedAckAlone: an ACK without an answer goes after ackHold, and the next
// ones do not wait until answers are fast again.
func TestDelayedAckAlone(t *testing.T) {
	r := newRig(t, timed)
	c := r.dial(side4(40001))
	for range ackAnswers {
		c.request(true, soon)
	}
	c.send("PA", []byte("tell"))
	r.advance(time.Duration(ackHold) - time.Microsecond)
	c.quiet()
	r.advance(time.Microsecond)
	c.wantAck()
	c.p.ReadAll()
	c.request(true, late)
	c.request(true, late)
	for range ackAnswers {
		c.request(true, soon)
	}
	c.request(false, soon)
}

// TestDelayedAckSecond: the second of two pieces is acknowledged at once, with the first.
func TestDelayedAckSecond(t *testing.T) {
	r := newRig(t, timed)
	c := r.dial(side4(40001))
	for range ackAnswers {
		c.request(true, soon)
	}
	c.send("PA", []byte("one"))
	c.quiet()
	c.send("PA", []byte("two"))
	c.wantAck()
	r.advance(late)
	c.quiet()
}

// TestDelayedAckBulk: full segments, the end of the stream, and what leaves a hole are
// acknowledged at once.
func TestDelayedAckBulk(t *testing.T) {
	for name, f := range map[string]func(c *g){
		"full": func(c *g) { c.send("PA", pattern(1460, 1)); c.wantAck() },
		"fin": func(c *g) {
			c.send("FPA", []byte("end"))
			c.wantAck()
		},
		"ahead": func(c *g) {
			c.raw(seg{flags: "PA", seq: c.nxt + 10, ack: c.ack, wnd: c.wnd, data: []byte("ahead")})
			c.wantAck()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, timed)
			c := r.dial(side4(40001))
			for range ackAnswers {
				c.request(true, soon)
			}
			f(c)
		})
	}
}
