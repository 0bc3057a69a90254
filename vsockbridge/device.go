package vsockbridge

import (
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge/packet"
	"guestwire/vsockbridge/relay"
)

// Numbers of the virtqueues (virtio 1.3, 5.10.2), named by the driver's view.
const (
	rxQueue    = 0
	txQueue    = 1
	eventQueue = 2
	queues     = 3
)

// Limits that Config may change.
const (
	DefaultBufAlloc = 1 << 20
	DefaultMaxConns = 4096
	mostConns       = 32768
)

// stageBudget is what all connections of a device together may have waiting for
// host sockets, as long as they are few; minBufAlloc is what each may have
// however many they are.
const (
	stageBudget = 256 << 20
	minBufAlloc = 64 << 10
)

// Config describes the device. It does not change afterwards.
type Config struct {
	CID      uint64   // the guest's
	Host     Host     // serves the guest's connections to the host; nil: refuse all
	BufAlloc uint32   // bytes that a connection may have under way from the guest, 0: DefaultBufAlloc
	MaxConns int      // connections at a time, at most 32768, 0: DefaultMaxConns
	Groups   []*Group // guests that the guest may reach, and that may reach it
	Withhold uint64   // feature bits not to be offered
	Log      func(format string, a ...any)
}

// Device is one virtio-vsock device: a vhostuser.Device towards the frontend.
type Device struct {
	cfg      Config
	loop     *eventloop.Loop
	offered  uint64
	features uint64 // negotiated, offered bits only
	types    types

	rings     [queues]*vring.DeviceQueue
	enabled   [queues]bool
	stopped   [queues]stop
	tx        tx
	rx        rx
	up        bool // both rings run, enabled and unbroken
	fresh     bool // the next guest is not the one that was
	lived     bool // it has had another device before
	owesEvent bool // TRANSPORT_RESET
	turn      turn

	sentPackets, sentBytes uint64 // of the counters, as of the last turn

	flushing bool

	conns    table
	ports    ports
	queue    runQueue
	resets   resets
	run      *conn // whose packets are being put together in vec
	inbox    inbox
	waitsFor *Device // the sibling that has no room for what the guest sends; nil: none
	granted  uint64  // buf_alloc of all connections
	pool     pool
	vec      vector
	scratch  [1]byte
	lingers  *relay.Lingers // TCP sockets of connections that have ended

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
	_ eventloop.Breaker = (*Device)(nil)
)

// New makes a device that lives on loop. It registers Flush behind every turn.
func New(c Config, loop *eventloop.Loop) (*Device, error) {
	if err := packet.CheckCID(c.CID); err != nil {
		return nil, fmt.Errorf("vsockbridge: %w", err)
	}
	if c.BufAlloc == 0 {
		c.BufAlloc = DefaultBufAlloc
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.MaxConns < 1 || c.MaxConns > mostConns {
		return nil, fmt.Errorf("vsockbridge: %d connections are outside 1..%d", c.MaxConns, mostConns)
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	d := &Device{cfg: c, loop: loop, fresh: true, offered: allFeatures &^ (c.Withhold &^ vhostuser.FVersion1),
		conns: newTable(c.MaxConns), queue: runQueue{-1, -1}, lingers: relay.NewLingers(loop)}
	if err := d.turn.open(loop, d); err != nil {
		return nil, err
	}
	if err := d.join(); err != nil {
		d.turn.close(loop)
		return nil, err
	}
	d.tx.timer = loop.Timers().New((*lateCall)(d), 0)
	loop.AfterTurnOf(d, d.Flush)
	return d, nil
}

// Close resets all connections, as far as the guest has buffers for that, and
// takes the device off its loop. The second time does nothing.
func (d *Device) Close() {
	if d.turn.fd < 0 {
		return
	}
	d.each(func(c *conn) {
		if c.sibling != nil {
			d.separate(c)
			return
		}
		d.happen(c, evFailed, unix.ECONNRESET)
	})
	d.farewell()
	d.up = false
	d.forgetAll()
	d.part()
	d.lingers.Stop()
	d.loop.Timers().Free(d.tx.timer)
	d.turn.close(d.loop)
}

// farewell is the last Flush. It runs outside the loop, whose guard would catch
// the fault of guest memory that has gone.
func (d *Device) farewell() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			d.breakRings()
		}
	}()
	d.Flush()
}

// Features implements vhostuser.Device.
func (d *Device) Features() uint64 { return d.offered }

// Protocol implements vhostuser.Device. Not MQ: it asks for nothing that is not
// known.
func (d *Device) Protocol() uint64 { return vhostuser.ProtocolFConfig }

