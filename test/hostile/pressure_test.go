package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/vring/vringtest"
)

// fullDisk is a log on a disk that is full.
type fullDisk struct{ lines atomic.Int64 }

func (f *fullDisk) Write([]byte) (int, error) {
	f.lines.Add(1)
	return 0, syscall.ENOSPC
}

// diskFull: the capture file is on a full disk, or grows to its limit; the log
// too, and guest and frontend do what they can to fill it. Lines are limited,
// the guest is served.
func diskFull(t *testing.T) {
	t.Run("capture", func(t *testing.T) {
		d := start(t, func(o *configOptions) { o.Pcap = "/dev/full" })
		g := d.guest()
		for range 50 {
			g.ping()
		}
		d.pass(3*time.Second, time.Second) // it is flushed once a second
		for range 50 {
			g.ping()
		}
		g.leave()
		d.healthy()
	})
	t.Run("capture's limit", func(t *testing.T) {
		const limit = 20000
		file := filepath.Join(t.TempDir(), "pcap")
		d := start(t, func(o *configOptions) { o.Pcap, o.PcapSize = file, limit })
		g := d.guest()
		for range 300 { // at least 120 bytes each
			g.ping()
		}
		d.pass(3*time.Second, time.Second)
		st, err := os.Stat(file)
		must(t, err)
		if st.Size() > limit || st.Size() < limit/2 {
			t.Errorf("the capture has %d bytes, its limit is %d", st.Size(), limit)
		}
		g.leave()
		d.healthy()
	})
	t.Run("log", func(t *testing.T) {
		var full fullDisk
		d := startIn(t, func(o *configOptions) { o.MapHostLoopback = nil }, surroundings{log: &full})
		g := d.guest()
		for i := range 1000 {
			if err := g.f.SetVringNum(7, 64); err == nil { // refused each time
				t.Fatal("a ring that is not there has a size")
			}
			port := uint16(1000 + i)
			g.send(tcp(t, gateway, port, 80, nil, syn), tcp(t, net.IP{169, 254, 169, 254}, port, 80, nil, syn),
				udpFrom(t, guestIP, port, net.IP{127, 0, 0, 1}, 53, nil), udpFrom(t, guestIP, port, net.IP{224, 0, 0, 1}, 53, nil))
			g.receive()
		}
		d.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
		if n := full.lines.Load(); n == 0 || n > 100 {
			t.Errorf("%d lines in the log for 5,000 provocations", n)
		}
		g.leave()
		d.healthy()
	})
}

// onePing is a guest's ping at the level of the rings: fixed buffers, nothing
// allocated.
type onePing struct {
	g      *guest
	rx, tx *vringtest.Ring
	one    []byte
	seen   uint16 // used index of the receive ring
}

func newPing(t *testing.T, d *daemon) *onePing {
	g := d.frontend(features)
	p := &onePing{g: g, rx: g.mem.NewRing(ringSize), tx: g.mem.NewRing(ringSize), one: binary.NativeEndian.AppendUint64(nil, 1)}
	g.rings = [2]*vringtest.Ring{p.rx, p.tx}
	kick := vringtest.NewEvent(t)
	g.tx = &vringtest.Driver{Kick: kick}
	for i := range g.rings {
		must(t, g.startRing(i, kick.FD))
	}
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}
	f := append(make([]byte, netHdr), frame(t, layers.EthernetTypeIPv4, ip4(layers.IPProtocolICMPv4, guestIP, gateway), echo, gopacket.Payload("alive?"))...)
	at := g.mem.Alloc(uint64(len(f)), 1)
	g.mem.Write(at, f)
	p.tx.SetDesc(0, at, uint32(len(f)), 0, 0)
	for i := range ringSize {
		p.rx.SetDesc(i, g.mem.Alloc(rxBuffer, 1), rxBuffer, vringtest.Write, 0)
		p.rx.Offer(uint16(i))
	}
	return p
}

// run sends the ping, waits for what comes back, and posts the buffer again.
func (p *onePing) run() {
	p.tx.Offer(0)
	_, _ = unix.Write(p.g.tx.Kick.FD, p.one)
	for n := 0; p.rx.UsedIdx() == p.seen || p.tx.UsedIdx() != p.tx.AvailIdx(); n++ {
		runtime.Gosched()
		if n > 1<<24 {
			p.g.t.Fatal("no answer")
		}
	}
	for ; p.seen != p.rx.UsedIdx(); p.seen++ {
		id, _ := p.rx.UsedElem(p.seen)
		p.rx.Offer(uint16(id))
	}
}

// oneProcessor: the whole process has one processor. A packet there and back
// allocates nothing in it; and under a collector that never rests a download
// arrives whole. How long the collector stops the world is measured and said.
func oneProcessor(t *testing.T) {
	d := start(t, nil)
	p := newPing(t, d)
	for range 200 {
		p.run()
	}
	if n := testing.AllocsPerRun(2000, p.run); n != 0 { // sets GOMAXPROCS to 1
		t.Errorf("%v allocations for a ping and its answer", n)
	}
	p.g.leave()

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	var stop atomic.Bool
	waste := make(chan int)
	go func() {
		var keep [64][]byte
		n := 0
		for ; !stop.Load(); n++ {
			keep[n%len(keep)] = make([]byte, 1<<14)
			runtime.Gosched()
		}
		waste <- n
	}()
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 4001)
	h := srv.accept()
	data := bytes.Repeat([]byte("under pressure. "), 20000)
	go func() { _, _ = h.c.Write(data) }()
	if got := c.download(len(data), func() {}); !bytes.Equal(got, data) {
		t.Error("the download is not what the host sent")
	}
	stop.Store(true)
	<-waste
	debug.ReadGCStats(&after)
	n := after.NumGC - before.NumGC
	if n == 0 {
		t.Error("the collector did not run: no pressure")
	}
	worst := time.Duration(0)
	for _, pause := range after.Pause[:min(int(n), len(after.Pause))] {
		worst = max(worst, pause)
	}
	t.Logf("%d collections during a download of %d bytes, the longest pause %v", n, len(data), worst)
	g.leave()
	d.healthy()
}
