package vnet

import (
	"testing"

	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/vringtest"
)

// last returns how often the link came up, and whether the last time was fresh.
func (r *rig) last() (n int, fresh bool) {
	n = len(r.h.Ups)
	return n, r.h.Ups[n-1].Fresh
}

// stop stops both rings as GET_VRING_BASE does and returns their bases.
func (r *rig) stop() (base [queues]uint16) {
	for i, q := range []*vring.DeviceQueue{r.rxq, r.txq} {
		r.d.Stop(i)
		base[i] = q.LastAvail()
	}
	return base
}

// start starts both rings from base, over the same memory.
func (r *rig) start(base [queues]uint16) {
	r.rxq, r.txq = r.queue(rxQueue, r.rx.Ring, base[rxQueue]), r.queue(txQueue, r.tx.Ring, base[txQueue])
	r.d.Start(rxQueue, r.rxq)
	r.d.Start(txQueue, r.txq)
}

func (r *rig) enable(on bool) {
	r.d.Enable(rxQueue, on)
	r.d.Enable(txQueue, on)
}

// reboot is a driver that sets the rings up anew.
func (r *rig) reboot() {
	f := vringtest.Features{}
	for _, d := range []*vringtest.Driver{r.rx, r.tx} {
		d.Ring.Start(0)
	}
	r.rx, r.tx = r.rx.Ring.NewDriver(f, 0), r.tx.Ring.NewDriver(f, 0)
	r.start([queues]uint16{})
}

func (r *rig) traffic() {
	r.tb.Helper()
	r.post(2, 2048)
	r.tx.Send(plain(), pattern(60, 1))
	r.settle()
	if !link.Send(r.ep(), pattern(54, 2), nil, link.Offload{}) {
		r.tb.Fatal("no room")
	}
	r.settle()
}

// Features without ring features, so that drivers can be replaced in tests.
var noRing = features(everything &^ (1<<28 | 1<<29 | 1<<35))

func TestLinkFresh(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(r *rig)
		fresh bool
	}{
		{"M26 paused and resumed", func(r *rig) { r.start(r.stop()) }, false},
		{"M26 disabled and enabled", func(r *rig) { r.enable(false); r.enable(true) }, false},
		{"M25 RESET_DEVICE", func(r *rig) { r.stop(); r.d.Reset(); r.reboot(); r.enable(true) }, true},
		{"M25 set up anew without RESET_DEVICE", func(r *rig) { r.stop(); r.reboot() }, true},
		{"another driver", func(r *rig) { r.stop(); r.d.Negotiated(1 << 32); r.reboot() }, true},
		{"same driver says so again", func(r *rig) { b := r.stop(); r.d.Negotiated(r.f | 1<<26 | 1<<30); r.start(b) }, false},
		{"another frontend", func(r *rig) {
			b := r.stop()
			r.d.Disconnected()
			r.start(b)
			r.enable(true)
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, noRing)
			if _, fresh := r.last(); !fresh {
				t.Error("the first guest is not fresh")
			}
			r.traffic()
			tc.do(r)
			if n, fresh := r.last(); n != 2 || r.h.Downs != 1 || fresh != tc.fresh {
				t.Fatalf("%d ups, %d downs, fresh %v; want fresh %v", n, r.h.Downs, fresh, tc.fresh)
			}
			r.h.Reset()
			r.f = r.d.features
			r.traffic()
			if r.h.Count != 1 {
				t.Errorf("%d frames after that", r.h.Count)
			}
		})
	}
}

// TestLinkNeedsBothRings: up only while both run and are enabled.
func TestLinkNeedsBothRings(t *testing.T) {
	r := newRig(t, noRing)
	for i := range queues {
		r.d.Enable(i, false)
		if r.h.Up() {
			t.Errorf("up with ring %d disabled", i)
		}
		r.d.Enable(i, true)
		r.d.Stop(i)
		if r.h.Up() {
			t.Errorf("up with ring %d stopped", i)
		}
		r.d.Stop(i) // M19: twice
		r.d.Start(i, r.queue(i, []*vringtest.Driver{r.rx, r.tx}[i].Ring, 0))
		if !r.h.Up() {
			t.Error("not up again")
		}
	}
}

