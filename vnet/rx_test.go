package vnet

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"guestwire/vnet/link"
	"guestwire/vring"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// send delivers one frame of which header bytes are header.
func (r *rig) send(p []byte, header int, off link.Offload) bool {
	return link.Send(r.ep(), p[:header], p[header:], off)
}

func TestRxOneBuffer(t *testing.T) {
	for name, f := range map[string]uint64{"merged": everything, "unmerged": everything &^ vhostuser.NetFMrgRxbuf} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f))
			r.post(2, 2048)
			want := pattern(1514, 1)
			off := link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}
			if !r.send(want, 54, off) {
				t.Fatal("no room")
			}
			if r.rx.Ring.UsedIdx() != 0 {
				t.Error("published before the end of the turn")
			}
			r.turn()
			got := r.reap()
			if len(got) != 1 || got[0].buffers != 1 || !bytes.Equal(got[0].data, want) {
				t.Fatalf("received %d frames", len(got))
			}
			if h := hdr(1, 0, 0, 0, 34, 16); !bytes.Equal(got[0].hdr[:10], h[:10]) {
				t.Errorf("header % x", got[0].hdr)
			}
			if n := r.calls[rxQueue].Count(); n != 1 {
				t.Errorf("%d calls", n)
			}
			if s := r.d.Stats(); s.RxFrames != 1 || s.RxBytes != 1514 || r.rxq.Available() != 1 {
				t.Errorf("stats %+v, %d buffers left", s.Stats, r.rxq.Available())
			}
		})
	}
}

// TestRxSizes puts frames of every kind into buffers of every kind.
func TestRxSizes(t *testing.T) {
	gso := link.Offload{GSO: link.GSOTCPv6, SegSize: 1428, NeedsCsum: true, CsumStart: 54, CsumOff: 16}
	for _, bufs := range [][]uint32{{12}, {13}, {66}, {67, 100}, {128}, {1536}, {4096}, {100, 1, 200}, {65700}} {
		for _, n := range []int{14, 54, 59, 60, 61, 66, 78, 500, 1514, 9000, 65549} {
			r := newRig(t, noRing, ringSize(32768))
			posted := 0
			for total := 0; posted < 4 || total < 3*(n+100); posted++ {
				r.post(1, bufs...)
				for _, b := range bufs {
					total += int(b)
				}
			}
			header := min(n, 54)
			slots := r.ep().Reserve(header, n-header, 2)
			if len(slots) != 2 {
				t.Fatalf("buffers %v, frame %d: %d slots", bufs, n, len(slots))
			}
			var want [][]byte
			for i := range slots {
				p := pattern(n, uint64(i))
				fill(&slots[i], p)
				if n > 1514 {
					slots[i].Off = gso
				}
				want = append(want, append(p, make([]byte, max(60-n, 0))...))
			}
			r.ep().Commit(2)
			r.turn()
			got := r.reap()
			if len(got) != 2 {
				t.Fatalf("buffers %v, frame %d: %d frames", bufs, n, len(got))
			}
			for i := range got {
				if !bytes.Equal(got[i].data, want[i]) {
					t.Fatalf("buffers %v, frame %d: frame differs, %d bytes", bufs, n, len(got[i].data))
				}
			}
			if used := got[0].buffers + got[1].buffers; r.rxq.Available() != posted-used {
				t.Errorf("buffers %v, frame %d: %d left of %d, %d used", bufs, n, r.rxq.Available(), posted, used)
			}
			if r.d.drops != [numDrops]uint64{} || r.rxq.Broken() != nil {
				t.Errorf("drops %v, %v", r.d.drops, r.rxq.Broken())
			}
		}
	}
}

