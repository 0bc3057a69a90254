package vnet

import (
	"testing"
	"time"

	"guestwire/vring/eventloop"
)

const step = 10 * time.Microsecond

// drive has the driver send n frames, one every so many steps, and turns the loop
// every step. Like Linux's (virtqueue_enable_cb_delayed), the driver takes back
// what has been returned when it sends, and wants a call at three quarters of the
// rest. It returns kicks and calls.
func (r *rig) drive(n, every int) (kicks, calls uint64) {
	r.tb.Helper()
	r.h.Discard = true
	out := 0
	for i := range n {
		if _, ok := r.tx.Send(plain(), pattern(60, uint64(i))); !ok {
			r.tb.Fatal("ring is full")
		}
		out++
		kicks += r.tx.Kick.Count()
		r.d.Kick(txQueue) // also when not kicked: it must do no harm
		out -= len(r.tx.Reap())
		r.tx.Q.ArmCallBeyond(out * 3 / 4)
		for range every {
			r.clock.Advance(step)
			if err := r.loop.Turn(0); err != nil {
				r.tb.Fatal(err)
			}
		}
		calls += r.calls[txQueue].Count()
	}
	return kicks, calls
}

// TestTxStream: a driver that sends a frame every 40 us neither kicks for each nor
// is called for each; nothing stays behind when it stops.
func TestTxStream(t *testing.T) {
	for name, f := range map[string]uint64{"plain ring": r0, "all ring features": everything} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f))
			const frames = 400
			kicks, calls := r.drive(frames, 4)
			if kicks > 8 || calls > frames/txHeld+8 {
				t.Errorf("%d kicks and %d calls for %d frames", kicks, calls, frames)
			}
			r.settle()
			if r.h.Count != frames || r.txq.Stats().Pushes != frames {
				t.Errorf("%d frames, %+v", r.h.Count, r.txq.Stats())
			}
			if r.txq.Quiet() != 0 {
				t.Errorf("%d chains returned without a decision", r.txq.Quiet())
			}
			before := r.loop.Stats().Agains
			for range 100 {
				r.clock.Advance(step)
				r.turn()
			}
			if n := r.loop.Stats().Agains - before; n != 0 {
				t.Errorf("%d turns while the driver is silent", n)
			}
			r.tx.Send(plain(), pattern(60, 1))
			if r.tx.Kick.Count() != 1 {
				t.Error("no kick was asked for after the stream")
			}
		})
	}
}

// TestTxTransactions: a driver that gets a frame for each that it sends is
// served at once, every time.
func TestTxTransactions(t *testing.T) {
	r := newRig(t)
	r.h.Discard = true
	r.post(256, 1600)
	answer := func() {
		s := r.ep().Reserve(54, 10, 1)
		s[0].Used = 10
		r.ep().Commit(1)
	}
	for i := range 100 {
		r.tx.Send(plain(), pattern(60, 1))
		r.kick()
		if err := r.loop.Turn(0); err != nil { // it may poll, but not rest
			t.Fatal(err)
		}
		if r.h.Count != i+1 {
			t.Fatalf("request %d waits", i)
		}
		answer()
		r.clock.Advance(2 * step)
		r.turn()
		r.tx.Reap()
	}
	if r.d.tx.pace.resting {
		t.Error("rests between transactions")
	}
}

// TestTxStreamEnds: when what the driver sends is answered, it has become
// something else, and is not made to wait.
func TestTxStreamEnds(t *testing.T) {
	r := newRig(t)
	r.post(256, 1600)
	r.drive(20, 4)
	if !r.d.tx.pace.resting {
		t.Fatal("the driver does not stream")
	}
	for range 3 * txAnswered {
		r.drive(1, 4)
		s := r.ep().Reserve(54, 10, 1)
		s[0].Used = 10
		r.ep().Commit(1)
	}
	if r.d.tx.pace.resting {
		t.Error("rests although every frame is answered")
	}
}

// TestTxStreamFast: a driver that fills its ring quicker than the rest lasts
// finds room all the same.
func TestTxStreamFast(t *testing.T) {
	r := newRig(t, ringSize(64))
	r.h.Discard = true
	sent := 0
	for range 3000 {
		for range 2 {
			if _, ok := r.tx.Send(plain(), pattern(60, 1)); ok {
				sent++
			}
		}
		r.kick()
		r.clock.Advance(step / 2)
		if err := r.loop.Turn(0); err != nil {
			t.Fatal(err)
		}
		r.tx.Reap()
	}
	if sent < 5990 {
		t.Errorf("room for %d of 6000 frames", sent)
	}
}

// TestPaceWaitedFor: a driver whose socket has room for two frames only goes on
// when it is called. It is soon not made to wait any more; one that streams
// later is believed again.
func TestPaceWaitedFor(t *testing.T) {
	p := pace{}
	now := eventloop.Time(time.Second)
	rests := 0
	for range 1000 {
		p.kicked(now, 0)
		if p.resting { // it sends two frames, and then waits for us
			rests++
			if _, ok := p.rest(now, 2, 256); !ok {
				t.Fatal("no rest after frames")
			}
			if now += txRest - 1; p.resting {
				if _, ok := p.rest(now, 0, 256); !ok {
					t.Fatal("a rest ended early")
				}
			}
			if now++; p.resting {
				if _, ok := p.rest(now, 0, 256); ok {
					t.Fatal("rests on with nothing to be found")
				}
			}
			p.arm(now, 2)
		} else {
			p.arm(now, 0)
		}
		now += 20_000
	}
	if rests > 15 {
		t.Errorf("made it wait %d times in 1000", rests)
	}
	for range 10 { // it is slow now: each pause is forgiveness
		now += eventloop.Time(time.Millisecond)
		p.kicked(now, 0)
		p.arm(now, 0)
	}
	for range txPrompts + 1 {
		now += 30_000
		p.kicked(now, 0)
		p.arm(now, 0)
	}
	if !p.resting {
		t.Error("a stream is not believed any more")
	}
}

// TestTxStreamLinkDown: what was returned quietly is not forgotten when nobody
// is there to give frames to.
func TestTxStreamLinkDown(t *testing.T) {
	r := newRig(t)
	r.h.Discard = true
	r.drive(20, 4)
	if !r.d.tx.pace.resting || r.txq.Quiet() == 0 {
		t.Fatal("the driver does not stream")
	}
	r.calls[txQueue].Count()
	r.d.Stop(rxQueue)
	for range 20 {
		r.clock.Advance(step)
		r.turn()
	}
	if r.txq.Quiet() != 0 {
		t.Errorf("%d chains returned without a decision", r.txq.Quiet())
	}
	r.d.Start(rxQueue, r.queue(rxQueue, r.rx.Ring, r.rxq.LastAvail()))
	r.d.Enable(rxQueue, true)
	r.tx.Send(plain(), pattern(60, 1))
	r.settle()
	if r.h.Count != 21 {
		t.Errorf("%d frames", r.h.Count)
	}
}
