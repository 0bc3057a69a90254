package vring_test

import (
	"testing"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vringtest"
)

const us = eventloop.Time(1000)

// calledOn is a queue that has called by a socket for one of two chains, on a
// driver that waits for that call.
func calledOn(t *testing.T, eventIdx bool) (*vringtest.Ring, *vringtest.Socket, *vring.DeviceQueue) {
	t.Helper()
	r := ringOfOne(t, 8, 0)
	call := vringtest.NewSocket(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx, c.CallFD = eventIdx, call.FD })
	offer(r, 2)
	served(t, q, 1)
	if n := call.Count(); n != 1 {
		t.Fatalf("%d calls, want 1", n)
	}
	return r, call, q
}

// TestInsist: a call that shows no effect is made again after 200 us, 1.6 ms and
// 12.8 ms, and then no more.
func TestInsist(t *testing.T) {
	_, call, q := calledOn(t, true)
	for _, c := range []struct{ now, next, calls eventloop.Time }{
		{1000 * us, 1200 * us, 0},
		{1199 * us, 1200 * us, 0},
		{1200 * us, 2800 * us, 1},
		{2799 * us, 2800 * us, 0},
		{3000 * us, 15800 * us, 1},
		{15800 * us, 0, 1},
		{99999 * us, 0, 0},
	} {
		if next := q.Insist(c.now); next != c.next {
			t.Errorf("at %d us: look again at %d us, want %d", c.now/us, next/us, c.next/us)
		}
		if n := call.Count(); n != uint64(c.calls) {
			t.Errorf("at %d us: %d calls, want %d", c.now/us, n, c.calls)
		}
	}
	if n := q.Stats().CallsRepeated; n != 3 {
		t.Errorf("%d repeated calls counted, want 3", n)
	}
}

// TestInsistEnds: any sign of the driver ends it, and so does a broken ring.
func TestInsistEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		sign func(r *vringtest.Ring, q *vring.DeviceQueue)
	}{
		{"used_event moves", func(r *vringtest.Ring, _ *vring.DeviceQueue) { r.SetUsedEvent(1) }},
		{"more buffers", func(r *vringtest.Ring, _ *vring.DeviceQueue) { offer(r, 1) }},
		{"broken", func(_ *vringtest.Ring, q *vring.DeviceQueue) { q.Break(vring.UsedFault) }},
		{"another descriptor", func(_ *vringtest.Ring, q *vring.DeviceQueue) { q.SetCall(-1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, call, q := calledOn(t, true)
			if q.Insist(1) == 0 {
				t.Fatal("nothing to wait for")
			}
			c.sign(r, q)
			if next := q.Insist(1000 * us); next != 0 || call.Count() != 0 {
				t.Error("it still insists")
			}
		})
	}
}

// TestInsistOnlyWhereCallsGetLost: an eventfd keeps its count, and without
// EVENT_IDX the driver is called for whatever comes next.
func TestInsistOnlyWhereCallsGetLost(t *testing.T) {
	r := ringOfOne(t, 8, 0)
	call := vringtest.NewEvent(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx, c.CallFD = true, call.FD })
	offer(r, 1)
	served(t, q, 1)
	if call.Count() != 1 || q.Insist(1) != 0 {
		t.Error("it insists on an eventfd")
	}
	if _, _, q := calledOn(t, false); q.Insist(1) != 0 {
		t.Error("it insists without EVENT_IDX")
	}
}

// TestInsistOnANewCallAnew: what counts is the last call.
func TestInsistOnANewCallAnew(t *testing.T) {
	r, call, q := calledOn(t, true)
	q.Insist(1)
	q.Insist(1000 * us)
	call.Count()
	r.SetUsedEvent(1)
	served(t, q, 1)
	if call.Count() != 1 {
		t.Fatal("no call for the second chain")
	}
	if next := q.Insist(2000 * us); next != 2200*us {
		t.Errorf("look again at %d us, want 2200", next/us)
	}
}