// TestRxGSOHeader: hdr_len, gso_size and num_buffers of a super-frame.
func TestRxGSOHeader(t *testing.T) {
	r := newRig(t)
	r.post(50, 1536)
	off := link.Offload{GSO: link.GSOTCPv4, ECN: true, SegSize: 1448, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	if !r.send(pattern(65549, 1), 66, off) {
		t.Fatal("no room")
	}
	r.turn()
	want := hdr(1, 0x81, 66, 1448, 34, 16)
	want[10] = 43 // (12+65549)/1536, rounded up
	if got := r.reap(); len(got) != 1 || !bytes.Equal(got[0].hdr, want) {
		t.Errorf("header % x, want % x", got[0].hdr, want)
	}
}

// TestRxShortInTheMiddle: slots that are used less than reserved, in places where
// that leaves chains over between frames.
func TestRxShortInTheMiddle(t *testing.T) {
	const reserved = 9000
	for name, f := range map[string]uint64{"in order": everything, "not in order": everything &^ vhostuser.FInOrder} {
		for _, tc := range []struct {
			name  string
			used  []int
			moved uint64
		}{
			{"all full", []int{9000, 9000, 9000}, 0},
			{"last short", []int{9000, 9000, 10}, 0},
			{"first short", []int{10, 9000, 9000}, 2},
			{"middle short", []int{9000, 3000, 9000}, 1},
			{"short within its last chain", []int{8990, 8990, 8990}, 0},
			{"all tiny", []int{0, 1, 2, 3}, 3},
			{"alternating", []int{9000, 0, 9000, 0, 9000}, 3},
			{"none", nil, 0},
		} {
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				r := newRig(t, features(f))
				r.post(60, 1536)
				slots := r.ep().Reserve(54, reserved, 6)
				var want [][]byte
				chains := 0
				for i, n := range tc.used {
					p := pattern(54+n, uint64(i))
					fill(&slots[i], p)
					slots[i].Off = link.Offload{GSO: link.GSOTCPv4, SegSize: 1448, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
					want = append(want, append(p, make([]byte, max(60-len(p), 0))...))
					chains += (max(len(p), 60) + 12 + 1535) / 1536
				}
				r.ep().Commit(len(tc.used))
				r.turn()
				got := r.reap()
				if len(got) != len(want) {
					t.Fatalf("%d frames, want %d", len(got), len(want))
				}
				for i := range got {
					if !bytes.Equal(got[i].data, want[i]) {
						t.Errorf("frame %d differs: %d bytes, want %d", i, len(got[i].data), len(want[i]))
					}
				}
				if left := r.rxq.Available(); left != 60-chains {
					t.Errorf("%d buffers left, want %d", left, 60-chains)
				}
				if n := r.d.Stats().RxMoved; n != tc.moved {
					t.Errorf("%d frames moved, want %d", n, tc.moved)
				}
			})
		}
	}
}

// TestRxModel commits random frames into random buffers and compares what the
// driver gets with what was committed: nothing lost, split, moved or invented.
func TestRxModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := everything
		if seed%3 == 0 {
			f &^= vhostuser.FInOrder | vhostuser.RingFEventIdx
		}
		r := newRig(t, features(f), ringSize(512))
		var want [][]byte
		got := 0
		for step := range 60 {
			for rng.IntN(4) != 0 {
				n := []uint32{uint32(1 + rng.IntN(40)), 300, 1536, 4096, uint32(12 + rng.IntN(9000))}[rng.IntN(5)]
				if _, ok := r.rx.Post(n); !ok {
					break
				}
			}
			header, payload := 14+rng.IntN(60), rng.IntN(4000)
			slots := r.ep().Reserve(header, payload, 1+rng.IntN(6))
			k := 0
			if len(slots) > 0 {
				k = rng.IntN(len(slots) + 1)
			}
			for i := range slots[:k] {
				n := header + payload
				if rng.IntN(2) == 0 {
					n = header + rng.IntN(payload+1)
				}
				p := pattern(n, seed<<32|uint64(step)<<8|uint64(i))
				fill(&slots[i], p)
				if rng.IntN(10) == 0 {
					slots[i].Off.GSO = 77 // refused: not sent, and in nobody's way
					continue
				}
				want = append(want, append(p, make([]byte, max(60-n, 0))...))
			}
			if len(slots) > 0 {
				r.ep().Commit(k)
			}
			if rng.IntN(3) == 0 {
				r.turn()
			}
			for _, g := range r.reap() {
				if got >= len(want) || !bytes.Equal(g.data, want[got]) {
					t.Fatalf("seed %d, step %d: frame %d differs", seed, step, got)
				}
				got++
			}
		}
		r.settle()
		got += len(r.reap())
		if got != len(want) || r.rxq.Broken() != nil {
			t.Fatalf("seed %d: %d frames of %d, %v", seed, got, len(want), r.rxq.Broken())
		}
		if s := r.rxq.Stats(); s.Pops != s.Pushes {
			t.Errorf("seed %d: %d popped, %d pushed", seed, s.Pops, s.Pushes)
		}
	}
}

