package tcp

import (
	"syscall"
	"testing"
	"time"

	"guestwire/translate/wire"
)

// T1: a flood of SYNs meets limits; what is established is untouched.
func TestT1(t *testing.T) {
	t.Run("half-open", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.MaxHalfOpen = 10 }))
		c := r.dial(side4(50000))
		for i := range 30 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(1000 + i), 80}, seg{flags: "S", mss: 1460}))
		}
		if s := r.e.Stats(); s.HalfOpen != 10 || s.Drops[DropSynLimit] != 20 {
			t.Errorf("%d half open, %d refused", s.HalfOpen, s.Drops[DropSynLimit])
		}
		// After its grace time the oldest makes room, one for one.
		r.advance(halfOpenGrace)
		for i := range 5 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(2000 + i), 80}, seg{flags: "S", mss: 1460}))
		}
		if s := r.e.Stats(); s.HalfOpen != 10 || s.Evicted != 5 || s.Drops[DropSynLimit] != 20 {
			t.Errorf("%d half open, %d evicted, %d refused", s.HalfOpen, s.Evicted, s.Drops[DropSynLimit])
		}
		r.take(c.side)
		c.send("PA", []byte("x"))
		c.wantAck()
		r.advance(time.Minute + time.Second) // T2: black holes are not held for ever
		if s := r.e.Stats(); s.HalfOpen != 0 || s.Flows != 1 {
			t.Errorf("%d half open, %d flows", s.HalfOpen, s.Flows)
		}
		c.quiet() // and in silence: the guest's own timer decides
		c.p.ReadAll()
		c.bothClose()
	})
	t.Run("rate", func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.FlowRate = 100 }))
		burst := func(from, n int) {
			for i := range n {
				r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(from + i), 80}, seg{flags: "S"}))
			}
		}
		burst(1000, 150)
		r.drops(map[Drop]uint64{DropSynRate: 50})
		r.advance(100 * time.Millisecond)
		burst(2000, 50)
		r.drops(map[Drop]uint64{DropSynRate: 90})
		r.e.ResetAll()
		r.clean()
	})
	t.Run("table", func(t *testing.T) {
		r := newRig(t, few(4))
		for i := range 6 {
			r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), uint16(1000 + i), 80}, seg{flags: "S"}))
		}
		r.drops(map[Drop]uint64{DropFlowLimit: 2})
		r.advance(halfOpenGrace)
		r.input(r.frame(side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), 1010, 80}, seg{flags: "S"}))
		r.drops(map[Drop]uint64{DropFlowLimit: 2})
		if s := r.e.Stats(); s.Evicted != 1 || s.Flows != 4 {
			t.Errorf("%d evicted, %d flows", s.Evicted, s.Flows)
		}
		r.e.ResetAll()
		r.clean()
	})
	// The host's descriptors are such a limit, too.
	t.Run("descriptors", func(t *testing.T) {
		r := newRig(t)
		hole := func(port uint16) side {
			return side{guest4, wire.Addr4([4]byte{203, 0, 113, 1}), port, 80}
		}
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
			r.input(r.frame(hole(1000), seg{flags: "S"}))
			r.k.FailNext("Dial", errno)
			r.input(r.frame(hole(1001), seg{flags: "S"})) // nobody has had its chance yet: in vain
			if s := r.e.Stats(); s.HalfOpen != 1 || s.ConnectErrors != 1 {
				t.Errorf("%v: %d half open, %d connects failed", errno, s.HalfOpen, s.ConnectErrors)
			}
			r.advance(halfOpenGrace)
			r.k.FailNext("Dial", errno)
			r.input(r.frame(hole(1002), seg{flags: "S"}))
			if s := r.e.Stats(); s.HalfOpen != 1 || s.Evicted != 1 || s.ConnectErrors != 1 {
				t.Errorf("%v: %d half open, %d evicted, %d connects failed", errno, s.HalfOpen, s.Evicted, s.ConnectErrors)
			}
			r.e.ResetAll()
			r.e.stats = Stats{}
		}
		r.clean()
	})
}

// A lingering connection goes before a half-open one, and an established one
// stays.
func TestEviction(t *testing.T) {
	r := newRig(t, few(2))
	a := r.dial(side4(1))
	b := r.dial(side4(2))
	b.p.CloseWrite()
	b.recv()
	b.send("FA", nil)
	b.wantAck()
	b.wantState(TimeWait)
	c := r.dial(side4(3))
	if a.state() != Established || b.state() != Closed || c.state() != Established {
		t.Errorf("states %v %v %v", a.state(), b.state(), c.state())
	}
	r.input(r.frame(side4(4), seg{flags: "S"}))
	r.drops(map[Drop]uint64{DropFlowLimit: 1})
	r.e.ResetAll()
	r.clean()
}
