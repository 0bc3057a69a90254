package vnet

import (
	"testing"
	"time"

	"guestwire/vring/vringtest"
)

// TestLostCall: a guest that is called by a signal and does not stir is called
// again, without anything else happening.
func TestLostCall(t *testing.T) {
	r := newRig(t)
	r.h.Discard = true
	r.post(8, 1600)
	call := vringtest.NewSocket(t)
	r.rxq.SetCall(call.FD)
	call.Count() // SetCall signals
	frame := func() {
		s := r.ep().Reserve(54, 10, 1)
		s[0].Used = 10
		r.ep().Commit(1)
		r.turn()
	}
	frame()
	if n := call.Count(); n != 1 {
		t.Fatalf("%d calls, want 1", n)
	}
	frame() // no second one is due
	if n := call.Count(); n != 0 {
		t.Fatalf("%d calls for a driver that has not asked again", n)
	}
	r.clock.Advance(300_000)
	if err := r.loop.Turn(time.Second); err != nil { // need not sleep that long
		t.Fatal(err)
	}
	if n := call.Count(); n != 1 {
		t.Errorf("%d calls after 300 us, want 1", n)
	}
	r.reap()
	r.rx.Q.ArmCall()
	r.clock.Advance(3_000_000)
	r.turn()
	if n := call.Count(); n != 0 {
		t.Errorf("%d calls of a driver that has looked", n)
	}
}
