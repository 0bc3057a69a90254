package vring

import (
	"testing"
	"time"

	"guestwire/vring/eventloop"
)

// TestPaceWaitedFor: a driver whose socket has room for two frames only goes on
// when it is called. It is soon not made to wait any more; one that streams
// later is believed again.
func TestPaceWaitedFor(t *testing.T) {
	p := Pace{}
	now := eventloop.Time(time.Second)
	rests := 0
	for range 1000 {
		p.Kicked(now, 0)
		if p.resting { // it sends two frames, and then waits for us
			rests++
			if _, ok := p.Rest(now, 2, 256); !ok {
				t.Fatal("no rest after frames")
			}
			if now += PaceRest - 1; p.resting {
				if _, ok := p.Rest(now, 0, 256); !ok {
					t.Fatal("a rest ended early")
				}
			}
			if now++; p.resting {
				if _, ok := p.Rest(now, 0, 256); ok {
					t.Fatal("rests on with nothing to be found")
				}
			}
			p.Arm(now, 2)
		} else {
			p.Arm(now, 0)
		}
		now += 20_000
	}
	if rests > 15 {
		t.Errorf("made it wait %d times in 1000", rests)
	}
	for range 10 { // it is slow now: each pause is forgiveness
		now += eventloop.Time(time.Millisecond)
		p.Kicked(now, 0)
		p.Arm(now, 0)
	}
	for range pacePrompts + 1 {
		now += 30_000
		p.Kicked(now, 0)
		p.Arm(now, 0)
	}
	if !p.resting {
		t.Error("a stream is not believed any more")
	}
}