// TestRxUnfit is R15 and R16: chains in which no frame can start come back empty,
// and the frame goes into the next that is fit.
func TestRxUnfit(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    uint64
		bad  func(r *rig)
		drop Drop
	}{
		{"R15 readable", everything, func(r *rig) { r.rx.Send(pattern(2048, 1)) }, DropRxDirection},
		{"R16 smaller than the header", everything, func(r *rig) { r.post(1, 11) }, DropRxShort},
		{"R16 unmerged and smaller than the frame", everything &^ vhostuser.NetFMrgRxbuf, func(r *rig) { r.post(1, 12+99) }, DropRxShort},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, features(tc.f))
			tc.bad(r)
			r.post(2, 2048)
			tc.bad(r)
			r.post(2, 2048)
			want := pattern(100, 1)
			for range 4 {
				if slots := r.ep().Reserve(54, 46, 3); len(slots) > 0 {
					fill(&slots[0], want)
					r.ep().Commit(1)
				}
				r.settle()
			}
			got := r.reap()
			if len(got) != 4 || r.drops(tc.drop) != 2 {
				t.Fatalf("%d frames, %d dropped", len(got), r.drops(tc.drop))
			}
			for _, g := range got {
				if !bytes.Equal(g.data, want) {
					t.Error("frame differs")
				}
			}
		})
	}
}

// TestRxTooFew is R17: a frame that does not fit what is posted is not begun, the
// buffers stay, and nobody spins; Writable comes with the next buffer.
func TestRxTooFew(t *testing.T) {
	for name, f := range map[string]uint64{"event index": everything, "flags": everything &^ vhostuser.RingFEventIdx} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f))
			r.post(3, 1536)
			r.rx.Kick.Count() // of posting; it may have been wanted or not
			for range 3 {
				if s := r.ep().Reserve(54, 9000, 1); len(s) != 0 {
					t.Fatal("a frame was begun that does not fit")
				}
			}
			if r.rxq.Available() != 3 {
				t.Fatalf("%d buffers left", r.rxq.Available())
			}
			before := r.loop.Stats().Agains
			for range 5 {
				r.turn()
			}
			if n := r.loop.Stats().Agains - before; n != 0 || r.h.Writables != 0 {
				t.Errorf("%d turns, %d Writable while nothing has changed", n, r.h.Writables)
			}
			// A smaller frame still goes.
			if !r.send(pattern(1000, 1), 54, link.Offload{}) {
				t.Error("a frame that fits was refused")
			}
			r.ep().Reserve(54, 9000, 1)
			r.post(1, 1536)
			if r.turn(); r.h.Writables != 1 {
				t.Fatalf("%d Writable after a buffer was posted", r.h.Writables)
			}
			r.post(1, 1536)
			if r.turn(); r.h.Writables != 1 {
				t.Error("Writable although nobody waits")
			}
			r.post(4, 1536)
			if s := r.ep().Reserve(54, 9000, 1); len(s) != 1 {
				t.Error("no slot with enough buffers")
			}
		})
	}
}

// TestRxWritable: it follows a short reservation, when buffers have come, once.
func TestRxWritable(t *testing.T) {
	r := newRig(t)
	r.post(2, 2048)
	r.rx.Kick.Count() // nobody asked for it
	if n := len(r.ep().Reserve(54, 0, 5)); n != 2 {
		t.Fatalf("%d slots", n)
	}
	r.ep().Commit(2)
	r.turn()
	if r.h.Writables != 0 {
		t.Error("Writable too early")
	}
	r.h.OnWritable = func() {
		if n := len(r.ep().Reserve(54, 0, 3)); n != 3 {
			t.Errorf("%d slots after Writable", n)
		}
		r.ep().Commit(3)
	}
	r.rx.Q.Add([]vring.DriverSeg{{GPA: r.mem.Alloc(2048, 1), Len: 2048, Write: true}}, 100)
	r.rx.Q.Add([]vring.DriverSeg{{GPA: r.mem.Alloc(2048, 1), Len: 2048, Write: true}}, 101)
	r.rx.Q.Add([]vring.DriverSeg{{GPA: r.mem.Alloc(2048, 1), Len: 2048, Write: true}}, 102)
	r.rx.Q.Publish()
	if r.turn(); r.h.Writables != 1 {
		t.Errorf("%d Writable", r.h.Writables)
	}
}

