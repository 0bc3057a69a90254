package vsockbridge

import (
	"guestwire/vring"
	"guestwire/vring/eventloop"
)

// What the transmit ring may take of one turn before it queues itself behind
// the other sources.
const (
	txChains = 256
	txBytes  = 4 << 20
)

// txBatch is how many packets are popped at once.
const txBatch = 64

// txPoll is how long an empty ring is looked at again, once a turn, before a
// kick is asked for. A driver that comes back within that time saves the kick
// (which is a VM exit and an eventfd write) and we the wake-up.
const txPoll = eventloop.Time(20_000)

// A driver is called for chains that it got back when they are an 8th of the
// ring, when they were txHeldBytes long (Linux has a socket's sender wait for the
// memory of what it sent), or a millisecond after the first.
const (
	txHeld      = 8
	txHeldBytes = 16 << 10
	txLate      = eventloop.Time(1_000_000)
)

// tx is the transmit ring: packets from the guest.
type tx struct {
	q      *vring.DeviceQueue
	chains [txBatch]vring.Chain
	idle   eventloop.Time // when the ring was first found empty, 0: not empty
	soon   bool           // the driver tends to come back within txPoll
	bytes  int            // in chains that were returned without a call
	timer  eventloop.TimerID
}

func (t *tx) start(q *vring.DeviceQueue) { t.q, t.idle, t.soon = q, 0, false }

// txKicked is the driver's notification. While a turn is asked for anyway, that
// one serves it: a storm of kicks costs nothing but the kicks.
func (d *Device) txKicked() {
	if d.turn.asked {
		return
	}
	t := &d.tx
	t.soon = t.idle != 0 && d.loop.Now()-t.idle < 2*txPoll
	d.txRun()
}

// txRun serves the transmit ring for at most one turn's budget.
func (d *Device) txRun() {
	t := &d.tx
	if !d.up || d.held() {
		return
	}
	t.q.DisarmKick()
	for chains, bytes := txChains, txBytes; chains > 0 && bytes > 0; {
		n, b := d.txBatch()
		chains, bytes = chains-n, bytes-b
		if n > 0 {
			t.idle = 0
			d.loop.Worked(eventloop.FromGuest, b)
			continue
		}
		if d.held() || !d.txEmpty() {
			return
		}
		chains-- // even a driver that teases us with its index gets no longer turn
	}
	d.turn.ask(d.loop)
}

// txEmpty decides how to wait for more. It reports true when more is there
// already.
func (d *Device) txEmpty() bool {
	t := &d.tx
	if t.q.Broken() != nil {
		d.turn.ask(d.loop)
		return false
	}
	now := d.loop.Now()
	if t.idle == 0 {
		t.idle = now
	}
	if t.soon && now-t.idle < txPoll || d.loop.Lingers() {
		d.turn.ask(d.loop)
		return false
	}
	t.soon = false
	if t.q.ArmKick() {
		t.q.DisarmKick()
		t.q.Publish() // it may be what has been pushed that keeps more from being popped
		return true
	}
	return false
}

// txBatch handles one batch of packets and returns its chains to the ring. It
// returns how many chains and bytes that were.
func (d *Device) txBatch() (chains, bytes int) {
	t := &d.tx
	popped := t.q.PopBatch(t.chains[:])
	n := 0
	for n < popped && !d.held() {
		c := &t.chains[n]
		bytes += int(c.ReadLen)
		d.packet(c)
		n++
	}
	d.endRun()
	t.q.Rewind(popped - n)
	if t.q == nil || t.q.Broken() != nil {
		return n, bytes
	}
	for i := range t.chains[:n] {
		t.q.Push(t.chains[i].Head, 0)
	}
	t.bytes += bytes
	if n == txBatch {
		t.publish(d)
	}
	return n, bytes
}

// publish returns the chains of packets that are done with. A driver waits for
// few and short ones only when its ring is full, so it is called for them late:
// when many have come together, or after a while.
func (t *tx) publish(d *Device) {
	t.q.PublishQuietly()
	switch n := t.q.Quiet(); {
	case n == 0:
	case n >= t.q.Size()/txHeld || t.bytes >= txHeldBytes:
		t.signal()
	case !d.loop.Timers().Armed(d.tx.timer):
		d.loop.Timers().Set(t.timer, d.loop.Now()+txLate)
	}
}

func (t *tx) signal() {
	t.bytes = 0
	t.q.Signal()
}

// lateCall is the device as the expirer of the call that was put off.
type lateCall Device

// Expired implements eventloop.Expirer.
func (x *lateCall) Expired(uint32) {
	if x.tx.q != nil {
		x.tx.signal()
	}
}
