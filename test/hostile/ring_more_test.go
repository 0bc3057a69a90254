package hostile

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// oversize: chains of more than 4 GiB and frames of more than 64 KiB come back,
// each counted, and the ring goes on.
func oversize(t *testing.T) {
	ringContent(t, "R11")
	d := start(t, nil)
	g := d.guest()
	g.dropped("net_drop_oversize", make([]byte, netHdr), make([]byte, 70000))
	h := g.rings[1]
	for _, row := range vringtest.Hostiles() {
		if row.ID == "R11" {
			row.Build(h) // offers head 0 again, which is not in use
		}
	}
	signal(g.tx.Kick.FD)
	d.counts("net_drop_oversize", 2)
	if n := h.UsedIdx(); n != 2 {
		t.Errorf("%d chains came back, want 2", n)
	}
	g.leave()
	d.healthy()
}

// rewriter is a second thread of the guest that rewrites memory while the
// backend works with it.
type rewriter struct {
	rounds atomic.Uint64
	stop   atomic.Bool
	done   chan struct{}
}

func rewrite(t *testing.T, write func(i uint64)) *rewriter {
	r := &rewriter{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for i := uint64(0); !r.stop.Load(); i++ {
			write(i)
			r.rounds.Add(1)
			if i%64 == 0 {
				runtime.Gosched()
			}
		}
	}()
	t.Cleanup(r.end)
	return r
}

// advance waits until the thread has really written since the last call.
func (r *rewriter) advance() {
	for n := r.rounds.Load(); r.rounds.Load() < n+2; {
		runtime.Gosched()
	}
}

func (r *rewriter) end() {
	r.stop.Store(true)
	<-r.done
}

// rewriteWhileWorking has a second thread rewrite what the backend reads. Where
// it changes between things that are legal, every chain is served as one of
// them; where not, the ring breaks or every chain comes back.
func rewriteWhileWorking(t *testing.T) {
	t.Run("legal", func(t *testing.T) {
		d := start(t, nil)
		g := d.guest()
		r := g.rings[1]
		buf := g.mem.Alloc(4096, 16)
		frame := g.mem.Bytes(buf, 4096)
		copy(frame[netHdr:], udp(t, guestIP, world, 53, make([]byte, 400)))
		lengths := []uint32{0, 5, 40, 60, 454, 1500, 4096}
		r.SetDesc(0, buf, 454, 0, 0)
		w := rewrite(t, func(i uint64) {
			n := lengths[i%uint64(len(lengths))]
			r.SetDesc(0, buf, n, 0, uint16(i)) // next means nothing without its flag
			frame[0], frame[1] = byte(i>>1), byte(i>>2)
			frame[netHdr+12+byte(i%4)] = byte(i >> 3)
		})
		before := d.counters()
		const rounds = 300
		for range rounds {
			w.advance()
			r.Offer(0)
			signal(g.tx.Kick.FD)
			d.eventually("the chain to come back", func() bool { return r.UsedIdx() == r.AvailIdx() })
		}
		w.end()
		if g.err[1].Count() != 0 {
			t.Error("the ring is broken")
		}
		sum := uint64(0)
		for name, v := range d.counters() {
			switch name {
			case "net_tx_frames", "net_drop_short", "net_drop_empty", "net_drop_gso", "net_drop_csum", "net_drop_mtu", "net_drop_direction":
				sum += v - before[name]
			}
		}
		if sum != rounds {
			t.Errorf("%d chains offered, %d accounted for:%s", rounds, sum, d.nonzero())
		}
		g.leave()
		d.healthy()
	})
	t.Run("illegal", func(t *testing.T) {
		d := start(t, nil)
		broken := 0
		for range 12 {
			g := d.guest()
			r := g.rings[1]
			buf, table := g.mem.Alloc(4096, 16), g.mem.Alloc(64, 16)
			tb := g.mem.Bytes(table, 64)
			good := func() { r.SetDesc(0, buf, 500, vringtest.Next, 1); r.SetDesc(1, buf, 500, 0, 0) }
			good()
			bad := []func(){
				func() { r.SetDesc(0, g.mem.End()-8, 500, vringtest.Next, 1) },
				func() { r.SetDesc(1, buf, 500, vringtest.Next, 0) },
				func() { r.SetDesc(1, buf, 500, vringtest.Next, ringSize) },
				func() { r.SetDesc(0, buf, 500, vringtest.Next|vringtest.Write, 1) },
				func() { r.SetDesc(1, table, 64, vringtest.Indirect, 0) },
				func() { vringtest.PutDesc(tb, buf, 1<<31, vringtest.Next, uint16(rand.Uint32())) },
				func() { r.SetDesc(0, buf, 0xffffffff, 0, 0) },
			}
			w := rewrite(t, func(i uint64) {
				if i%8 == 0 {
					bad[rand.IntN(len(bad))]()
				} else {
					good()
				}
			})
			over := func() bool { return g.err[1].Count() != 0 }
			for n := 0; n < 100; n++ {
				w.advance()
				r.Offer(0)
				signal(g.tx.Kick.FD)
				gone := false
				d.eventually("the chain to come back, or the ring to break", func() bool {
					gone = gone || over()
					return gone || r.UsedIdx() == r.AvailIdx()
				})
				if gone {
					broken++
					break
				}
			}
			w.end()
			g.leave()
		}
		if broken == 0 {
			t.Error("no ring broke: the rewriting was not seen")
		}
		d.healthy()
	})
}

