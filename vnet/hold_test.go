package vnet

import (
	"testing"
	"time"
)

// transact has the driver send n frames of size bytes, each answered after so
// many steps; Linux's driver takes its buffers back when the answer interrupts
// it, and then waits for the next. It returns the transmit ring's calls.
func (r *rig) transact(n, size, after int, takesBack bool) (calls uint64) {
	r.tb.Helper()
	for range n {
		r.tx.Send(plain(), pattern(size, 1))
		r.turn()
		for range after {
			r.clock.Advance(step)
			r.turn()
		}
		s := r.ep().Reserve(54, 10, 1)
		s[0].Used = 10
		r.ep().Commit(1)
		r.turn()
		if r.calls[rxQueue].Count() != 1 {
			r.tb.Fatal("no call for the answer")
		}
		if takesBack {
			r.tx.Reap()
			r.tx.Q.ArmCall()
		}
		r.reap()
		r.rx.Q.ArmCall()
		r.post(1, 1600)
		for range 5 {
			r.clock.Advance(step)
			r.turn()
		}
		calls += r.calls[txQueue].Count()
	}
	return calls
}

func newHoldRig(t *testing.T) *rig {
	r := newRig(t)
	r.h.Discard = true
	r.post(100, 1600)
	r.transact(callAnswers+1, 60, 3, true)
	return r
}

// TestTxCallHeld: while the guest is answered, its own buffers come back without
// a call of their own.
func TestTxCallHeld(t *testing.T) {
	r := newHoldRig(t)
	if n := r.transact(50, 60, 3, true); n != 0 {
		t.Errorf("%d calls of the transmit ring in 50 transactions", n)
	}
	if n := r.transact(20, 6000, 3, true); n != 20 {
		t.Errorf("%d calls in 20 transactions of 6,000 bytes", n)
	}
	if n := r.transact(20, 60, 30, true); n < 19 {
		t.Errorf("%d calls in 20 transactions with slow answers", n)
	}
}

// TestTxCallComes: a driver that does not look by itself gets its call, after
// callAwait without an answer, callAfter with one.
func TestTxCallComes(t *testing.T) {
	await := func(r *rig, what time.Duration) {
		t.Helper()
		for d := time.Duration(0); d < what-step; d += step {
			if r.calls[txQueue].Count() != 0 {
				t.Fatalf("called %v early", what-d)
			}
			r.clock.Advance(step)
			r.turn()
		}
		r.clock.Advance(2 * step)
		r.turn() // the one that the rest wakes
		r.turn()
		if r.calls[txQueue].Count() != 1 || r.txq.Quiet() != 0 {
			t.Errorf("no call after %v; %d chains wait", what, r.txq.Quiet())
		}
	}
	t.Run("without an answer", func(t *testing.T) {
		r := newHoldRig(t)
		r.tx.Send(plain(), pattern(60, 1))
		r.turn()
		await(r, time.Duration(callAwait))
		r.tx.Reap()
		r.tx.Q.ArmCall()
		r.tx.Send(plain(), pattern(60, 1))
		r.turn()
		if r.calls[txQueue].Count() != 1 {
			t.Error("the next call waits as well")
		}
	})
	t.Run("with an answer", func(t *testing.T) {
		r := newHoldRig(t)
		if n := r.transact(1, 60, 3, false); n != 0 {
			t.Fatal("called at once")
		}
		await(r, time.Duration(callAfter)-5*step)
	})
	t.Run("stopped", func(t *testing.T) {
		r := newHoldRig(t)
		r.tx.Send(plain(), pattern(60, 1))
		r.turn()
		r.d.Stop(txQueue)
		if r.calls[txQueue].Count() != 1 {
			t.Error("the ring stops without the call")
		}
	})
}
