package vnet

import (
	"fmt"

	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
)

// Numbers of the two virtqueues (virtio 1.3, 5.1.2), named by the driver's view.
const (
	rxQueue = 0
	txQueue = 1
	queues  = 2
)

const (
	defaultMTU = 1500
	minMTU     = 68
	maxMTU     = 65535
)

// Config describes the device. It does not change afterwards.
type Config struct {
	Profile  Profile
	MAC      [6]byte // of the guest, where the profile has config space
	MTU      int     // largest L3 packet announced to the driver, 68..65535; 0: 1500
	Withhold uint64  // feature bits not to be offered
}

// Device is one virtio-net device with one queue pair: a vhostuser.Device
// towards the frontend and a link.Endpoint towards translation.
type Device struct {
	cfg     Config
	h       link.Handler
	loop    *eventloop.Loop
	offered uint64

	features uint64 // negotiated, offered bits only
	mtu      int

	tx tx
	rx rx

	up       bool
	fresh    bool // the next LinkUp meets a guest that has started anew
	stopped  [queues]stop
	turn     turn
	flushing bool
	link     link.Stats
	sent     uint64 // link.RxBytes as of the last turn
	drops    [numDrops]uint64
	counters Counters
}

// stop remembers where a ring was stopped.
type stop struct {
	known bool
	avail uint16
}

var (
	_ vhostuser.Device  = (*Device)(nil)
	_ link.Endpoint     = (*Device)(nil)
	_ eventloop.Breaker = (*Device)(nil)
)

// New makes a device that delivers to h and lives on loop. It registers Flush
// behind every turn; h's own AfterTurn work must be registered before.
func New(c Config, h link.Handler, loop *eventloop.Loop) (*Device, error) {
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return nil, fmt.Errorf("vnet: MTU %d is outside %d..%d", c.MTU, minMTU, maxMTU)
	}
	d := &Device{cfg: c, h: h, loop: loop, mtu: c.MTU, fresh: true}
	d.offered = offer(c.Profile, c.Withhold)
	if err := d.turn.open(loop, d); err != nil {
		return nil, err
	}
	d.negotiate(0)
	loop.AfterTurnOf(d, d.Flush)
	return d, nil
}

// Close takes the device off its loop. The frontend must be gone by then.
func (d *Device) Close() { d.turn.close(d.loop) }

// Features implements vhostuser.Device.
func (d *Device) Features() uint64 { return d.offered }

// Protocol implements vhostuser.Device.
func (d *Device) Protocol() uint64 { return protocol(d.cfg.Profile) }

// Queues implements vhostuser.Device.
func (d *Device) Queues() int { return queues }

// QueueNum implements vhostuser.Device. It is asked only where MQ is offered,
// and then in queue pairs.
func (d *Device) QueueNum() uint64 { return 1 }

// Negotiated implements vhostuser.Device. Bits that are not the device's
// (LOG_ALL comes and goes while rings run) are left out of the comparison.
func (d *Device) Negotiated(features uint64) {
	if f := consistent(features & d.offered); f != d.features {
		d.fresh = true // another driver
		d.negotiate(f)
	}
}

func (d *Device) negotiate(f uint64) {
	d.features = f
	hdr := netHdrLen
	if f&(vhostuser.FVersion1|vhostuser.NetFMrgRxbuf) == 0 {
		hdr = netHdrLenLegacy
	}
	d.tx.negotiate(hdr, f)
	d.rx.negotiate(hdr, f)
}

// Start implements vhostuser.Device. A ring that goes on where it was stopped
// was paused, or its memory moved; any other has been set up by a guest that
// started anew.
func (d *Device) Start(i int, q *vring.DeviceQueue) {
	if s := d.stopped[i]; s.known && s.avail != q.LastAvail() {
		d.fresh = true
	}
	if i == rxQueue {
		d.rx.start(q)
	} else {
		d.tx.start(q)
	}
	d.settle()
}

// Enable implements vhostuser.Device.
func (d *Device) Enable(i int, on bool) {
	if i == rxQueue {
		d.rx.enabled = on
	} else {
		d.tx.enabled = on
	}
	d.settle()
}

// Stop implements vhostuser.Device. What has been pushed is published, since the
// base that the frontend reads next covers it.
func (d *Device) Stop(i int) {
	q := d.queue(i)
	if q == nil {
		return
	}
	if i == rxQueue {
		d.rx.stop()
	} else {
		d.tx.start(nil)
	}
	q.Publish()
	d.stopped[i] = stop{true, q.LastAvail()}
	d.settle()
}

// Reset implements vhostuser.Device.
func (d *Device) Reset() {
	gone := !d.fresh // somebody was there
	d.fresh = true
	d.stopped = [queues]stop{}
	d.settle()
	if gone && !d.up {
		d.h.GuestGone()
	}
}

// Disconnected implements vhostuser.Device.
func (d *Device) Disconnected() {
	d.Reset()
	d.mtu = d.cfg.MTU
}

// Kick implements vhostuser.Device.
func (d *Device) Kick(i int) {
	if i == rxQueue {
		d.rxKicked()
	} else {
		d.txKicked()
	}
}

// Caps implements link.Endpoint. A merged ring with fewer entries than a
// 64 KiB frame may need buffers could never take one.
func (d *Device) Caps() link.Caps {
	o := d.rx.off
	c := link.Caps{MTU: d.mtu, Csum: o.csum, TSO4: o.tso4, TSO6: o.tso6, USO: o.uso, Stats: &d.link}
	if d.rx.merge && d.rx.q != nil && d.rx.q.Size() < minMergedGSO {
		c.TSO4, c.TSO6, c.USO = false, false, false
	}
	return c
}

func (d *Device) queue(i int) *vring.DeviceQueue {
	if i == rxQueue {
		return d.rx.q
	}
	return d.tx.q
}

// settle tells the handler when the link has come up or gone down: it is up
// while both rings run, enabled and unbroken.
func (d *Device) settle() {
	up := d.rx.q != nil && d.rx.enabled && d.tx.q != nil && d.tx.enabled &&
		d.rx.q.Broken() == nil && d.tx.q.Broken() == nil
	switch {
	case up && !d.up:
		fresh := d.fresh
		d.up, d.fresh = true, false
		d.h.LinkUp(d, fresh)
	case !up && d.up:
		d.up = false
		d.loop.Rest()
		d.h.LinkDown()
	}
	if d.up {
		d.turn.ask(d.loop) // frames may have waited for the link
	}
}

// Break implements eventloop.Breaker: work of the device has panicked, or has
// met guest memory that is gone. Its rings are not trusted any more.
func (d *Device) Break(error) {
	d.breakRings()
	d.turn.reopen(d.loop, d)
	if d.flushing {
		d.flushing = false
		d.loop.AfterTurnOf(d, d.Flush) // the fall has cost the old registration
	}
	d.settle()
}

func (d *Device) breakRings() {
	d.counters.Faults++
	for i := range queues {
		if q := d.queue(i); q != nil {
			q.Break(vring.UsedFault)
		}
	}
}

// Flush publishes what was pushed and tells the driver, once per ring. It runs
// at the end of every turn.
func (d *Device) Flush() {
	d.flushing = true
	if d.rx.q != nil {
		d.rx.publish()
	}
	if d.tx.q != nil {
		d.publishTx()
	}
	d.linger()
	for i := range queues {
		if q := d.queue(i); q != nil {
			d.loop.WakeAt(q.Insist(d.loop.Now()))
		}
	}
	d.flushing = false
}
