package udp

import (
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
)

const us = eventloop.Time(1000)

// restRig has a flow to remote4:5000, and a clock.
func restRig(t *testing.T) (r *rig, clock *eventlooptest.FakeClock, fd hostsock.FD) {
	r = newRig(t, Config{}, linktest.AllCaps(1500))
	clock = &eventlooptest.FakeClock{T: 1e9}
	r.k.Clock, r.e.d.Clock = clock, clock
	r.send(to(5000, 100))
	return r, clock, r.from(remote4.AddrPort(5000))
}

// TestRest: a socket that streams is read once in a while, loses nothing, and is
// watched again as soon as it is silent.
func TestRest(t *testing.T) {
	r, clock, fd := restRig(t)
	reads := r.k.Calls("Recv")
	const n = 300
	for range n { // one datagram every 20 us
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(100)})
		r.k.Run()
		clock.T += 20 * us
	}
	if got := r.k.Calls("Recv") - reads; got > 2*restRun+n*20/190+5 {
		t.Errorf("%d reads for %d datagrams", got, n)
	}
	for range 3 {
		clock.T += restFor
		r.k.Run()
	}
	if got := len(r.ep.Take()); got != n {
		t.Errorf("%d of %d datagrams arrived", got, n)
	}
	clock.T += 1000 * us
	r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(100)})
	r.k.Run()
	if len(r.ep.Take()) != 1 {
		t.Error("the first datagram after a pause waits")
	}
}

// TestRestTransactions: who sends between the datagrams gets each at once.
func TestRestTransactions(t *testing.T) {
	r, clock, fd := restRig(t)
	for i := range 100 {
		r.send(to(5000, 100))
		r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(100)})
		r.k.Run()
		if len(r.ep.Take()) != 1 {
			t.Fatalf("answer %d waits", i)
		}
		clock.T += 50 * us
	}
	if r.e.stats.rests != 0 {
		t.Errorf("rested %d times", r.e.stats.rests)
	}
}
