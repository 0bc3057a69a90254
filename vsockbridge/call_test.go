package vsockbridge

import (
	"testing"
	"time"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
	"guestwire/vsockbridge/packet"
)

// TestTransmitCall: the driver is called at once for long packets and for many,
// for a short one within a millisecond, and once.
func TestTransmitCall(t *testing.T) {
	for _, tc := range []struct {
		name          string
		packets, size int
		atOnce        bool
	}{{"short", 1, 10, false}, {"long", 1, txHeldBytes, true}, {"many", 128 / txHeld, 10, true}, {"few", 128/txHeld - 1, 10, false}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, without(vhostuser.RingFEventIdx))
			g := r.guest(1000, 80)
			g.connect()
			r.clock.Advance(5 * time.Millisecond)
			r.settle()
			r.calls[txQueue].Count()
			for range tc.packets {
				g.send(make([]byte, tc.size), 0)
			}
			r.turn()
			if n := r.calls[txQueue].Count(); (n == 1) != tc.atOnce {
				t.Errorf("%d calls at once", n)
			}
			r.clock.Advance(5 * time.Millisecond)
			r.settle()
			if n := r.calls[txQueue].Count(); (n == 1) == tc.atOnce {
				t.Errorf("%d calls later", n)
			}
			r.clock.Advance(time.Second)
			r.settle()
			if n := r.calls[txQueue].Count(); n != 0 {
				t.Errorf("%d calls for nothing", n)
			}
		})
	}
}

// TestLostCall: a guest that is called by a signal and does not stir is called
// again, without anything else happening.
func TestLostCall(t *testing.T) {
	r := newRig(t)
	r.post(8)
	call := vringtest.NewSocket(t)
	r.d.rings[rxQueue].SetCall(call.FD)
	call.Count() // SetCall signals
	r.d.refuse(&packet.Header{SrcCID: 3, DstCID: 2, SrcPort: 1, DstPort: 2, Type: packet.Stream})
	r.turn()
	if n := call.Count(); n != 1 {
		t.Fatalf("%d calls, want 1", n)
	}
	r.clock.Advance(300 * time.Microsecond)
	if err := r.loop.Turn(time.Second); err != nil { // need not sleep that long
		t.Fatal(err)
	}
	if n := call.Count(); n != 1 {
		t.Errorf("%d calls after 300 us, want 1", n)
	}
}

// TestMessageDropped: a host message that waits for receive buffers goes with its
// connection.
func TestMessageDropped(t *testing.T) {
	r := newRig(t)
	g, s := r.seqpacket(1000, 80)
	r.post(2)
	s.write(pattern(20_000, 1))
	r.settle()
	if r.d.pool.out == 0 {
		t.Fatal("nothing waits: the test is of nothing")
	}
	g.do(packet.Reset, 0)
	if r.d.pool.out != 0 || r.d.conns.used != 0 {
		t.Errorf("%d chunks are left", r.d.pool.out)
	}
}
