package splice

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

const acceptBudget = 16

// listener is the open socket of a Rule.
type listener struct {
	s      *Splice
	rule   Rule
	fd     int
	token  eventloop.Token
	paused bool
}

// Open listens for r. A rule that is open already is left alone.
func (s *Splice) Open(r Rule) error {
	if s.listeners[r] != nil {
		return nil
	}
	fd, errno := s.from(r.Out).Listen(r.Type, r.At)
	if errno != 0 {
		return fmt.Errorf("listen at %s: %w", r.At, errno)
	}
	l := &listener{s: s, rule: r, fd: fd}
	var err error
	if l.token, err = s.loop.Add(fd, eventloop.In, l, 0); err != nil {
		unix.Close(fd)
		return fmt.Errorf("listen at %s: %w", r.At, err)
	}
	s.listeners[r] = l
	return nil
}

// Close stops listening for r. What it has begun goes on.
func (s *Splice) Close(r Rule) {
	if l := s.listeners[r]; l != nil {
		s.loop.Remove(l.token)
		unix.Close(l.fd)
		l.fd = -1
		delete(s.listeners, r)
	}
}

// Rules lists what is listened for.
func (s *Splice) Rules() (list []Rule) {
	for r := range s.listeners {
		list = append(list, r)
	}
	return list
}

// Ready implements eventloop.Source. The socket is watched level-triggered, so what
// the budget leaves comes again.
func (l *listener) Ready(uint32, eventloop.Events) {
	if l.rule.Type == unix.SOCK_DGRAM {
		l.receive()
		return
	}
	for range acceptBudget {
		if !l.s.room() {
			l.pause()
			return
		}
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.s.join(fd, l.rule.Out, l.rule.To)
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.pause()
			return
		}
	}
}

// pause takes the listener off the loop for a while.
func (l *listener) pause() {
	l.paused = true
	l.s.stats.Pauses++
	_ = l.s.loop.Modify(l.token, 0)
	l.s.paused = append(l.s.paused, l)
	if t := l.s.loop.Timers(); !t.Armed(l.s.retry) {
		t.Set(l.s.retry, l.s.loop.Now()+retryTime)
	}
}

func (l *listener) resume() {
	if l.fd < 0 {
		return // closed meanwhile
	}
	if l.paused = l.s.loop.Modify(l.token, eventloop.In) != nil; l.paused {
		l.pause()
	}
}
