package hostile

import (
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

var ringRows = []row{
	{"R1", func(t *testing.T) { ringContent(t, "R1") }},
	{"R2", func(t *testing.T) { ringContent(t, "R2") }},
	{"R3", func(t *testing.T) { ringContent(t, "R3") }},
	{"R4", func(t *testing.T) { ringContent(t, "R4") }},
	{"R5", func(t *testing.T) { ringContent(t, "R5") }},
	{"R6", func(t *testing.T) { ringContent(t, "R6") }},
	{"R7", func(t *testing.T) { ringContent(t, "R7") }},
	{"R8", regionBoundary},
	{"R9", func(t *testing.T) { ringContent(t, "R9") }},
	{"R10", func(t *testing.T) { ringContent(t, "R10") }},
	{"R11", oversize},
	{"R12", func(t *testing.T) { ringContent(t, "R12") }},
	{"R13", func(t *testing.T) { ringContent(t, "R13") }},
	{"R14", rewriteWhileWorking},
	{"R15", func(t *testing.T) { ringContent(t, "R15") }},
	{"R17", tooFewBuffers},
	{"R18", ringSizes},
	{"R19", ringAddresses},
	{"R20", eventNonsense},
	{"R21", kickStorm},
	{"R23", saturatedCall},
	{"R24", drainedKick},
	{"R25", packedRing},
	{"R26", usedRingGone},
}

// ringContent offers every ring of a catalogue row as the transmit ring. Those
// that no driver may write break the ring, the others are served; either way the
// other guest's pings go on.
func ringContent(t *testing.T, id string) {
	other := start(t, nil).guest()
	d := start(t, nil)
	n := 0
	for _, h := range vringtest.Hostiles() {
		if h.ID != id {
			continue
		}
		n++
		t.Run(h.Name, func(t *testing.T) {
			want := uint64(vhostuser.FVersion1)
			if h.Features.Indirect {
				want |= vhostuser.RingFIndirectDesc
			}
			g := d.frontend(want)
			for i := range g.rings {
				g.rings[i] = g.mem.NewRing(vringtest.HostileSize)
			}
			h.Build(g.rings[1])
			kick := vringtest.NewEvent(t)
			must(t, g.startRing(0, kick.FD))
			must(t, g.startRing(1, kick.FD))
			signal(kick.FD)
			if h.Want != 0 {
				g.broken(1)
				if used := g.rings[1].UsedIdx(); used != 0 {
					t.Errorf("%d chains of a broken ring were used", used)
				}
			} else {
				d.eventually("the chain to come back", func() bool { return g.rings[1].UsedIdx() != 0 })
				if _, n := g.rings[1].UsedElem(0); n != 0 {
					t.Errorf("%d bytes written to a chain of the transmit ring", n)
				}
			}
			g.leave()
			other.ping()
		})
	}
	if n == 0 {
		t.Fatal("the catalogue has no such row")
	}
	d.healthy()
}

func signal(fd int) { _, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)) }

// regionBoundary sends a frame whose bytes lie in two regions that are adjacent
// for the guest only.
func regionBoundary(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	for i := range g.rings {
		g.rings[i] = g.mem.NewRing(ringSize)
	}
	f := append(make([]byte, netHdr), udp(t, guestIP, net.IP{198, 51, 100, 1}, 53, make([]byte, 600))...)
	at := g.mem.Regions()[1].GPA - uint64(len(f))/2
	g.mem.Write(at, f)
	g.rings[1].SetDesc(0, at, uint32(len(f)), 0, 0)
	g.rings[1].Offer(0)
	kick := vringtest.NewEvent(t)
	must(t, g.startRing(0, kick.FD))
	must(t, g.startRing(1, kick.FD))
	signal(kick.FD)
	d.counts("net_tx_frames", 1)
	d.counts("udp_flows", 1) // the checksum was right: every byte has come
	g.leave()
	d.healthy()
}

