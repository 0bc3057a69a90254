package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// rig is an Endpoint whose other end, in a namespace of its own, is a packet
// socket with virtio headers: it sends and sees frames as the stack there does.
type rig struct {
	t      testing.TB
	loop   *eventloop.Loop
	h      *linktest.Handler
	e      *Endpoint
	socket int
	index  int
	gone   int
}

// inside runs f on a thread in the rig's namespace.
type inside struct{ f chan func() }

func newNamespace(t testing.TB) inside {
	n := inside{make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		made <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range n.f {
			f()
		}
	}()
	if err := <-made; errors.Is(err, unix.EPERM) {
		t.Skip("network namespaces are not allowed here")
	} else if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n inside) do(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error)
	n.f <- func() { done <- f() }
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func newRig(t testing.TB, mtu int) *rig {
	t.Helper()
	r := &rig{t: t, h: &linktest.Handler{}}
	n := newNamespace(t)
	t.Cleanup(func() { close(n.f) })
	fd := -1
	n.do(t, func() (err error) {
		var name string
		if fd, name, err = Open("gw%d"); errors.Is(err, os.ErrPermission) {
			return err
		} else if err != nil {
			return err
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		r.index = l.Attrs().Index
		// Nothing of its own: no router solicitations, no multicast reports.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetMTU(l, mtu), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		r.socket, err = packetSocket(r.index)
		return err
	})
	t.Cleanup(func() { unix.Close(r.socket) })
	var err error
	if r.loop, err = eventloop.New(eventloop.NewClock()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.loop.Close)
	if r.e, err = New(Config{FD: fd, MTU: mtu, Gone: func() { r.gone++ }}, r.h, r.loop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.e.Close)
	r.turn()
	if len(r.h.Ups) != 1 || !r.h.Ups[0].Fresh || r.h.Ups[0].Caps.MTU != mtu {
		t.Fatalf("link up: %+v", r.h.Ups)
	}
	return r
}

// packetSocket is a socket of packet(7) with PACKET_VNET_HDR, whose header has 10
// bytes.
func packetSocket(index int) (int, error) {
	const proto = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 32<<20),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index}))
}

func (r *rig) turn() {
	r.t.Helper()
	if err := r.loop.Turn(0); err != nil {
		r.t.Fatal(err)
	}
}

// send has the namespace send a frame with a header.
func (r *rig) send(off link.Offload, header int, frame []byte) {
	r.t.Helper()
	h := make([]byte, HdrLen)
	if !Encode(h, &off, header, len(frame)) {
		r.t.Fatalf("no header for %+v", off)
	}
	if _, err := unix.Write(r.socket, append(h[:10:10], frame...)); err != nil {
		r.t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
	}
}

// seen is the next frame that the namespace has received, nil when there is none.
func (r *rig) seen() (off link.Offload, frame []byte) {
	r.t.Helper()
	b := make([]byte, 10+link.MaxFrame)
	n, err := unix.Read(r.socket, b)
	if err == unix.EAGAIN {
		return off, nil
	}
	if err != nil || n < 10 {
		r.t.Fatalf("read %d bytes, %v", n, err)
	}
	h := append(b[:10:10], 0, 0)
	if !Decode(&off, h, n-10) {
		r.t.Fatalf("header % x", h)
	}
	return off, b[10:n]
}

// frame is an Ethernet frame with an IPv4 packet of n bytes in all.
func frame(proto uint8, n int, seed uint64) []byte {
	f := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range f {
		f[i] = byte(rnd.Uint32())
	}
	copy(f, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00")
	binary.BigEndian.PutUint16(f[16:], uint16(n-14))
	copy(f[18:], "\x00\x01\x40\x00\x40")
	f[23] = proto
	copy(f[26:], "\x0a\x00\x02\x0f\x0a\x00\x02\x02")
	switch proto {
	case unix.IPPROTO_TCP:
		f[46] = 5 << 4 // data offset
		f[47] = 0x10   // ACK
	case unix.IPPROTO_UDP:
		binary.BigEndian.PutUint16(f[38:], uint16(n-34))
	}
	return f
}

var (
	tso = link.Offload{GSO: link.GSOTCPv4, SegSize: 1460, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	uso = link.Offload{GSO: link.GSOUDP, SegSize: 1400, NeedsCsum: true, CsumStart: 34, CsumOff: 6}
)

// shapes are the frames that pass both ways, whatever the MTU.
var shapes = []struct {
	name   string
	off    link.Offload
	proto  uint8
	header int
	n      int
}{
	{"smallest", link.Offload{}, 253, 34, 34},
	{"full", link.Offload{}, 253, 34, 1514},
	{"checksum left out", link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}, unix.IPPROTO_TCP, 54, 600},
	{"64 KiB of TCP", tso, unix.IPPROTO_TCP, 54, 65535}, // the stack cuts from gso_max_size (65,536) on
	{"45 datagrams", uso, unix.IPPROTO_UDP, 42, 42 + 45*1400},
}

func TestFromNamespace(t *testing.T) {
	for _, mtu := range []int{1500, 65520} {
		t.Run(fmt.Sprint("MTU ", mtu), func(t *testing.T) {
			r := newRig(t, mtu)
			for i, s := range shapes {
				want := frame(s.proto, s.n, uint64(i))
				r.send(s.off, s.header, want)
				r.turn()
				if len(r.h.Got) != 1 {
					t.Fatalf("%s: %d frames, %+v", s.name, len(r.h.Got), r.e.Stats())
				}
				got := r.h.Got[0]
				if got.Off != s.off || !bytes.Equal(got.Data, want) {
					t.Errorf("%s: %d bytes with %+v, want %d with %+v", s.name, len(got.Data), got.Off, len(want), s.off)
				}
				r.h.Got = nil
			}
		})
	}
}

func TestToNamespace(t *testing.T) {
	for _, mtu := range []int{1500, 65520} {
		t.Run(fmt.Sprint("MTU ", mtu), func(t *testing.T) {
			r := newRig(t, mtu)
			largest := shapes[3]
			largest.n = link.MaxGSOFrame
			for i, s := range append(shapes, largest) {
				want := frame(s.proto, s.n, uint64(i))
				if !link.Send(r.e, want[:s.header], want[s.header:], s.off) {
					t.Fatalf("%s: no room", s.name)
				}
				off, got := r.seen()
				// hdr_len is not part of Offload; the kernel keeps all else.
				if off != s.off || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes with %+v, want %d with %+v", s.name, len(got), off, len(want), s.off)
				}
			}
		})
	}
}

