package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/cmd/worker"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// daemon is a whole worker in this process.
type daemon struct {
	t    *testing.T
	path string
	w    *worker.Worker
	done chan error

	clock   *clock
	stopped bool

	unsealable bool // guest memory refuses seals, as a file on a disk does
}

// configOptions is what a row may change of the command line.
type configOptions = config.Options

// start runs a worker for the length of the test. Before the test ends it must
// still serve a guest.
func start(t *testing.T, change func(*configOptions)) *daemon {
	t.Helper()
	return startOn(t, change, nil)
}

// startOn is start with the host's sockets wrapped.
func startOn(t *testing.T, change func(*configOptions), host func(hostsock.Host) hostsock.Host) *daemon {
	t.Helper()
	return startIn(t, change, surroundings{host: host})
}

// surroundings are what a row puts around a worker. What is nil is ordinary.
type surroundings struct {
	host       func(hostsock.Host) hostsock.Host
	log        io.Writer
	enter      func() // called on the loop's thread before it runs; the thread dies with the loop
	resolvConf string // path
}

func startIn(t *testing.T, change func(*configOptions), s surroundings) *daemon {
	t.Helper()
	if s.log == nil {
		s.log = io.Discard
	}
	o := config.Options{SocketPath: filepath.Join(t.TempDir(), "s"), FD: -1, MapHostLoopback: []string{"10.0.2.2", "fd67:7765:7374::2"}}
	if change != nil {
		change(&o)
	}
	c, err := config.Resolve(&o, config.ReadHostNet)
	if err != nil {
		t.Fatal(err)
	}
	fds := descriptors(t)
	clk := &clock{Clock: eventloop.NewClock()}
	w, err := worker.NewOn([]config.Guest{{Net: c}}, slog.New(slog.NewTextHandler(s.log, nil)), worker.Seams{Clock: clk, Host: s.host, ResolvConf: s.resolvConf})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, path: o.SocketPath, w: w, done: make(chan error, 1), clock: clk}
	go func() {
		if s.enter != nil {
			runtime.LockOSThread()
			s.enter()
		}
		d.done <- w.Run()
	}()
	t.Cleanup(func() {
		d.stop()
		if now := descriptors(t); now > fds {
			t.Errorf("%d descriptors before, %d after", fds, now)
		}
	})
	return d
}

// stop ends the worker. The cleanup of start does it too.
func (d *daemon) stop() {
	d.t.Helper()
	if d.stopped {
		return
	}
	d.stopped = true
	d.w.Stop()
	select {
	case err := <-d.done:
		if err != nil {
			d.t.Errorf("the worker ended: %v", err)
		}
	case <-time.After(5 * time.Second):
		d.t.Error("the worker does not stop")
	}
	d.w.Close()
}

func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// counters asks the worker for all of its counters.
func (d *daemon) counters() map[string]uint64 {
	if d.w == nil {
		return nil // a process of its own
	}
	var b bytes.Buffer
	d.w.PrintStats(&b)
	m := map[string]uint64{}
	for line := range strings.Lines(b.String()) {
		var name string
		var v uint64
		if n, _ := fmt.Sscanf(line, "%s %d", &name, &v); n == 2 {
			m[name] = v
		}
	}
	return m
}

// counts waits until the counter has reached want.
func (d *daemon) counts(name string, want uint64) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("%s to reach %d", name, want), func() bool { return d.counters()[name] >= want })
}

func (d *daemon) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	d.t.Fatalf("waited 4 s for %s; counters:%s", what, d.nonzero())
}

// nonzero lists the counters that are not 0, for failures.
func (d *daemon) nonzero() string {
	var list []string
	for name, v := range d.counters() {
		if v != 0 {
			list = append(list, fmt.Sprintf("%s=%d", name, v))
		}
	}
	slices.Sort(list)
	return " " + strings.Join(list, " ")
}

// healthy checks the promise that holds after every row: a guest that comes now
// is served.
func (d *daemon) healthy() {
	d.t.Helper()
	g := d.guest()
	defer g.leave()
	g.ping()
}

// guest is a frontend with a driver: one virtio-net device brought up.
type guest struct {
	t      *testing.T
	d      *daemon
	f      *vhostuser.Frontend
	mem    *vringtest.Memory
	rx, tx *vringtest.Driver
	rings  [2]*vringtest.Ring
	base   [2]uint16
	room   uint32 // of the receive buffers that replace used ones, 0: none do
	call   [2]*vringtest.Event
	err    [2]*vringtest.Event
	ipid   uint16
}

const (
	ringSize = 64
	rxBuffer = 2048
	netHdr   = 12
	features = vhostuser.FVersion1 | vhostuser.NetFCsum | vhostuser.NetFGuestCsum | vhostuser.NetFHostTSO4 | vhostuser.NetFHostTSO6 |
		vhostuser.NetFMrgRxbuf | vhostuser.RingFIndirectDesc | vhostuser.RingFEventIdx
	protocol = vhostuser.AlwaysProtocol&^vhostuser.ProtocolFGPAAddresses | vhostuser.ProtocolFNetMTU
)