// TestNothingBeforeTheLink: frames wait in the ring until the link is up.
func TestFramesWaitForTheLink(t *testing.T) {
	r := newRig(t, noRing)
	r.d.Enable(rxQueue, false)
	r.tx.Send(plain(), pattern(60, 1))
	r.settle()
	if r.h.Count != 0 || len(r.tx.Reap()) != 0 {
		t.Fatal("taken before the link was up")
	}
	r.d.Enable(rxQueue, true)
	r.settle()
	if r.h.Count != 1 || len(r.tx.Reap()) != 1 {
		t.Errorf("%d frames after it came up", r.h.Count)
	}
}

// TestDisabled: a transmit ring that runs disabled is consumed, a receive ring
// gets nothing (vhost-user, "Ring states").
func TestDisabled(t *testing.T) {
	r := newRig(t, noRing)
	r.post(4, 2048)
	r.settle()
	r.enable(false)
	for range 3 {
		r.tx.Send(plain(), pattern(60, 1))
	}
	r.settle()
	if n := len(r.tx.Reap()); n != 3 || r.h.Count != 0 || r.drops(DropDisabled) != 3 {
		t.Errorf("%d chains back, %d frames, %d dropped; want 3, 0, 3", n, r.h.Count, r.drops(DropDisabled))
	}
	if link.Send(r.ep(), pattern(54, 2), nil, link.Offload{}) {
		t.Error("M20: delivered to a disabled ring")
	}
	r.d.Kick(rxQueue) // R21
	if r.settle(); r.h.Writables != 0 {
		t.Error("Writable of a disabled ring")
	}
}

// TestStopPublishes: what was completed in the turn that stops the ring reaches
// the driver, and what was reserved comes again.
func TestStopPublishes(t *testing.T) {
	r := newRig(t, noRing)
	r.post(4, 2048)
	if !link.Send(r.ep(), pattern(54, 1), nil, link.Offload{}) {
		t.Fatal("no room")
	}
	r.ep().Reserve(54, 1000, 2) // its owner has not come to Commit
	base := r.stop()
	if n := len(r.reap()); n != 1 || base[rxQueue] != 1 {
		t.Fatalf("%d frames, base %d; want 1, 1", n, base[rxQueue])
	}
	r.ep().Commit(2) // the ring is gone: nothing to commit to
	if r.ep().Reserve(54, 0, 1) != nil {
		t.Error("reserved in a stopped ring")
	}
	r.start(base)
	if !link.Send(r.ep(), pattern(54, 2), nil, link.Offload{}) {
		t.Fatal("no room after the restart")
	}
	r.turn()
	if f := r.reap(); len(f) != 1 {
		t.Errorf("%d frames after the restart", len(f))
	}
}

// TestBrokenRing takes the link down; only a ring set up anew brings it back.
func TestBrokenRing(t *testing.T) {
	for i := range queues {
		r := newRig(t, noRing)
		r.post(1, 2048)
		r.settle()
		ring := []*vringtest.Driver{r.rx, r.tx}[i].Ring
		ring.SetAvailIdx(ring.AvailIdx() + ring.Size + 1) // R1
		r.ep().Reserve(54, 0, 2)
		r.ep().Commit(0)
		r.d.Kick(i)
		r.settle()
		if r.h.Up() || r.h.Downs != 1 {
			t.Fatalf("ring %d: up %v, %d downs", i, r.h.Up(), r.h.Downs)
		}
		if r.ep().Reserve(54, 0, 1) != nil {
			t.Errorf("ring %d: reserved while broken", i)
		}
		r.stop()
		r.reboot()
		if !r.h.Up() {
			t.Errorf("ring %d: not up again", i)
		}
		r.traffic()
	}
}