// Frames keep their order, batch after batch, and a turn ends within its budget.
func TestBatches(t *testing.T) {
	r := newRig(t, 1500)
	const count = 300
	for i := range count {
		r.send(link.Offload{}, 34, frame(253, 60+i, uint64(i)))
	}
	r.turn()
	if r.h.Count > turnFrames || r.h.Count < inBatch {
		t.Errorf("the first turn took %d frames", r.h.Count)
	}
	for r.h.Count < count {
		before := r.h.Count
		if r.turn(); r.h.Count == before {
			t.Fatalf("a turn without a frame, at %d", before)
		}
	}
	for i, f := range r.h.Got {
		if !bytes.Equal(f.Data, frame(253, 60+i, uint64(i))) {
			t.Fatalf("frame %d is not itself", i)
		}
	}
	for _, n := range r.h.Batches {
		if n > inBatch {
			t.Errorf("a batch of %d", n)
		}
	}
}

// A reservation may be cut short, and slots be used in part or not at all.
func TestReserve(t *testing.T) {
	r := newRig(t, 1500)
	slots := r.e.Reserve(34, 1000, 3)
	if len(slots) != 3 {
		t.Fatalf("%d slots", len(slots))
	}
	var want [][]byte
	for i := range slots {
		s := &slots[i]
		f := frame(253, 34+100*i, uint64(i))
		copy(s.Header, f)
		s.Used = copy(s.Payload[0], f[34:])
		want = append(want, f)
	}
	r.e.Commit(2)
	for _, w := range want[:2] {
		if _, got := r.seen(); !bytes.Equal(got, w) {
			t.Errorf("%d bytes, want %d", len(got), len(w))
		}
	}
	if _, got := r.seen(); got != nil {
		t.Errorf("a slot that was not committed arrived, with %d bytes", len(got))
	}
	// More than there can be at a time: Writable comes by itself.
	n := len(r.e.Reserve(54, 65000, 100))
	if n < 4 || n > 8 {
		t.Errorf("%d slots of 65,000 bytes in %d", n, outSize)
	}
	r.e.Commit(0)
	r.turn()
	if r.h.Writables != 1 {
		t.Errorf("%d calls of Writable", r.h.Writables)
	}
	for _, bad := range [][2]int{{-1, 0}, {link.MaxHeader + 1, 0}, {0, -1}, {54, link.MaxFrame}} {
		if r.e.Reserve(bad[0], bad[1], 1) != nil {
			t.Errorf("Reserve(%d, %d) gives a slot", bad[0], bad[1])
		}
	}
}

// What cannot be sent costs that frame alone.
func TestRefused(t *testing.T) {
	r := newRig(t, 1500)
	f := frame(unix.IPPROTO_TCP, 600, 1)
	link.Send(r.e, f[:54], f[54:], link.Offload{GSO: link.GSOTCPv4, SegSize: 100}) // no checksum
	link.Send(r.e, f[:54], f[54:], link.Offload{NeedsCsum: true, CsumStart: 599, CsumOff: 16})
	link.Send(r.e, f[:13], nil, link.Offload{})
	link.Send(r.e, f[:54], f[54:], link.Offload{})
	if _, got := r.seen(); !bytes.Equal(got, f) {
		t.Error("the good frame behind the bad ones is not there")
	}
	if s := r.e.Stats(); s.RxOffload != 3 || s.RxFrames != 1 {
		t.Errorf("%+v", s)
	}
}

