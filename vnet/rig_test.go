package vnet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// everything is what a Linux driver over UML takes.
const everything = uint64(allFeatures)

// rig is a Device between a driver of flesh and rings, and a recording handler.
type rig struct {
	tb    testing.TB
	clock *eventlooptest.FakeClock
	loop  *eventloop.Loop
	h     *linktest.Handler
	d     *Device
	mem   *vringtest.Memory
	f     uint64
	rx    *vringtest.Driver
	tx    *vringtest.Driver
	rxq   *vring.DeviceQueue
	txq   *vring.DeviceQueue
	calls [queues]*vringtest.Event
}

type option func(r *rig, size *uint16)

func features(f uint64) option     { return func(r *rig, _ *uint16) { r.f = f } }
func ringSize(n uint16) option     { return func(_ *rig, size *uint16) { *size = n } }
func without(bits uint64) option   { return func(r *rig, _ *uint16) { r.f &^= bits } }
func (r *rig) ep() link.Endpoint   { return r.h.EP() }
func (r *rig) drops(x Drop) int    { return int(r.d.drops[x]) }
func (r *rig) has(bit uint64) bool { return r.f&bit != 0 }

// newRig makes a rig whose link is up.
func newRig(tb testing.TB, opts ...option) *rig {
	tb.Helper()
	r := &rig{tb: tb, f: everything, clock: &eventlooptest.FakeClock{T: 1}, h: &linktest.Handler{}}
	size := uint16(256)
	for _, o := range opts {
		o(r, &size)
	}
	var err error
	if r.loop, err = eventloop.New(r.clock); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.loop.Close)
	if r.d, err = New(Config{Profile: ProfileUML}, r.h, r.loop); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.d.Close)
	r.mem = vringtest.NewMemory(tb, 48<<20, 48<<20)
	r.calls = [queues]*vringtest.Event{vringtest.NewEvent(tb), vringtest.NewEvent(tb)}
	r.d.Negotiated(r.f)
	ringFeatures := vringtest.Features{EventIdx: r.has(vhostuser.RingFEventIdx),
		Indirect: r.has(vhostuser.RingFIndirectDesc), InOrder: r.has(vhostuser.FInOrder)}
	r.rx, r.tx = r.mem.NewRing(size).NewDriver(ringFeatures, 0), r.mem.NewRing(size).NewDriver(ringFeatures, 0)
	r.rxq, r.txq = r.queue(rxQueue, r.rx.Ring, 0), r.queue(txQueue, r.tx.Ring, 0)
	for i, q := range []*vring.DeviceQueue{r.rxq, r.txq} {
		r.d.Start(i, q)
		r.d.Enable(i, true)
	}
	r.turn()
	if len(r.h.Ups) != 1 {
		tb.Fatalf("link is not up: %+v", r.h.Ups)
	}
	return r
}

func (r *rig) queue(i int, ring *vringtest.Ring, base uint16) *vring.DeviceQueue {
	c := ring.Config(r.mem.Table())
	c.Index, c.Base, c.CallFD = i, base, r.calls[i].FD
	c.EventIdx, c.Indirect, c.InOrder = r.has(vhostuser.RingFEventIdx), r.has(vhostuser.RingFIndirectDesc), r.has(vhostuser.FInOrder)
	q, err := vring.NewDeviceQueue(c)
	if err != nil {
		r.tb.Fatal(err)
	}
	return q
}

// kick passes on the driver's notifications as the vhost-user server does.
func (r *rig) kick() (kicked bool) {
	for i, drv := range []*vringtest.Driver{r.rx, r.tx} {
		if drv.Kick.Count() > 0 {
			kicked = true
			r.d.Kick(i)
		}
	}
	return kicked
}

// turn is one turn of the loop, kicks first.
func (r *rig) turn() {
	r.tb.Helper()
	r.kick()
	if err := r.loop.Turn(0); err != nil {
		r.tb.Fatal(err)
	}
}

// settle turns until nothing happens any more, for longer than the device rests.
func (r *rig) settle() {
	r.tb.Helper()
	const step = 5 * time.Microsecond
	quiet := 0
	for range 1000 {
		before := r.loop.Stats().Agains
		r.clock.Advance(step)
		kicked := r.kick()
		r.turn()
		if quiet++; kicked || r.loop.Stats().Agains != before {
			quiet = 0
		}
		if time.Duration(quiet)*step > time.Duration(txRest) {
			return
		}
	}
	r.tb.Fatal("the device does not come to rest")
}

// post gives the device n receive buffers of size bytes each.
func (r *rig) post(n int, sizes ...uint32) {
	r.tb.Helper()
	for range n {
		if _, ok := r.rx.Post(sizes...); !ok {
			r.tb.Fatal("receive ring is full")
		}
	}
}

// hdr makes a virtio header.
func hdr(flags, gso uint8, hdrLen, size, start, off uint16) []byte {
	b := []byte{flags, gso}
	for _, v := range []uint16{hdrLen, size, start, off, 0} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func plain() []byte { return hdr(0, 0, 0, 0, 0, 0) }

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	s := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

// fill writes p, in order, into the slot's header and payload.
func fill(s *link.Slot, p []byte) {
	p = p[copy(s.Header, p):]
	s.Used = len(p)
	for _, seg := range s.Payload {
		p = p[copy(seg, p):]
	}
}

// received is a frame as the driver sees it.
type received struct {
	hdr     []byte
	data    []byte
	buffers int
}

// reap takes the frames that the driver has got, merging buffers by num_buffers
// as it must.
func (r *rig) reap() (frames []received) {
	r.tb.Helper()
	n := netHdrLen
	if r.f&(vhostuser.FVersion1|vhostuser.NetFMrgRxbuf) == 0 {
		n = netHdrLenLegacy
	}
	used := r.rx.Reap()
	for i := 0; i < len(used); {
		u := used[i]
		i++
		if u.Written == 0 {
			continue // a buffer that nothing could be done with
		}
		if len(u.Data) < n {
			r.tb.Fatalf("buffer with %d bytes used begins a frame", len(u.Data))
		}
		f := received{hdr: u.Data[:n], data: bytes.Clone(u.Data[n:]), buffers: 1}
		if n == netHdrLen {
			f.buffers = int(binary.LittleEndian.Uint16(f.hdr[10:]))
		}
		for range f.buffers - 1 {
			if i == len(used) {
				r.tb.Fatalf("frame of %d buffers is cut short", f.buffers)
			}
			f.data = append(f.data, used[i].Data...)
			i++
		}
		frames = append(frames, f)
	}
	return frames
}