// frontend is a session up to the features, of which want is acknowledged, with
// shared memory.
func (d *daemon) frontend(want uint64) *guest {
	d.t.Helper()
	g := &guest{t: d.t, mem: vringtest.NewMemory(d.t, 8<<20, 8<<20)}
	if d.unsealable {
		_, err := unix.FcntlInt(uintptr(g.mem.FD), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
		must(d.t, err)
	}
	g.meet(d, want)
	return g
}

// meet has the guest's frontend begin a session with d.
func (g *guest) meet(d *daemon, want uint64) {
	d.t.Helper()
	var f *vhostuser.Frontend
	d.eventually("a place for a frontend", func() bool {
		var err error
		if f, err = vhostuser.DialFrontend(d.path); err != nil {
			return false
		}
		_ = f.SetTimeout(4 * time.Second)
		if _, err = f.GetFeatures(); err != nil { // the one before has not been buried yet
			f.Close()
			return false
		}
		return true
	})
	d.t.Cleanup(f.Close)
	g.d, g.f = d, f
	_, p, err := f.Negotiate(want, protocol)
	must(d.t, err)
	must(d.t, f.Share(p, g.mem.Regions()))
}

// guest brings a device up, with all receive buffers posted.
func (d *daemon) guest() *guest {
	d.t.Helper()
	g := d.frontend(features)
	g.boot(ringSize, rxBuffer)
	return g
}

// boot starts a driver on fresh rings and posts n receive buffers.
func (g *guest) boot(n int, room uint32) {
	g.t.Helper()
	g.room = room
	feat := vringtest.Features{EventIdx: true, Indirect: true}
	for i := range g.rings {
		g.rings[i] = g.mem.NewRing(ringSize)
		drv := g.rings[i].NewDriver(feat, 0)
		if i == 0 {
			g.rx = drv
		} else {
			g.tx = drv
		}
		must(g.t, g.startRing(i, drv.Kick.FD))
	}
	for range n {
		g.rx.Post(room)
	}
}

// startRing has the backend serve ring i.
func (g *guest) startRing(i, kick int) error {
	g.call[i], g.err[i] = vringtest.NewEvent(g.t), vringtest.NewEvent(g.t)
	r := g.rings[i]
	if err := g.f.StartRing(i, vhostuser.RingSetup{
		Size: uint32(r.Size), Desc: g.mem.UVA(r.DescGPA), Avail: g.mem.UVA(r.AvailGPA), Used: g.mem.UVA(r.UsedGPA),
		Base: g.base[i], Kick: kick, Call: g.call[i].FD, Err: g.err[i].FD,
	}); err != nil {
		return err
	}
	return g.f.SetVringEnable(i, true)
}

func (g *guest) leave() { g.f.Close() }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send puts frames on the wire, each with a plain virtio header.
func (g *guest) send(frames ...[]byte) {
	g.t.Helper()
	for _, f := range frames {
		g.sendHdr(make([]byte, netHdr), f)
	}
}

func (g *guest) sendHdr(hdr, frame []byte) {
	g.t.Helper()
	g.tx.Reap()
	for end := time.Now().Add(4 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, ok := g.tx.Send(hdr, frame); ok {
			return
		}
		g.tx.Reap()
		if time.Now().After(end) {
			g.t.Fatal("the transmit ring stays full")
		}
	}
}

// hdr is a virtio header (virtio 1.3, 5.1.6).
func hdr(flags, gso byte, hdrLen, gsoSize, csumStart, csumOff uint16) []byte {
	b := []byte{flags, gso}
	for _, v := range []uint16{hdrLen, gsoSize, csumStart, csumOff, 0} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

// receive returns the frames that have come, without their virtio headers.
func (g *guest) receive() (frames [][]byte) {
	var frame []byte
	left := 0
	for _, u := range g.rx.Reap() {
		data := u.Data
		if left == 0 {
			left = int(binary.LittleEndian.Uint16(data[10:]))
			data, frame = data[netHdr:], nil
		}
		frame = append(frame, data...)
		if left--; left == 0 {
			frames = append(frames, frame)
		}
		if g.room != 0 {
			g.rx.Post(g.room)
		}
	}
	return frames
}

// await waits for a frame that fits.
func (g *guest) await(what string, fits func([]byte) bool) []byte {
	g.t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, f := range g.receive() {
			if fits(f) {
				return f
			}
		}
	}
	g.t.Fatalf("waited 4 s for %s; avail %d, used %d of the TX ring; counters:%s", what, g.rings[1].AvailIdx(), g.rings[1].UsedIdx(), g.d.nonzero())
	return nil
}

// silence checks that no frame that fits comes within a while.
func (g *guest) silence(what string, fits func([]byte) bool) {
	g.t.Helper()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, f := range g.receive() {
			if fits(f) {
				g.t.Fatalf("%s: got % x", what, f)
			}
		}
	}
}

// broken waits until the backend has said by the err eventfd of ring i that it
// is broken.
func (g *guest) broken(i int) {
	g.t.Helper()
	if !g.err[i].Wait(4 * time.Second) {
		g.t.Fatalf("ring %d is not broken after 4 s", i)
	}
}

// closed waits until the backend has closed the connection.
func closed(t *testing.T, fd int) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(p, 100); n == 1 {
			var b [256]byte
			if n, err := unix.Read(fd, b[:]); n == 0 || err != nil {
				return
			}
		}
	}
	t.Fatal("the connection is still open")
}

// forwards lists the ports that the inbound forwards listen on.
func (d *daemon) forwards() (ports []uint16) {
	for _, f := range strings.Split(d.w.Forwards(), "forwards ") {
		var proto, local string
		if n, _ := fmt.Sscanf(f, "%s %s ->", &proto, &local); n == 2 {
			if ap, err := netip.ParseAddrPort(local); err == nil {
				ports = append(ports, ap.Port())
			}
		}
	}
	return ports
}