// Queues implements vhostuser.Device. Frontends that keep the event queue to
// themselves set up the other two.
func (d *Device) Queues() int { return queues }

// QueueNum implements vhostuser.Device.
func (d *Device) QueueNum() uint64 { return queues }

// Negotiated implements vhostuser.Device.
func (d *Device) Negotiated(features uint64) {
	if f := features & d.offered; f != d.features {
		d.fresh = true // another driver
		d.features = f
	}
	d.types = typesOf(d.features)
}

// speaks says whether the driver knows sockets of type t.
func (d *Device) speaks(t packet.Type) bool {
	return t == packet.Stream && d.types.stream || t == packet.SeqPacket && d.types.seqpacket
}

// Start implements vhostuser.Device. A ring that goes on where it was stopped
// was paused, or its memory moved; any other has been set up by a guest that
// started anew.
func (d *Device) Start(i int, q *vring.DeviceQueue) {
	if s := d.stopped[i]; s.known && s.avail != q.LastAvail() {
		d.fresh = true
	}
	d.lived = d.lived || d.fresh && q.LastAvail() != 0
	d.rings[i] = q
	switch i {
	case rxQueue:
		d.rx.start(q)
	case txQueue:
		d.tx.start(q)
	}
	d.settle()
}

// Enable implements vhostuser.Device. What lies in a disabled ring stays there.
func (d *Device) Enable(i int, on bool) {
	d.enabled[i] = on
	d.settle()
}

// Stop implements vhostuser.Device. What has been pushed is published, since the
// base that the frontend reads next covers it.
func (d *Device) Stop(i int) {
	q := d.rings[i]
	if q == nil {
		return
	}
	d.rings[i] = nil
	switch i {
	case rxQueue:
		d.rx.start(nil)
	case txQueue:
		d.tx.start(nil)
	}
	q.Publish()
	d.stopped[i] = stop{true, q.LastAvail()}
	d.settle()
}

// Reset implements vhostuser.Device.
func (d *Device) Reset() {
	d.fresh, d.lived, d.owesEvent = true, false, false
	d.stopped = [queues]stop{}
	d.settle()
	d.forgetAll()
}

// Disconnected implements vhostuser.Device.
func (d *Device) Disconnected() { d.Reset() }

// Kick implements vhostuser.Device. New receive buffers are used at the end of
// the turn.
func (d *Device) Kick(i int) {
	d.counters.Kicks++
	if i == txQueue {
		d.txKicked()
	}
}

// settle follows whether the device can work. Connections wait while it cannot,
// unless the guest turns out to be another.
func (d *Device) settle() {
	up, broken := true, false
	for i := range eventQueue {
		q := d.rings[i]
		up = up && q != nil && d.enabled[i] && q.Broken() == nil
		broken = broken || q != nil && q.Broken() != nil
	}
	if up == d.up {
		return
	}
	if d.up = false; !up {
		d.loop.Rest()
		d.release()
	}
	if broken {
		d.fresh = true // whoever mends it starts anew
		d.forgetAll()
	}
	if up {
		if d.fresh {
			d.forgetAll()
			d.owesEvent = d.lived
		}
		d.up, d.fresh, d.lived = true, false, false
		d.turn.ask(d.loop) // packets may have waited
	}
}

// each calls f for every connection.
func (d *Device) each(f func(c *conn)) {
	for i := range d.conns.slots() {
		if c := d.conns.at(i); c.state.phase != vacant {
			f(c)
		}
	}
}

// forgetAll ends all connections of a guest that has gone.
func (d *Device) forgetAll() {
	d.resets.n = 0
	d.run = nil
	d.vec.reset()
	d.inbox.clear(&d.pool)
	d.inbox.busy, d.waitsFor = false, nil
	d.release()
	d.each(func(c *conn) {
		if c.state.phase == orphan {
			return // what a guest sent before it closed is still good
		}
		if c.sibling != nil {
			c.sibling.disown(c.twin())
		}
		in, cookie := c.initiator, c.cookie
		d.closeHost(c)
		d.free(c)
		if in != nil {
			in.Refused(cookie, unix.ECONNRESET)
		}
	})
}

// grant returns the buf_alloc of a new connection. All grants together are the
// most that the device may have to keep for slow host sockets, so they become
// smaller when there are many.
func (d *Device) grant() uint32 {
	left := uint64(stageBudget) - min(d.granted, stageBudget)
	n := min(d.cfg.BufAlloc, max(uint32(left/8), minBufAlloc))
	d.granted += uint64(n)
	return n
}