// tooFewBuffers: a merged frame that needs more buffers than there are stays
// with the host until there are enough, and takes none of them before.
func tooFewBuffers(t *testing.T) {
	const room, few = 256, 2 // a segment of 536 bytes needs 3
	d := start(t, nil)
	srv := listen(t)
	g := d.frontend(features)
	g.boot(few, room)
	c := g.connect(srv, 4001)
	p := srv.accept()
	c.alive(p)
	d.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	g.receive()
	g.room = 0
	used := g.rings[0].UsedIdx()
	data := make([]byte, 1400)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if _, err := p.c.Write(data); err != nil {
		t.Fatal(err)
	}
	for range 20 { // each is a try
		signal(g.rx.Kick.FD)
		d.counters()
	}
	if n := g.rings[0].UsedIdx() - used; n != 0 {
		t.Fatalf("%d buffers of %d were used for a part of a frame", n, few)
	}
	for range 8 {
		g.rx.Post(room)
	}
	var got []byte
	g.await("the data", func(f []byte) bool {
		if s := segment(f, 4001); s != nil && s.Seq == c.ack+uint32(len(got)) {
			got = append(got, s.Payload...)
			for range 8 {
				g.rx.Post(room)
			}
		}
		return len(got) >= len(data)
	})
	if !bytes.Equal(got, data) {
		t.Error("the data is not what the host sent")
	}
	g.leave()
	d.healthy()
}

// eventNonsense writes anything into the fields that ask for notifications. A
// driver that polls, as this one does, loses nothing.
func eventNonsense(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for range 100 {
		for _, r := range g.rings {
			r.SetAvailFlags(uint16(rand.Uint32()))
			r.SetUsedEvent(uint16(rand.Uint32()))
		}
		g.ping()
	}
	g.leave()
	d.healthy()
}

// drainedKick: both rings have one eventfd, blocking, which a third party reads
// too. Whoever comes second finds it empty, and must not wait for the next kick.
func drainedKick(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	fd := g.tx.Kick.FD
	must(t, g.f.SetVringKick(0, fd))
	must(t, unix.SetNonblock(fd, false)) // the flag is the open file's, so it is the backend's as well
	thief := rewrite(t, func(uint64) {
		var b [8]byte
		_, _ = unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	})
	for range 300 {
		thief.advance()
		signal(fd)
	}
	thief.end()
	for range 20 {
		g.ping()
	}
	g.leave()
	d.healthy()
}

// packedRing: packed rings are not offered, and so never taken.
func packedRing(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	offer, err := g.f.GetFeatures()
	must(t, err)
	if offer&vhostuser.FRingPacked != 0 {
		t.Fatal("packed rings are offered: this row must attack them")
	}
	if err := g.f.SetFeatures(features | vhostuser.FRingPacked | vhostuser.VhostUserFProtocolFeatures); err == nil {
		t.Error("packed rings are taken")
	}
	g.ping()
	g.leave()
	d.healthy()
}

// usedRingGone: the frontend takes the pages away that the used ring lies in.
// The write faults, which breaks the device's rings and nothing else.
func usedRingGone(t *testing.T) {
	other := start(t, nil).guest()
	d := start(t, nil)
	d.unsealable = true
	g := d.frontend(features)
	last := g.mem.Regions()[1]
	page := last.GPA + last.Size - 4096
	g.rings[0] = g.mem.NewRing(ringSize)
	at := g.mem.NewRing(ringSize)
	g.rings[1] = g.mem.RingAt(ringSize, at.DescGPA, at.AvailGPA, page)
	kick := vringtest.NewEvent(t)
	must(t, g.startRing(0, kick.FD))
	must(t, g.startRing(1, kick.FD))
	f := append(make([]byte, netHdr), udp(t, guestIP, world, 53, []byte("last words"))...)
	buf := g.mem.Alloc(uint64(len(f)), 1)
	g.mem.Write(buf, f)
	d.eventually("the ring to be asleep", func() bool { return g.rings[1].AvailEvent() == 0 })
	must(t, unix.Ftruncate(g.mem.FD, int64(last.MmapOffset+last.Size-4096)))
	g.rings[1].SetDesc(0, buf, uint32(len(f)), 0, 0)
	g.rings[1].Offer(0)
	signal(kick.FD)
	g.broken(1)
	if n := d.counters()["loop_panics"]; n != 1 {
		t.Errorf("%d faults recovered, want 1", n)
	}
	other.ping()
	g.leave()
	d.rest()
	d.unsealable = false
	d.healthy()
}

// rest lets the time pass in which no ring starts after a fault.
func (d *daemon) rest() { d.pass(12*time.Second, time.Second) }
