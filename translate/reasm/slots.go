package reasm

import (
	"guestwire/translate/wire"
)

// find returns the slot of p's datagram, a fresh one if this is its first
// fragment to arrive.
func (t *Table) find(p *wire.Packet) *slot {
	k := key{src: p.Src, dst: p.Dst, id: p.FragID, proto: p.Proto}
	var free, oldest *slot
	for i := range t.slots {
		s := &t.slots[i]
		switch {
		case s.used && s.key == k:
			return s
		case !s.used && (free == nil || free.buf == nil):
			free = s // rather one that has its memory
		case s.used && (oldest == nil || s.deadline < oldest.deadline):
			oldest = s
		}
	}
	if free == nil {
		t.kill(oldest, &t.stats.Evicted)
		free = oldest
	}
	t.take(free, k)
	return free
}

func (t *Table) take(s *slot, k key) {
	if s.buf == nil {
		s.buf = make([]byte, headRoom+maxData)
	}
	now := t.timers.Now()
	s.key, s.used, s.end, s.n, s.deadline = k, true, -1, 0, now+Timeout
	if t.used++; t.used == 1 {
		t.timers.Set(t.timer, now+tick)
	}
}

// release makes s free; its memory stays for the frame that may be made of it.
func (t *Table) release(s *slot) {
	s.used = false
	t.used--
}

func (t *Table) kill(s *slot, counter *uint64) {
	*counter++
	t.release(s)
}

// Reset forgets everything: the guest has started anew.
func (t *Table) Reset() {
	for i := range t.slots {
		if t.slots[i].used {
			t.release(&t.slots[i])
		}
	}
}

// Expired implements eventloop.Expirer: it gives up on old datagrams and, when
// none is under way, gives the memory back.
func (t *Table) Expired(uint32) {
	now := t.timers.Now()
	for i := range t.slots {
		if s := &t.slots[i]; s.used && s.deadline <= now {
			t.kill(s, &t.stats.TimedOut)
		}
	}
	if t.used > 0 {
		t.timers.Set(t.timer, now+tick)
		return
	}
	for i := range t.slots {
		t.slots[i].buf = nil
	}
}
