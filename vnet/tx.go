package vnet

import (
	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
)

// What the transmit ring may take of one turn before it queues itself behind
// the other sources.
const (
	txChains = 256
	txBytes  = 2 << 20
)

// txBatch is how many frames the handler is given at once. A quarter of QEMU's
// ring is returned to the driver while it can still fill the rest.
const txBatch = 64

// txPoll is how long an empty ring is looked at again, once a turn, before a
// kick is asked for. A driver that comes back within that time saves the kick
// (which is a VM exit and an eventfd write) and we the wake-up.
const txPoll = eventloop.Time(20_000)

// tx is the transmit ring: frames from the guest.
type tx struct {
	q       *vring.DeviceQueue
	enabled bool
	hdr     int // length of the virtio header
	off     offloads
	mtu     bool // the driver knows the MTU and must keep to it

	chains [txBatch]vring.Chain
	frames [txBatch]link.Frame

	idle eventloop.Time // when the ring was first found empty, 0: not empty
	soon bool           // the driver tends to come back within txPoll
	pace pace
	hold hold

	took, bytes int // chains and bytes of this turn
}

func (t *tx) start(q *vring.DeviceQueue) {
	t.q, t.idle, t.soon, t.pace, t.hold = q, 0, false, pace{}, hold{}
}

func (t *tx) negotiate(hdr int, features uint64) {
	t.hdr, t.off, t.mtu = hdr, fromGuest(features), features&vhostuser.NetFMTU != 0
}

// txKicked is the driver's notification. While a turn is asked for anyway, that
// one serves it: a storm of kicks costs nothing but the kicks.
func (d *Device) txKicked() {
	if d.turn.asked {
		return
	}
	t := &d.tx
	now := d.loop.Now()
	t.soon = t.idle != 0 && now-t.idle < 2*txPoll
	t.pace.kicked(now, d.link.RxFrames)
	d.txRun()
}

// txRun serves the transmit ring for at most one turn's budget.
func (d *Device) txRun() {
	t := &d.tx
	if t.q == nil || (t.enabled && !d.up) {
		t.pace.resting = false
		return // nobody to give frames to: they wait in the ring
	}
	t.q.DisarmKick()
	got, answered := 0, d.link.RxFrames
	for chains, bytes := txChains, txBytes; chains > 0 && bytes > 0; {
		n, b := d.txBatch()
		chains, bytes = chains-n, bytes-b
		if n > 0 {
			if got == 0 {
				t.pace.took(answered)
			}
			got += n
			t.took, t.bytes = t.took+n, t.bytes+b
			t.idle = 0
			d.loop.Worked(eventloop.FromGuest, b)
			continue
		}
		if t.q == nil || !d.txEmpty(got) {
			return
		}
		chains-- // even a driver that teases us with its index gets no longer turn
	}
	d.turn.ask(d.loop)
}

// txEmpty decides how to wait for more, after a turn that took got chains. It
// reports true when more is there already.
func (d *Device) txEmpty(got int) bool {
	t := &d.tx
	if t.q.Broken() != nil {
		d.turn.ask(d.loop)
		return false
	}
	now := d.loop.Now()
	if t.idle == 0 {
		t.idle = now
	}
	if t.pace.resting {
		if until, ok := t.pace.rest(now, got, t.q.Size()); ok && d.loop.AgainAt(d.turn.token, until) {
			return false
		}
		t.pace.resting, t.soon = false, false
	}
	if t.soon && now-t.idle < txPoll || d.loop.Lingers() {
		d.turn.ask(d.loop)
		return false
	}
	t.soon = false
	t.pace.arm(now, t.q.Quiet())
	if t.q.ArmKick() {
		t.q.DisarmKick()
		t.q.Publish() // it may be what has been pushed that keeps more from being popped
		return true
	}
	return false
}

// txBatch passes one batch to the handler and returns its chains to the ring.
// It returns how many chains and bytes that were. A full batch is published at
// once, for the driver to go on; the rest at the end of the turn.
func (d *Device) txBatch() (chains, bytes int) {
	t := &d.tx
	n := t.q.PopBatch(t.chains[:])
	if n == 0 {
		return 0, 0
	}
	good := 0
	for i := range t.chains[:n] {
		c := &t.chains[i]
		bytes += int(c.ReadLen)
		if !t.enabled {
			d.drops[DropDisabled]++
			continue
		}
		f := &t.frames[good]
		if drop := t.frame(f, c, d.mtu); drop != dropNone {
			d.drops[drop]++
			continue
		}
		d.link.TxFrames++
		d.link.TxBytes += uint64(f.Len)
		good++
	}
	if good > 0 {
		d.counters.TxBatches++
		d.h.Frames(t.frames[:good])
	}
	for i := range t.chains[:n] {
		t.q.Push(t.chains[i].Head, 0)
	}
	if n == txBatch {
		t.q.Publish()
	}
	return n, bytes
}

// frame makes a frame of a chain. The header is fetched once, from however many
// descriptors it lies in.
func (t *tx) frame(f *link.Frame, c *vring.Chain, mtu int) Drop {
	n := int(c.ReadLen) - t.hdr
	if n < ethHdrLen {
		switch {
		case c.ReadLen > 0:
			return DropShort
		case c.WriteLen > 0:
			return DropDirection
		}
		return DropEmpty
	}
	if c.ReadLen > link.MaxFrame+netHdrLen || n > link.MaxFrame {
		return DropOversize
	}
	var raw [netHdrLen]byte
	segs := take(raw[:t.hdr], c.Readable)
	h := parseNetHdr(&raw)
	off, drop := t.off.decode(&h, n)
	if drop != dropNone {
		return drop
	}
	if t.mtu && off.GSO == link.GSONone && n > mtu+ethHdrLen+vlanTagLen {
		return DropMTU
	}
	f.Off, f.Len, f.Segs = off, n, segs
	return dropNone
}

// take copies the first len(b) bytes of segs, which must have more, and returns
// what is behind them. The segments are the chain's own and are cut in place.
func take(b []byte, segs [][]byte) [][]byte {
	for {
		n := copy(b, segs[0])
		b = b[n:]
		if n < len(segs[0]) {
			segs[0] = segs[0][n:]
			return segs
		}
		segs = segs[1:]
	}
}
