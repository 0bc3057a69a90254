package xdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Frame takes a free frame to be filled; Queue sends it. It returns nil when all
// are on their way: Flush, then wait.
func (s *Socket) Frame() []byte {
	if len(s.free) == 0 {
		s.reap()
		if len(s.free) == 0 {
			return nil
		}
	}
	at := s.free[len(s.free)-1]
	return s.mem[at : at+uint64(s.cfg.FrameSize)]
}

// Queue puts the frame that Frame has returned last into the TX ring, n bytes
// long. It reports false when the ring is full; the frame stays free.
func (s *Socket) Queue(n int) bool {
	if s.tx.room(s.queued+1) <= s.queued {
		return false
	}
	last := len(s.free) - 1
	s.tx.put(s.queued, unix.XDPDesc{Addr: s.free[last], Len: uint32(n)})
	s.free = s.free[:last]
	s.queued++
	return true
}

// copyBudget is how many frames a wake-up copies before it says EAGAIN (Linux,
// TX_BATCH_SIZE; XDP_MAX_TX_SKB_BUDGET may say otherwise).
const copyBudget = 32

// Flush hands what was queued to the kernel, and wakes it if it sleeps. It returns
// an error only if the card cannot send any more.
func (s *Socket) Flush() error {
	s.reap() // the card stops when the completion ring is full
	if s.queued > 0 {
		s.tx.submit(s.queued)
		s.out += s.queued
		s.queued = 0
	}
	if s.out == 0 || !s.tx.needsWakeup() {
		return nil
	}
	for range s.out/copyBudget + 1 {
		switch errno := wakeTX(s.fd); errno {
		case unix.EAGAIN:
			if s.cfg.Mode == Copy {
				continue // there is more than one wake-up copies
			}
			return nil
		case 0, unix.EBUSY, unix.ENOBUFS, unix.EINTR: // the last three: full, for now
			return nil
		default:
			return fmt.Errorf("xdp: send: %w", errno)
		}
	}
	return nil
}

// reap takes back what the card has sent.
func (s *Socket) reap() {
	n := s.completion.ready()
	for i := range n {
		at := s.completion.at(i) &^ uint64(s.cfg.FrameSize-1)
		if at >= uint64(len(s.mem)) || len(s.free) == cap(s.free) {
			s.spoiled++
			continue
		}
		s.free = append(s.free, at)
	}
	if n > 0 {
		s.completion.release(n)
		s.out = max(s.out-n, 0)
	}
}

// Outstanding returns how many frames the kernel has to send yet.
func (s *Socket) Outstanding() int {
	s.reap()
	return s.out
}

// Receive returns the next frames, at most len(to), and how many. They are the
// caller's until Release.
func (s *Socket) Receive(to [][]byte) (n int) {
	if s.held > 0 {
		s.Release()
	}
	n = min(s.rx.ready(), len(to))
	for i := range n {
		d := s.rx.at(i)
		if d.Addr >= uint64(len(s.mem)) || uint64(d.Len) > uint64(len(s.mem))-d.Addr {
			s.spoiled++
			to[i] = nil
			continue
		}
		to[i] = s.mem[d.Addr : d.Addr+uint64(d.Len)]
	}
	s.held = n
	return n
}

// Release gives all received frames back to the card. There is always room: the
// fill ring has as many entries as there are frames for it.
func (s *Socket) Release() {
	n := 0
	for i := range s.held {
		at := s.rx.at(i).Addr &^ uint64(s.cfg.FrameSize-1)
		if at < uint64(len(s.mem)) && s.fill.room(n+1) > n {
			s.fill.put(n, at)
			n++
		}
	}
	s.rx.release(s.held)
	s.held = 0
	if n > 0 {
		s.fill.submit(n)
	}
	if s.fill.needsWakeup() {
		wakeRX(s.fd)
	}
}

// WaitRX sleeps until there is a frame, WaitTX until the TX ring is half empty,
// for at most so many milliseconds.
func (s *Socket) WaitRX(milliseconds int) { wait(s.fd, unix.POLLIN, milliseconds) }
func (s *Socket) WaitTX(milliseconds int) { wait(s.fd, unix.POLLOUT, milliseconds) }
