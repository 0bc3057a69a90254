package dns

import (
	"net/netip"
	"slices"
	"time"

	"guestwire/vring/eventloop"
)

const (
	maxUpstreams = 8
	deadAfter    = 3 // timeouts in a row
	deadTime     = 10 * eventloop.Time(time.Second)
)

// health is what is known of an upstream.
type health struct {
	to       netip.AddrPort
	timeouts int            // in a row
	until    eventloop.Time // asked last until then
}

func (r *Forwarder) healthOf(to netip.AddrPort) *health {
	for i := range r.health {
		if r.health[i].to == to {
			return &r.health[i]
		}
	}
	return nil
}

// silent notes a timeout. A single slow name says nothing about the upstream,
// and names that only the first upstream knows must not go elsewhere lightly.
func (r *Forwarder) silent(to netip.AddrPort) {
	h := r.healthOf(to)
	if h == nil {
		if h = r.healthOf(netip.AddrPort{}); h == nil {
			h = &r.health[r.d.Rand()%maxUpstreams]
		}
		*h = health{to: to}
	}
	h.timeouts++
	if h.timeouts >= deadAfter {
		h.until = r.now() + deadTime
	}
}

// dead says whether an upstream has let several queries in a row time out.
func (r *Forwarder) dead(to netip.AddrPort) bool {
	h := r.healthOf(to)
	return h != nil && h.timeouts >= deadAfter
}

func (r *Forwarder) answered(to netip.AddrPort) {
	if r.failing {
		r.failing = false
		r.logf("name server %s answers again", to)
	}
	if h := r.healthOf(to); h != nil {
		*h = health{}
	}
}

// choose picks whom to ask next: somebody not asked yet, best first and the dead
// last, then whoever may only have lost the datagram.
func (r *Forwarder) choose(q *query) (netip.AddrPort, bool) {
	ups := r.d.Resolver.Upstreams()
	ups = ups[:min(len(ups), maxUpstreams)]
	var second netip.AddrPort
	for _, to := range ups {
		if q.hasTried(to) {
			continue
		}
		if h := r.healthOf(to); h == nil || r.now() >= h.until {
			return to, true
		}
		if !second.IsValid() {
			second = to
		}
	}
	if second.IsValid() {
		return second, true
	}
	// The one asked longest ago. An attempt that is repeated is not looked at
	// again.
	for n := range q.tried[:q.attempts] {
		a := &q.tried[n]
		if !a.hard && !q.repeated(n) && slices.Contains(ups, a.to) {
			return a.to, true
		}
	}
	return netip.AddrPort{}, false
}

func (q *query) hasTried(to netip.AddrPort) bool {
	for _, a := range q.tried[:q.attempts] {
		if a.to == to {
			return true
		}
	}
	return false
}

// repeated says whether the upstream of attempt n was asked again later.
func (q *query) repeated(n int) bool {
	for _, a := range q.tried[n+1 : q.attempts] {
		if a.to == q.tried[n].to {
			return true
		}
	}
	return false
}