// A full send buffer holds frames back, in order, until some have been taken; the
// loop does not spin meanwhile, and Writable follows. The stack of a namespace
// takes every frame at once, so the buffer here is that of a socket.
func TestBlocked(t *testing.T) {
	r := newRig(t, 1500)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.loop.Remove(r.e.token)
	if err := errors.Join(unix.Dup3(fds[0], r.e.fd, 0), unix.Close(fds[0])); err != nil {
		t.Fatal(err)
	}
	if r.e.token, err = r.loop.Add(r.e.fd, eventloop.In, r.e, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	sent := 0
	for range 10000 {
		f := frame(253, 1000, uint64(sent))
		if !link.Send(r.e, f[:34], f[34:], link.Offload{}) {
			break
		}
		sent++
	}
	if s := r.e.Stats(); s.Blocked != 1 || sent < 2 || sent == 10000 {
		t.Fatalf("%d frames went, %+v", sent, s)
	}
	if r.turn(); r.h.Writables != 0 {
		t.Error("Writable while the buffer is full")
	}
	b := make([]byte, 2000)
	for i := range sent {
		n, err := unix.Read(fds[1], b)
		if err == unix.EAGAIN {
			r.turn() // reading has made room
			n, err = unix.Read(fds[1], b)
		}
		if err != nil || !bytes.Equal(b[HdrLen:n], frame(253, 1000, uint64(i))) {
			t.Fatalf("frame %d of %d is not itself: %d bytes, %v", i, sent, n, err)
		}
	}
	if r.turn(); r.h.Writables != 1 {
		t.Errorf("%d calls of Writable", r.h.Writables)
	}
}

// While the interface is down its frames are dropped; when it is deleted the link
// goes down for good.
func TestDownAndGone(t *testing.T) {
	n := newNamespace(t)
	defer close(n.f)
	fd, name := -1, ""
	n.do(t, func() (err error) { fd, name, err = Open("tap0"); return err })
	if name != "tap0" {
		t.Errorf("the interface is called %q", name)
	}
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	h, gone := &linktest.Handler{}, 0
	e, err := New(Config{FD: fd, Gone: func() { gone++ }}, h, loop)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	loop.Turn(0)
	f := frame(253, 100, 1)
	if !link.Send(e, f[:34], f[34:], link.Offload{}) || e.Stats().RxDown != 1 {
		t.Errorf("down: %+v", e.Stats())
	}
	n.do(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	link.Send(e, f[:34], f[34:], link.Offload{}) // in the middle of the handler's work
	if h.Downs != 0 || gone != 0 {
		t.Error("told under the handler's feet")
	}
	loop.Turn(0)
	if h.Downs != 1 || h.Gone != 1 || gone != 1 {
		t.Errorf("%d LinkDown, %d GuestGone, %d Gone", h.Downs, h.Gone, gone)
	}
	if e.Reserve(34, 0, 1) != nil {
		t.Error("room towards an interface that is gone")
	}
}

// A handler that panics loses its guest's flows, not the interface.
func TestBreak(t *testing.T) {
	r := newRig(t, 1500)
	r.h.OnFrames = func([]link.Frame) { panic("of a test") }
	r.send(link.Offload{}, 34, frame(253, 100, 1))
	r.turn()
	r.h.OnFrames = nil
	r.turn()
	if len(r.h.Ups) != 2 || r.h.Downs != 1 || r.h.Gone != 1 || r.gone != 0 {
		t.Errorf("%d up, %d down, %d gone", len(r.h.Ups), r.h.Downs, r.h.Gone)
	}
	r.h.Got = nil
	r.send(link.Offload{}, 34, frame(253, 200, 2))
	if r.turn(); len(r.h.Got) != 1 {
		t.Error("no frames any more")
	}
}

// Neither direction allocates.
func TestNoAllocations(t *testing.T) {
	r := newRig(t, 1500)
	r.h.Discard = true
	pkt := append(make([]byte, 10), frame(253, 1514, 1)...)
	head, body := pkt[10:44], pkt[44:]
	if n := testing.AllocsPerRun(100, func() {
		unix.Write(r.socket, pkt)
		r.loop.Turn(0)
		link.Send(r.e, head, body, link.Offload{})
		unix.Read(r.socket, pkt)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if r.h.Count < 100 || r.e.Stats().RxFrames < 100 {
		t.Errorf("%d frames came, %+v", r.h.Count, r.e.Stats())
	}
}

func TestOpenFails(t *testing.T) {
	if _, _, err := Open("a-name-that-is-too-long"); err == nil {
		t.Error("an interface name of 23 bytes is taken")
	}
	for _, mtu := range []int{67, 65536} {
		fds, err := unix.Open("/dev/null", unix.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{FD: fds, MTU: mtu}, &linktest.Handler{}, nil); err == nil {
			t.Errorf("MTU %d is taken", mtu)
		}
		if err := unix.Close(fds); err != unix.EBADF {
			t.Error("the descriptor is left open")
		}
	}
}
