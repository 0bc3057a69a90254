package hostsocktest

import (
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// turns is how many Pumps Run allows before it calls the code under test
// spinning.
const turns = 2000

// Watch implements hostsock.Host.
func (k *Kernel) Watch(fd hostsock.FD, ev eventloop.Events, src eventloop.Source, cookie uint32) syscall.Errno {
	s, e := k.enter("Watch", fd)
	if e != 0 {
		return e
	}
	if s.src != nil {
		return syscall.EEXIST
	}
	s.src, s.cookie, s.want, s.edge = src, cookie, ev, true
	return 0
}

// Rewatch implements hostsock.Host.
func (k *Kernel) Rewatch(fd hostsock.FD, ev eventloop.Events) syscall.Errno {
	s, e := k.enter("Rewatch", fd)
	if e != 0 {
		return e
	}
	if s.src == nil {
		return syscall.ENOENT
	}
	s.want, s.edge = ev, true
	return 0
}

// Again implements hostsock.Host.
func (k *Kernel) Again(fd hostsock.FD) {
	if s, e := k.enter("Again", fd); e == 0 && s.src != nil && !s.again {
		s.again = true
		k.agains = append(k.agains, s)
	}
}

// AgainAt implements hostsock.Host.
func (k *Kernel) AgainAt(fd hostsock.FD, at eventloop.Time) bool {
	s, e := k.enter("AgainAt", fd)
	if e != 0 || s.src == nil || k.Clock == nil {
		return false
	}
	s.later, s.at = true, at
	return true
}

// wake notes that something has happened to s; key says what, 0 anything. An
// edge-triggered watcher that has not asked for it sleeps on (ep_poll_callback).
func (s *socket) wake(key eventloop.Events) {
	if key == 0 || s.want&key != 0 {
		s.edge = true
	}
}

// Events returns the conditions that hold for fd now, asked for or not.
func (k *Kernel) Events(fd hostsock.FD) eventloop.Events { return k.must(fd).poll() }

// poll is tcp_poll, or datagram_poll.
func (s *socket) poll() (ev eventloop.Events) {
	if s.err != 0 || len(s.errs) > 0 {
		ev |= eventloop.Err
	}
	switch {
	case s.proto != hostsock.TCP:
		if len(s.queue) > 0 {
			ev |= eventloop.In
		}
		if s.room != 0 {
			ev |= eventloop.Out
		}
	case s.state == listening:
		if len(s.backlog) > 0 {
			ev |= eventloop.In
		}
	case s.state == connected || s.state == dead:
		ev |= s.pollStream()
	}
	return ev
}

func (s *socket) pollStream() (ev eventloop.Events) {
	over := s.in.fin || s.rcvShut
	if over {
		ev |= eventloop.In | eventloop.RDHup
	}
	if len(s.in.data) > 0 {
		ev |= eventloop.In
	}
	if over && s.sndShut {
		ev |= eventloop.HUP
	}
	if s.sndShut || s.writable() {
		ev |= eventloop.Out
	} else if s.want&eventloop.Out != 0 {
		s.nospace = true
	}
	return ev
}

// due returns what a watcher of s must be told now.
func (s *socket) due() eventloop.Events {
	if s.src == nil || s.want == 0 {
		return 0
	}
	if s.want&eventloop.Edge != 0 {
		if !s.edge {
			return 0
		}
		s.edge = false
	}
	return s.poll() & (s.want | eventloop.HUP | eventloop.Err)
}

// Pump is one turn of a loop: it tells every watcher what holds, then makes the
// calls that Again asked for before. It reports whether it called anybody.
func (k *Kernel) Pump() bool {
	type event struct {
		s  *socket
		ev eventloop.Events
	}
	var batch []event
	for _, s := range k.socks {
		if s == nil || s.closed {
			continue
		}
		if ev := s.due(); ev != 0 {
			batch = append(batch, event{s, ev})
		}
	}
	for _, s := range k.socks {
		if s != nil && !s.closed && s.later && s.at <= k.Clock.Now() {
			s.later = false
			if !s.again {
				s.again = true
				k.agains = append(k.agains, s)
			}
		}
	}
	agains := k.agains
	k.agains = nil
	busy := false
	for _, e := range batch {
		// The loop drops what was fetched for a source that has gone since.
		if ev := e.ev & (e.s.want | eventloop.HUP | eventloop.Err); e.s.src != nil && e.s.want != 0 && ev != 0 {
			e.s.src.Ready(e.s.cookie, ev)
			busy = true
		}
	}
	for _, s := range agains {
		s.again = false
		if s.src != nil {
			s.src.Ready(s.cookie, eventloop.Again)
			busy = true
		}
	}
	return busy
}

// Run pumps until nobody has anything to be told. Code that is told the same for
// ever and does nothing about it, or asks for Again without end, fails the test.
func (k *Kernel) Run() {
	k.t.Helper()
	for range turns {
		if !k.Pump() {
			return
		}
	}
	for _, s := range k.socks {
		if s != nil && !s.closed && s.src != nil && (s.again || s.want&eventloop.Edge == 0 && s.due() != 0) {
			k.t.Fatalf("hostsocktest: spinning: descriptor %d, cookie %d, watched for %#x, reports %#x, again %v",
				s.fd, s.cookie, s.want, s.poll(), s.again)
		}
	}
	k.t.Fatalf("hostsocktest: not quiet after %d turns", turns)
}
