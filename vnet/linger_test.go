package vnet

import (
	"testing"
	"time"

	"guestwire/vring/eventloop"
)

// TestNoKicksWhileLingering: in transactions the ring is looked at, and the driver
// need not kick. A driver that is waited for too long is asked for a kick again.
func TestNoKicksWhileLingering(t *testing.T) {
	r := newRig(t)
	r.loop.SetPoll(eventloop.PollAuto)
	r.h.Discard = true
	r.post(100, 1600)
	r.transact(5, 60, 3, true)
	before := r.tx.Q.Stats().Kicks
	r.transact(20, 60, 3, true)
	if n := r.tx.Q.Stats().Kicks - before; n != 0 {
		t.Errorf("%d kicks in 20 transactions", n)
	}
	r.transact(20, 60, 25, true) // a host that takes longer than the loop looks
	if n := r.tx.Q.Stats().Kicks - before; n != 0 {
		t.Errorf("%d kicks in 20 transactions with a slower host", n)
	}
	for range 20 {
		r.clock.Advance(20 * time.Microsecond)
		r.turn()
	}
	r.tx.Send(plain(), pattern(60, 1))
	if n := r.tx.Q.Stats().Kicks - before; n != 1 {
		t.Errorf("%d kicks after a pause, want 1", n)
	}
}
