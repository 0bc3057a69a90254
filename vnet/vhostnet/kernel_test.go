package vhostnet

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vnet/tap"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/guestmem"
	"guestwire/vring/vhostkern"
)

// kernel plays vhost-net: the device side of both rings, over the same memory.
type kernel struct {
	t        testing.TB
	features uint64
	mem      *guestmem.Table
	q        [2]*vring.DeviceQueue
	tap      int
	attached int // calls of Attach
	refuse   error
	closed   int
	errFD    int
}

func (k *kernel) Setup(features uint64, a *vhostkern.Arena) error {
	k.features = features
	k.mem = guestmem.FromBytes(a.Addr, a.Addr, a.Mem)
	return k.refuse
}

func (k *kernel) Attach(i int, r vhostkern.Ring, tap int) (err error) {
	if k.refuse != nil {
		return k.refuse
	}
	n := uint64(r.Size)
	k.q[i], err = vring.NewDeviceQueue(vring.Config{
		Index: i, Size: r.Size, Mem: k.mem,
		Desc: k.mem.Slice(r.Desc, 16*n), Avail: k.mem.Slice(r.Avail, 6+2*n), Used: k.mem.Slice(r.Used, 6+8*n),
		EventIdx: true, CallFD: r.Call, ErrFD: r.Err,
	})
	k.tap, k.errFD = tap, r.Err
	k.attached++
	return err
}

func (k *kernel) Detach(i int) error {
	k.q[i] = nil
	return nil
}

func (k *kernel) Close() {
	k.q = [2]*vring.DeviceQueue{}
	k.closed++
}

// give has the namespace send frames: each goes into as many buffers as it takes,
// and all are returned together.
func (k *kernel) give(off link.Offload, header int, frames ...[]byte) {
	k.t.Helper()
	q := k.q[vhostkern.RX]
	for _, f := range frames {
		b := append(make([]byte, tap.HdrLen), f...)
		if !tap.Encode(b, &off, header, len(f)) {
			k.t.Fatalf("no header for %+v", off)
		}
		binary.LittleEndian.PutUint16(b[numBuffersAt:], uint16((len(b)+inBuf-1)/inBuf))
		k.put(b)
	}
	q.Publish()
}

// put writes b into the next buffers, without publishing.
func (k *kernel) put(b []byte) {
	k.t.Helper()
	q := k.q[vhostkern.RX]
	for len(b) > 0 {
		var c vring.Chain
		if !q.Pop(&c) {
			k.t.Fatalf("no buffer for %d bytes", len(b))
		}
		n := copy(c.Writable[0], b)
		q.Push(c.Head, uint32(n))
		b = b[n:]
	}
}

// seen is the next frame that has come for the namespace, nil when there is none.
// Its slot is not returned yet: see returns.
func (k *kernel) seen() (off link.Offload, frame []byte) {
	k.t.Helper()
	var c vring.Chain
	q := k.q[vhostkern.TX]
	if !q.Pop(&c) {
		q.ArmKick()
		return off, nil
	}
	b := c.Readable[0]
	if len(c.Readable) != 1 || len(b) < tap.HdrLen || !tap.Decode(&off, b, len(b)-tap.HdrLen) {
		k.t.Fatalf("a chain of %d buffers", len(c.Readable))
	}
	q.Push(c.Head, 0)
	return off, b[tap.HdrLen:]
}

func (k *kernel) returns() { k.q[vhostkern.TX].Publish() }

// rig is an Endpoint whose rings a fake kernel serves.
type rig struct {
	t     testing.TB
	clock eventlooptest.FakeClock
	loop  *eventloop.Loop
	h     *linktest.Handler
	k     *kernel
	e     *Endpoint
	c     Config
	gone  int
	lines []string
	unlik func() // deletes the interface
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, h: &linktest.Handler{}, k: &kernel{t: t}}
	r.clock.T = eventloop.Time(time.Hour)
	r.c = Config{Gone: func() { r.gone++ }, Log: func(f string, _ ...any) { r.lines = append(r.lines, f) }}
	r.c.Tap, r.unlik = newTap(t)
	var err error
	if r.loop, err = eventloop.New(&r.clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.loop.Close)
	if r.e, err = open(r.c, r.h, r.loop, r.k); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.e.Close)
	r.turn()
	if len(r.h.Ups) != 1 || !r.h.Ups[0].Fresh {
		t.Fatalf("link up: %+v", r.h.Ups)
	}
	return r
}

func (r *rig) turn() {
	r.t.Helper()
	if err := r.loop.Turn(0); err != nil {
		r.t.Fatal(err)
	}
}

// second lets the timer look.
func (r *rig) second() {
	r.t.Helper()
	r.clock.Advance(1100 * time.Millisecond)
	r.turn()
	r.turn()
}

// newTap makes a tap in a namespace of its own.
func newTap(t testing.TB) (fd int, remove func()) {
	t.Helper()
	calls, errs := make(chan func() error), make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		errs <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range calls {
			errs <- f()
		}
	}()
	t.Cleanup(func() { close(calls) })
	if err := <-errs; errors.Is(err, os.ErrPermission) {
		t.Skip("network namespaces are not allowed here")
	} else if err != nil {
		t.Fatal(err)
	}
	do := func(f func() error) {
		t.Helper()
		if calls <- f; true {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	do(func() (err error) { fd, _, err = tap.Open("tap0"); return err })
	return fd, func() {
		do(func() error {
			l, err := netlink.LinkByName("tap0")
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		})
	}
}

// descriptors is how many this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
