package hostile

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"

	"guestwire/vring/guestmem"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// table is the payload of SET_MEM_TABLE that says n regions and has those given.
func table(n uint32, rs ...guestmem.Region) []byte {
	p := u32s(n, 0)
	for _, r := range rs {
		p = append(p, regionBytes(r)...)
	}
	return p
}

// badTables are refused one after the other. The table before stays: after each
// the guest's connection carries data.
func badTables(t *testing.T) {
	d, g, c, p := established(t)
	rs := g.mem.Regions()
	fd := g.mem.FD
	with := func(change func(a, b *guestmem.Region)) []byte {
		a, b := rs[0], rs[1]
		change(&a, &b)
		return table(2, a, b)
	}
	fds := func(n int) (l []int) {
		for range n {
			l = append(l, fd)
		}
		return l
	}
	nine := slices.Repeat(rs[:1], 9)
	for _, tt := range []struct {
		name string
		p    []byte
		fds  []int
	}{
		{"no region", table(0), nil},
		{"no region, and a descriptor", table(0), fds(1)},
		{"no region said, one there", table(0, rs[0]), fds(1)},
		{"9 regions", table(9, nine...), fds(8)},
		{"2^32-1 regions", table(1<<32-1, rs...), fds(2)},
		{"count beyond the message", table(8, rs...), fds(8)},
		{"count short of the message", table(1, rs...), fds(1)},
		{"fewer descriptors than regions", table(2, rs...), fds(1)},
		{"more descriptors than regions", table(2, rs...), fds(3)},
		{"no descriptors", table(2, rs...), nil},
		{"empty region", with(func(a, _ *guestmem.Region) { a.Size = 0 }), fds(2)},
		{"guest address wraps", with(func(a, _ *guestmem.Region) { a.GPA = -a.Size + 1 }), fds(2)},
		{"guest address wraps to 0", with(func(a, _ *guestmem.Region) { a.GPA = -a.Size }), fds(2)},
		{"user address wraps", with(func(a, _ *guestmem.Region) { a.UVA = -a.Size + 1 }), fds(2)},
		{"offset wraps", with(func(a, _ *guestmem.Region) { a.MmapOffset = -a.Size + 1 }), fds(2)},
		{"offset beyond any file", with(func(a, _ *guestmem.Region) { a.MmapOffset = 1 << 63 }), fds(2)},
		{"size of all there is", with(func(a, _ *guestmem.Region) { a.Size = 1<<64 - 1 }), fds(2)},
		{"overlap by a byte", with(func(a, b *guestmem.Region) { b.GPA = a.GPA + a.Size - 1 }), fds(2)},
		{"overlap", with(func(a, b *guestmem.Region) { b.GPA = a.GPA }), fds(2)},
		{"user overlap by a byte", with(func(a, b *guestmem.Region) { b.UVA = a.UVA + a.Size - 1 }), fds(2)},
		{"user overlap", with(func(a, b *guestmem.Region) { b.UVA = a.UVA }), fds(2)},
		{"the second region beyond its file", with(func(_, b *guestmem.Region) { b.MmapOffset += 1 << 30 }), fds(2)},
	} {
		maps := mappings(t)
		if err := g.f.Send(vhostuser.MsgSetMemTable, tt.p, tt.fds...); err == nil {
			t.Errorf("%s: taken", tt.name)
		} else if _, nack := err.(*vhostuser.NackError); !nack {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if now := mappings(t); now != maps {
			t.Errorf("%s: %d mappings of memory before, %d after", tt.name, maps, now)
		}
		c.alive(p)
	}
	hugePages(t, g)
	c.alive(p)
	must(t, g.f.SetMemTable(rs))
	c.alive(p)
	g.leave()
	d.healthy()
}

// hugePages adds regions of a huge-page file that start and end inside a page.
// Frontends do have such; they are mapped from page to page, and so unmapped.
func hugePages(t *testing.T, g *guest) {
	const huge = 2 << 20
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, 2*huge))
	before := mappings(t)
	for _, r := range []guestmem.Region{
		{Size: huge / 2, MmapOffset: 4096}, {Size: 4096, MmapOffset: huge - 4096}, {Size: huge, MmapOffset: huge / 2}, {Size: huge, MmapOffset: huge + 4096},
	} {
		r.GPA, r.UVA, r.FD = 1<<40, 1<<40, fd
		if g.f.AddMemReg(r) == nil {
			must(t, g.f.RemMemReg(r))
		}
		if now := mappings(t); now != before {
			t.Errorf("%d bytes at %#x of a huge-page file: %d mappings before, %d after", r.Size, r.MmapOffset, before, now)
		}
	}
}

// truncatedMemory cuts guest memory short while rings run in it. Where the file
// can be sealed that fails. Where it cannot, the access faults: that device is
// broken, and its worker serves the next frontend.
func truncatedMemory(t *testing.T) {
	t.Run("sealed", func(t *testing.T) {
		d := start(t, nil)
		g := d.guest()
		g.ping()
		if err := unix.Ftruncate(g.mem.FD, 4096); err != unix.EPERM {
			t.Errorf("ftruncate: %v, want EPERM", err)
		}
		g.ping()
		g.leave()
		d.healthy()
	})
	for _, ring := range []int{0, 1} {
		t.Run([]string{"under the receive ring", "under the transmit ring"}[ring], func(t *testing.T) {
			other := start(t, nil).guest()
			d := start(t, nil)
			d.unsealable = true
			srv := listen(t)
			g := d.guest()
			g.connect(srv, 4001)
			p := srv.accept()
			d.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
			must(t, unix.Ftruncate(g.mem.FD, 0)) // from here on this test must not touch the memory either
			if ring == 0 {
				if _, err := p.c.Write([]byte("into the void")); err != nil {
					t.Fatal(err)
				}
			} else {
				signal(g.tx.Kick.FD)
			}
			g.broken(ring)
			if n := d.counters()["loop_panics"] + d.counters()["net_faults"]; n == 0 {
				t.Error("no fault was recovered")
			}
			other.ping()
			g.leave()
			d.rest()
			d.unsealable = false
			d.healthy()
		})
	}
}

