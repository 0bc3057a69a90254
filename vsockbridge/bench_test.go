package vsockbridge

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/packet"
)

// traffic moves bytes between a guest that has no costs of its own and a socket
// that is read from and written to as fast as it goes.
type traffic struct {
	r    *rig
	g    *guest
	s    *socket
	c    *conn
	buf  []byte
	segs []vring.DriverSeg // of one packet from the guest
	page [1]vring.DriverSeg
}

func newTraffic(r *rig, size int) *traffic {
	x := &traffic{r: r, g: r.guest(1000, 80), buf: make([]byte, 1<<20)}
	x.s = x.g.connect()
	x.c = r.conn(1000, 80)
	r.ring[txQueue].Reap()
	gpa := r.mem.Alloc(packet.Size, 8)
	copy(r.mem.Bytes(gpa, packet.Size), encode(x.g.header(packet.RW, size)))
	x.segs = append(x.segs, vring.DriverSeg{GPA: gpa, Len: packet.Size})
	for n := size; n > 0; n -= 32 << 10 {
		x.segs = append(x.segs, vring.DriverSeg{GPA: r.mem.Alloc(32<<10, 4096), Len: uint32(min(n, 32<<10))})
	}
	x.page[0] = vring.DriverSeg{GPA: r.mem.Alloc(4096, 4096), Len: pageRoom, Write: true}
	return x
}

func (x *traffic) refill() {
	for _, q := range []int{rxQueue, txQueue} {
		for {
			if _, _, ok := x.r.ring[q].Q.Used(); !ok {
				break
			}
		}
	}
	for {
		if _, ok := x.r.ring[rxQueue].Q.Add(x.page[:], 0); !ok {
			break
		}
	}
	x.r.ring[rxQueue].Q.Publish()
}

// toHost sends n packets, and reads them.
func (x *traffic) toHost(n, size int) {
	x.refill()
	for range n {
		if _, ok := x.r.ring[txQueue].Q.Add(x.segs, 0); !ok {
			x.r.tb.Fatal("ring is full")
		}
	}
	x.r.ring[txQueue].Q.Publish()
	x.r.d.Ready(0, eventloop.Again)
	x.r.d.Flush()
	for n *= size; n > 0; {
		k, err := unix.Read(x.s.fd, x.buf)
		if err != nil {
			x.r.tb.Fatal(err)
		}
		n -= k
	}
}

// toGuest writes n bytes, and has them delivered.
func (x *traffic) toGuest(n int) {
	x.refill()
	if k, err := unix.Write(x.s.fd, x.buf[:n]); k != n {
		x.r.tb.Fatal(k, err)
	}
	before := x.c.credit.sent
	(*hostSide)(x.r.d).Ready(uint32(x.c.slot), eventloop.In)
	x.r.d.Flush()
	if x.c.credit.sent-before != uint32(n) {
		x.r.tb.Fatalf("%d of %d bytes", x.c.credit.sent-before, n)
	}
	x.c.credit.update(256<<10, x.c.credit.sent) // the guest has read them
}

// TestNoAllocation: the data path allocates nothing.
func TestNoAllocation(t *testing.T) {
	for _, size := range []int{64, 4096, 64 << 10} {
		x := newTraffic(newRig(t), size)
		if n := testing.AllocsPerRun(200, func() { x.toHost(2, size) }); n != 0 {
			t.Errorf("%d bytes to the host: %v allocations", size, n)
		}
		if n := testing.AllocsPerRun(200, func() { x.toGuest(size) }); n != 0 {
			t.Errorf("%d bytes to the guest: %v allocations", size, n)
		}
	}
}

func BenchmarkToHost(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x := newTraffic(newRig(b), size)
			n := min(32, (128<<10)/size)
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			for b.Loop() {
				x.toHost(n, size)
			}
		})
	}
}

func BenchmarkToGuest(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 128 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x := newTraffic(newRig(b), 64)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				x.toGuest(size)
			}
		})
	}
}

// BenchmarkConnect is a connection opened, used for one byte each way and closed.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b)
	h := &recycler{r: r}
	r.d.cfg.Host = h
	x := &traffic{r: r, g: r.guest(1000, 80), buf: make([]byte, 64)}
	x.page[0] = vring.DriverSeg{GPA: r.mem.Alloc(4096, 4096), Len: pageRoom, Write: true}
	ops := []packet.Op{packet.Request, packet.RW, packet.Shutdown}
	gpa := make([]uint64, len(ops))
	for i, op := range ops {
		p := x.g.header(op, 0)
		if p.Op == packet.RW {
			p.Len = 1
		} else if p.Op == packet.Shutdown {
			p.Flags = packet.ShutdownBoth
		}
		gpa[i] = r.mem.Alloc(packet.Size+1, 8)
		copy(r.mem.Bytes(gpa[i], packet.Size+1), append(encode(p), 'x'))
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range ops {
			x.refill()
			n := uint32(packet.Size)
			if ops[i] == packet.RW {
				n++
			}
			r.ring[txQueue].Q.Add([]vring.DriverSeg{{GPA: gpa[i], Len: n}}, 0)
			r.ring[txQueue].Q.Publish()
			r.d.Ready(0, eventloop.Again)
			r.d.Flush()
		}
		if r.d.conns.used != 0 {
			b.Fatal("still there")
		}
		unix.Close(h.fd)
	}
}

// recycler is a Host whose ends the benchmark closes.
type recycler struct {
	r  *rig
	fd int
}

func (h *recycler) Dial(uint64, uint32, packet.Type) (int, bool, unix.Errno) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, false, err.(unix.Errno)
	}
	h.fd = p[0]
	return p[1], false, 0
}
