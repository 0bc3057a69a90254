package vhostuser

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/guestmem"
)

// logPeriod is how often SET_LOG_FD's descriptor is signalled while logging.
const logPeriod = eventloop.Time(100e6)

// setLogBase replaces the dirty log, also while it is in use. It is answered
// even without NEED_REPLY (vhost-user, "Communication"), so a refusal is, too.
func (b *backend) setLogBase(m *message) error {
	size, offset := order.Uint64(m.payload), order.Uint64(m.payload[8:])
	l, err := guestmem.MapLog(m.fds[0], size, offset)
	if err == nil && !l.Covers(b.mem) {
		l.Close()
		err = refusef("log of %d bytes does not cover guest memory", size)
	}
	if err != nil {
		b.logf("SET_LOG_BASE refused: %v", err)
		return m.answer(1)
	}
	old := b.log
	b.log = l
	b.relogAll()
	old.Close()
	return m.answer(0)
}

// setLogFD takes the descriptor on which the frontend wants to hear of changes
// in the log. It is optional, and no frontend is known to wait on it, so it gets
// a plain period instead of a place on the data path.
func (b *backend) setLogFD(m *message) error {
	if err := prepareEvent(m.fds[0], toWrite); err != nil {
		return refusal{err}
	}
	b.closeLogFD()
	b.logFD = m.take(0)
	b.armLogTick()
	return nil
}

func (b *backend) closeLogFD() {
	if b.logFD >= 0 {
		unix.Close(b.logFD)
		b.logFD = -1
	}
}

func (b *backend) armLogTick() {
	if b.logFD >= 0 && b.activeLog() != nil {
		b.loop.Timers().Set(b.logTimer, b.loop.Now()+logPeriod)
	}
}

func (b *backend) logTick() {
	if b.logFD >= 0 && b.activeLog() != nil {
		signalEvent(b.logFD)
		b.armLogTick()
	}
}

// activeLog is the log that rings mark: none unless LOG_ALL is on.
func (b *backend) activeLog() *guestmem.Log {
	if b.features&VhostFLogAll == 0 {
		return nil
	}
	return b.log
}

func (b *backend) relog(r *ring) {
	r.q.SetLog(b.activeLog(), r.addr.Log, r.addr.Flags&vringAddrLog != 0)
}

func (b *backend) relogAll() {
	for i := range b.rings {
		if r := &b.rings[i]; r.q != nil {
			b.relog(r)
		}
	}
	b.armLogTick()
}