// TestRxQuiet: nobody wants to know of receive buffers until they are missed.
func TestRxQuiet(t *testing.T) {
	r := newRig(t, without(vhostuser.RingFEventIdx))
	kicked := func() bool {
		r.post(1, 2048)
		return r.rx.Kick.Count() > 0
	}
	if kicked() {
		t.Error("kick before any frame")
	}
	r.ep().Reserve(54, 0, 2)
	r.ep().Commit(0)
	if !kicked() {
		t.Error("no kick after a short reservation")
	}
	r.d.Kick(rxQueue)
	if kicked() {
		t.Error("kick after Writable")
	}
}

// TestRxLimit: a reservation beyond the device's own limit is
// short, and Writable follows at once.
func TestRxLimit(t *testing.T) {
	r := newRig(t, ringSize(1024))
	r.post(600, 100)
	r.rx.Kick.Count()
	if n := len(r.ep().Reserve(54, 0, 300)); n != rxSlots {
		t.Fatalf("%d slots", n)
	}
	r.ep().Commit(rxSlots)
	if r.turn(); r.h.Writables != 1 || len(r.reap()) != rxSlots {
		t.Errorf("%d Writable", r.h.Writables)
	}
}

// TestFullArena: buffers in so many pieces that a queue cannot hold all of them
// at once come in several goes, both ways, and nobody waits for ever.
func TestFullArena(t *testing.T) {
	const pieces = 1001
	table := func(r *rig, flags uint16) *vringtest.Ring {
		ring := r.mem.NewRing(256)
		gpa, n := ring.Table(func(b []byte) {
			for i := range pieces {
				next := flags | vringtest.Next
				if i == pieces-1 {
					next = flags
				}
				vringtest.PutDesc(b[16*i:], vringtest.BaseGPA+uint64(i), 1, next, uint16(i)+1)
			}
		}, pieces)
		ring.SetDesc(0, gpa, n, vringtest.Indirect, 0)
		for range 256 {
			ring.Offer(0)
		}
		return ring
	}
	r := newRig(t)
	r.stop()
	rx, tx := table(r, vringtest.Write), table(r, 0)
	got := 0
	serve := func() {
		for {
			s := r.ep().Reserve(54, 100, 20)
			if len(s) > 0 {
				got += len(s)
				r.ep().Commit(len(s))
			}
			if len(s) < 20 {
				return
			}
		}
	}
	r.h.OnWritable = serve
	r.d.Start(rxQueue, r.queue(rxQueue, rx, 0))
	r.d.Start(txQueue, r.queue(txQueue, tx, 0))
	serve()
	r.settle()
	if got != 256 || rx.UsedIdx() != 256 {
		t.Errorf("%d frames towards the guest, %d chains back", got, rx.UsedIdx())
	}
	if s := r.d.Stats(); tx.UsedIdx() != 256 || s.TxFrames != 256 {
		t.Errorf("%d frames from the guest, %d chains back", s.TxFrames, tx.UsedIdx())
	}
}