// tableWhileRunning replaces the memory table under running rings, again and
// again in the middle of a download; no new SET_VRING_ADDR follows. The table is
// really another: cut differently, with a region more, and in the end in another
// file. What it replaces is unmapped.
func tableWhileRunning(t *testing.T) {
	d, g, c, p := established(t)
	whole := g.mem.Regions()
	extra := logFile(t, 1<<20)
	var cut []guestmem.Region
	for _, r := range whole {
		a, b := r, r
		a.Size = 3 << 20
		b.GPA, b.UVA, b.MmapOffset, b.Size = r.GPA+a.Size, r.UVA+a.Size, r.MmapOffset+a.Size, r.Size-a.Size
		cut = append(cut, b, a)
	}
	cut = append(cut, guestmem.Region{GPA: 1 << 40, UVA: 1 << 40, Size: 1 << 20, FD: extra})
	driver := mapped(t, g.mem.FD) - 16<<20 // has a mapping of its own
	data := make([]byte, 300<<10)
	for i := range data {
		data[i] = byte(i >> 8 * 31)
	}
	go func() { _, _ = p.c.Write(data) }()
	swaps := 0
	got := c.download(len(data), func() {
		next := [][]guestmem.Region{cut, whole}[swaps%2]
		must(t, g.f.SetMemTable(next))
		if n := mapped(t, g.mem.FD); n != driver+16<<20 {
			t.Errorf("%d bytes of guest memory are mapped, %d of them by the driver", n, driver)
		}
		if n := mapped(t, extra); n != (swaps%2^1)<<20 {
			t.Errorf("%d bytes of the region that comes and goes are mapped", n)
		}
		swaps++
	})
	if !bytes.Equal(got, data) {
		t.Error("the download is not what the host sent")
	}
	if swaps < 10 {
		t.Errorf("the table was replaced %d times only", swaps)
	}

	c.alive(p)
	d.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	g.receive()
	g.move()
	g.leave()
	d.healthy()
}

// download takes n bytes from the host and acknowledges each segment, calling
// between now and then.
func (c *conn) download(n int, between func()) (got []byte) {
	c.g.t.Helper()
	for end := time.Now().Add(10 * time.Second); len(got) < n; {
		frames := c.g.receive()
		for i, f := range frames {
			s := segment(f, c.sport)
			if s == nil || s.Seq != c.ack || len(s.Payload) == 0 {
				continue
			}
			got = append(got, s.Payload...)
			c.ack += uint32(len(s.Payload))
			if i%4 == 3 {
				between()
			}
		}
		if len(frames) > 0 {
			c.segment("", func(*layers.TCP) {})
			between()
		} else {
			time.Sleep(200 * time.Microsecond)
		}
		if time.Now().After(end) {
			c.g.t.Fatalf("%d of %d bytes after 10 s; counters:%s", len(got), n, c.g.d.nonzero())
		}
	}
	return got
}

// move copies guest memory to another file, at the same addresses, and tells the
// backend. From here on the ring and its buffers are there; the old memory is not
// mapped by the backend any more and nothing is written to it.
func (g *guest) move() {
	t := g.t
	t.Helper()
	for i := range g.rings {
		must(t, g.f.SetVringEnable(i, false)) // nobody writes while it is copied
	}
	to := vringtest.NewMemory(t, 8<<20, 8<<20)
	old := contents(t, g.mem.FD)
	_, err := unix.Pwrite(to.FD, old, 0)
	must(t, err)
	must(t, g.f.SetMemTable(to.Regions()))
	if n := mapped(t, g.mem.FD); n != len(old) {
		t.Errorf("%d bytes of the memory before are mapped, %d of them by the driver", n, len(old))
	}
	for i := range g.rings {
		must(t, g.f.SetVringEnable(i, true))
	}
	there := func(r *vringtest.Ring) *vringtest.Ring { return to.RingAt(r.Size, r.DescGPA, r.AvailGPA, r.UsedGPA) }
	rx, tx := there(g.rings[0]), there(g.rings[1])
	f := append(make([]byte, netHdr), arpFor(t, gateway)...)
	at := g.mem.Alloc(uint64(len(f)), 1) // free in both
	to.Write(at, f)
	was := rx.UsedIdx()
	tx.SetDesc(0, at, uint32(len(f)), 0, 0)
	tx.Offer(0)
	signal(g.tx.Kick.FD)
	g.d.eventually("an answer in the new memory", func() bool {
		if rx.UsedIdx() == was {
			return false
		}
		id, n := rx.UsedElem(was)
		buf := binary.LittleEndian.Uint64(to.Read(rx.DescGPA+16*uint64(id), 8))
		was++
		return isARPReply(to.Read(buf, uint64(n))[netHdr:])
	})
	if !bytes.Equal(contents(t, g.mem.FD), old) {
		t.Error("the memory before was written to")
	}
}

func contents(t *testing.T, fd int) []byte {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	b := make([]byte, st.Size)
	_, err := unix.Pread(fd, b, 0)
	must(t, err)
	return b
}