// ringSizes: 0, not a power of two, beyond the most, and while the ring runs.
func ringSizes(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for _, n := range []uint32{0, 3, 1000, 65536, 1 << 31} {
		if err := g.f.SetVringNum(1, n); err == nil {
			t.Errorf("size %d is taken", n)
		}
	}
	if err := g.f.SetVringNum(1, 128); err == nil {
		t.Error("a running ring has changed its size")
	}
	g.ping() // the running ring is as it was
	g.leave()
	d.healthy()
}

// ringAddresses: unmapped and misaligned areas are refused. Areas that overlap
// each other or the buffers are the guest's own trouble: whatever is read from
// them, the ring breaks or goes on.
func ringAddresses(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	r := g.mem.NewRing(ringSize)
	place := func(desc, avail, used uint64) error {
		return g.f.SetVringAddr(vhostuser.VringAddr{Index: 1, Desc: desc, Avail: avail, Used: used})
	}
	must(t, g.f.SetVringNum(1, ringSize))
	desc, avail, used := g.mem.UVA(r.DescGPA), g.mem.UVA(r.AvailGPA), g.mem.UVA(r.UsedGPA)
	last := g.mem.Regions()[1]
	end := last.UVA + last.Size
	for _, a := range [][3]uint64{
		{desc + 8, avail, used}, {desc, avail + 1, used}, {desc, avail, used + 2}, // misaligned
		{0, avail, used}, {desc, 0, used}, {desc, avail, 0}, {end, avail, used}, {desc, end, used}, {desc, avail, end}, // unmapped
		{end - 16, avail, used}, {desc, end - 4, used}, {desc, avail, end - 4}, // run over the end
		{1<<64 - 16, avail, used}, {desc, 1<<64 - 2, used}, {desc, avail, 1<<64 - 4}, // wrap
	} {
		if err := place(a[0], a[1], a[2]); err == nil {
			t.Errorf("taken: descriptors %#x, avail %#x, used %#x", a[0], a[1], a[2])
		}
	}
	g.leave()
	for _, overlap := range []func(r *vringtest.Ring) (desc, avail, used uint64){
		func(r *vringtest.Ring) (uint64, uint64, uint64) { return r.DescGPA, r.DescGPA, r.DescGPA },
		func(r *vringtest.Ring) (uint64, uint64, uint64) { return r.DescGPA, r.AvailGPA, r.DescGPA },
		func(r *vringtest.Ring) (uint64, uint64, uint64) { return r.DescGPA, r.AvailGPA, r.AvailGPA },
		func(r *vringtest.Ring) (uint64, uint64, uint64) { return r.DescGPA, r.DescGPA + 16, r.UsedGPA },
	} {
		g := d.frontend(features)
		g.rings[0] = g.mem.NewRing(ringSize)
		at := g.mem.NewRing(ringSize)
		g.rings[1] = g.mem.RingAt(ringSize, at.DescGPA, at.AvailGPA, at.UsedGPA)
		g.rings[1].DescGPA, g.rings[1].AvailGPA, g.rings[1].UsedGPA = overlap(at)
		kick := vringtest.NewEvent(t)
		must(t, g.startRing(0, kick.FD))
		must(t, g.startRing(1, kick.FD))
		for i := range ringSize { // each chain's buffer is the ring
			at.SetDesc(i, at.DescGPA, 3000, 0, 0)
			at.SetAvail(uint16(i), uint16(i))
			at.SetAvailIdx(uint16(i + 1))
			signal(kick.FD)
			d.counters()
		}
		g.leave()
		d.healthy()
	}
}

// kickStorm kicks without pause, with nothing there.
func kickStorm(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for range 20000 {
		signal(g.tx.Kick.FD)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// saturatedCall gives a call eventfd whose counter is full and that blocks: a
// write to it would stop the loop for ever.
func saturatedCall(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1<<64-2))
	must(t, err)
	must(t, g.f.SetVringCall(1, fd))
	must(t, g.f.SetVringCall(0, fd))
	for range 10 {
		g.ping()
	}
	g.leave()
	d.healthy()
}
