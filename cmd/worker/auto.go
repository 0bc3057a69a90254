package worker

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/vnet/netns/splice"
)

// lookEvery is how often listeners are looked for.
const lookEvery = time.Second

// auto has forwards follow listeners: its goroutine looks, the loop opens and
// closes.
type auto struct {
	quit chan struct{}
	done sync.WaitGroup

	// Of the loop: what has been opened.
	in  []forward.Rule
	out []splice.Rule
}

// seen is who listens on both sides.
type seen struct{ inside, host []bound }

// follow begins to look; the first time before it returns, so that the ready line
// has the forwards.
func (in *inside) follow() {
	c := in.cfg.Auto
	if !c.TCPIn && !c.UDPIn && !c.TCPOut && !c.UDPOut {
		return
	}
	in.auto = &auto{quit: make(chan struct{})}
	last := in.look()
	in.apply(last)
	in.auto.done.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-in.auto.quit:
				return
			case <-tick.C:
			}
			now := in.look()
			if slices.Equal(now.inside, last.inside) && slices.Equal(now.host, last.host) {
				continue
			}
			if in.w.loop.Do(func() { in.apply(now) }) == nil { // else again in a second
				last = now
			}
		}
	})
}

func (a *auto) stop() {
	if a != nil {
		close(a.quit)
		a.done.Wait()
	}
}

func (in *inside) look() (s seen) {
	first, last := config.LocalPorts()
	s.inside = listening(in.ns.Proc(), first, last)
	s.host = listening("/proc/self", first, last)
	return s
}

// apply opens what is missing and closes what nothing listens for any more. A port
// that cannot be had is tried again when anything changes.
func (in *inside) apply(s seen) {
	a, t := in.auto, in.w.guests[0].nic.translator
	wantIn, wantOut := in.inward(s.inside), in.outwards(s.host, t.Bound())
	a.in = slices.DeleteFunc(a.in, func(r forward.Rule) bool {
		return !slices.Contains(wantIn, r) && t.Unforward(r)
	})
	a.out = slices.DeleteFunc(a.out, func(r splice.Rule) bool {
		if slices.Contains(wantOut, r) {
			return false
		}
		in.splice.Close(r)
		return true
	})
	for _, r := range wantIn {
		if !slices.Contains(a.in, r) && t.Forward(r) == nil {
			a.in = append(a.in, r)
		}
	}
	for _, r := range wantOut {
		if !slices.Contains(a.out, r) && in.splice.Open(r) == nil {
			a.out = append(a.out, r)
		}
	}
}

// inward are the forwards for what listens inside, where a connection from outside
// would reach it. Our own listeners there lead out.
func (in *inside) inward(list []bound) (rules []forward.Rule) {
	ours := in.splice.Rules()
	for _, b := range list {
		r := forward.Rule{Proto: hostsock.TCP, First: b.port, Last: b.port, ToFirst: b.port}
		wanted := in.cfg.Auto.TCPIn
		if b.udp {
			r.Proto, wanted = hostsock.UDP, in.cfg.Auto.UDPIn
		}
		own := slices.ContainsFunc(ours, func(s splice.Rule) bool {
			return s.At.Port() == b.port && (s.Type == unix.SOCK_DGRAM) == b.udp
		})
		if wanted && !own && (in.cfg.LoopToLoop || !b.at.IsLoopback()) && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	return rules
}

// outwards are the forwards for what listens on the host's loopback, or everywhere.
// Our own listeners there lead in.
func (in *inside) outwards(list []bound, ours []forward.Bound) (rules []splice.Rule) {
	add := func(b bound, at netip.Addr) {
		r := outRule(b.udp, at, b.port, b.port)
		r.To = r.At // 127.0.0.2 is not 127.0.0.1
		if !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	for _, b := range list {
		wanted := in.cfg.Auto.TCPOut
		if b.udp {
			wanted = in.cfg.Auto.UDPOut
		}
		own := slices.ContainsFunc(ours, func(o forward.Bound) bool {
			return o.Local.Port() == b.port && (o.Proto == hostsock.UDP) == b.udp
		})
		switch {
		case !wanted || own:
		case b.at.IsLoopback():
			add(b, b.at)
		case b.at.IsUnspecified():
			add(b, loopback4)
			if b.at.Is6() {
				add(b, loopback6)
			}
		}
	}
	return rules
}