// TestRxRefused: what the handler must not ask for is not done, and does no harm.
func TestRxRefused(t *testing.T) {
	r := newRig(t, without(TSO|USO|Csum))
	r.post(8, 2048)
	for name, f := range map[string]func(s *link.Slot){
		"negative": func(s *link.Slot) { s.Used = -1 },
		"too much": func(s *link.Slot) { s.Used = 101 },
		"GSO": func(s *link.Slot) {
			s.Off = link.Offload{GSO: link.GSOTCPv4, SegSize: 10, NeedsCsum: true, CsumStart: 34}
		},
		"checksum":    func(s *link.Slot) { s.Off = link.Offload{NeedsCsum: true, CsumStart: 34} },
		"no Ethernet": nil,
	} {
		header := 54
		if f == nil {
			header, f = 13, func(s *link.Slot) { s.Used = 0 }
		}
		before := r.drops(DropRxOffload)
		s := r.ep().Reserve(header, 100, 2)
		f(&s[0])
		fill(&s[1], pattern(header+100, 1))
		r.ep().Commit(2)
		r.turn()
		if got := r.reap(); len(got) != 1 || r.drops(DropRxOffload) != before+1 || !bytes.Equal(got[0].data, pattern(header+100, 1)) {
			t.Errorf("%s: %d frames, %d dropped", name, len(got), r.drops(DropRxOffload)-before)
		}
		r.post(1, 2048)
	}
	for name, s := range map[string][]link.Slot{
		"long header": r.ep().Reserve(link.MaxHeader+1, 0, 1),
		"long frame":  r.ep().Reserve(14, link.MaxFrame-13, 1),
		"negative":    r.ep().Reserve(-1, 0, 1),
		"none":        r.ep().Reserve(14, 0, 0),
	} {
		if len(s) != 0 {
			t.Errorf("%s: %d slots", name, len(s))
		}
	}
	r.ep().Reserve(54, 0, 2)
	r.ep().Reserve(54, 0, 2) // the first one's owner fell over
	r.ep().Commit(99)
	r.ep().Commit(1)
	if r.turn(); len(r.reap()) != 2 || r.rxq.Broken() != nil {
		t.Errorf("%v", r.rxq.Broken())
	}
}

// TestRxEarly: a long turn publishes on the way, so that the driver can start.
func TestRxEarly(t *testing.T) {
	r := newRig(t)
	r.post(200, 100)
	for range 5 {
		s := r.ep().Reserve(54, 0, 20)
		r.ep().Commit(len(s))
	}
	if n := r.rx.Ring.UsedIdx(); n != 80 {
		t.Errorf("%d published in the turn", n)
	}
	if r.turn(); r.rx.Ring.UsedIdx() != 100 {
		t.Error("not all published at its end")
	}
}

// TestRxSegments: payload may lie in as many places as the driver likes.
func TestRxSegments(t *testing.T) {
	r := newRig(t)
	r.post(1, 5, 5, 2, 30, 24, 1, 1, 1, 40, 1000)
	s := r.ep().Reserve(54, 200, 1)
	if len(s) != 1 || len(s[0].Payload) != 5 {
		t.Fatalf("%d slots", len(s))
	}
	total := 0
	for _, seg := range s[0].Payload {
		total += len(seg)
	}
	if total != 200 {
		t.Errorf("%d bytes of payload", total)
	}
	want := pattern(254, 1)
	fill(&s[0], want)
	r.ep().Commit(1)
	r.turn()
	if got := r.reap(); len(got) != 1 || !bytes.Equal(got[0].data, want) {
		t.Error("frame differs")
	}
}

func TestRxNoAllocation(t *testing.T) {
	r := newRig(t)
	p := newPoster(r, 1536)
	off := link.Offload{GSO: link.GSOTCPv4, SegSize: 1448, NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	run := func() {
		s := r.d.Reserve(66, 20000, 8)
		for i := range s {
			s[i].Used, s[i].Off = 20000-i*3000, off // moves, too
		}
		r.d.Commit(5)
		r.d.Flush()
		p.run()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := r.d.Stats(); s.RxFrames == 0 || s.RxMoved == 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestRxShortButEnough: a reservation that came back short, of which buffers were
// given back, is owed a Writable that no kick will bring: the driver has nothing
// left to post.
func TestRxShortButEnough(t *testing.T) {
	for name, f := range map[string]uint64{"all ring features": everything, "plain ring": r0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, features(f))
			r.post(8, 2048)
			r.rx.Kick.Count()
			if n := len(r.ep().Reserve(54, 100, 20)); n != 8 {
				t.Fatalf("%d slots", n)
			}
			r.ep().Commit(0)
			r.turn()
			r.turn()
			if r.h.Writables != 1 {
				t.Errorf("%d Writable", r.h.Writables)
			}
			r.settle()
			if r.h.Writables != 1 {
				t.Errorf("%d Writable without another reservation", r.h.Writables)
			}
		})
	}
}
