package vsockbridge

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vsockbridge/packet"
)

// siblings makes two guests of one group, on one loop.
func siblings(t *testing.T) (a, b *rig) {
	g := NewGroup()
	a = newRig(t, config(func(c *Config) { c.CID, c.Groups = 3, []*Group{g} }))
	b = newRig(t, config(func(c *Config) { c.CID, c.Groups = 4, []*Group{NewGroup(), g} }), withLoop(a.loop))
	b.clock = a.clock
	return a, b
}

func settle(rigs ...*rig) {
	for range 3 {
		for _, r := range rigs {
			r.settle()
		}
	}
}

// between is both ends of a connection between siblings.
func between(t *testing.T, a, b *rig) (x, y *guest) {
	t.Helper()
	x, y = a.guest(1000, 2000), b.guest(2000, 1000)
	x.peer, y.peer = b.cfg.CID, a.cfg.CID
	b.post(1)
	x.do(packet.Request, 0)
	settle(a, b)
	if l := b.reap(); len(l) != 1 || l[0].Header != x.header(packet.Request, 0) {
		t.Fatalf("request arrives as %+v", l)
	}
	a.post(1)
	y.do(packet.Response, 0)
	settle(a, b)
	if l := a.reap(); len(l) != 1 || l[0].Header != y.header(packet.Response, 0) {
		t.Fatalf("response arrives as %+v", l)
	}
	return x, y
}

// TestSiblings: packets pass with their credit unchanged; one that needs several
// chains is cut, and only the last part ends a message.
func TestSiblings(t *testing.T) {
	a, b := siblings(t)
	x, y := between(t, a, b)
	b.post(40)
	want := pattern(50_000, 1)
	x.fwd = 0
	h := x.header(packet.RW, len(want))
	h.Flags, h.BufAlloc = packet.EndOfMessage|packet.EndOfRecord, 12345
	x.put(h, want)
	settle(a, b)
	l := b.reap()
	var have []byte
	for i, p := range l {
		have = append(have, p.data...)
		flags := uint32(0)
		if i == len(l)-1 {
			flags = h.Flags
		}
		if p.Op != packet.RW || p.Flags != flags || p.BufAlloc != 12345 {
			t.Fatalf("part %d of %d: %+v", i, len(l), p.Header)
		}
	}
	if !bytes.Equal(have, want) || len(l) != 14 {
		t.Errorf("%d bytes in %d packets", len(have), len(l))
	}
	y.fwd = 50_000
	a.post(2)
	y.do(packet.CreditUpdate, 0)
	x.do(packet.Shutdown, packet.ShutdownBoth)
	y.do(packet.Reset, 0)
	settle(a, b)
	if l := a.reap(); len(l) != 2 || l[0].FwdCnt != 50_000 || l[1].Op != packet.Reset {
		t.Errorf("%+v", l)
	}
	if l := b.reap(); len(l) != 1 || l[0].Op != packet.Shutdown || l[0].Flags != packet.ShutdownBoth {
		t.Errorf("%+v", l)
	}
	if a.d.conns.used+b.d.conns.used != 0 {
		t.Error("not forgotten")
	}
}

// TestSiblingRefusals: RST for whom there is no answer, and never for RST.
func TestSiblingRefusals(t *testing.T) {
	a, b := siblings(t)
	for name, f := range map[string]func(x *guest){
		"nobody has the CID":  func(x *guest) { x.peer = 9; x.do(packet.Request, 0) },
		"no connection":       func(x *guest) { x.do(packet.RW, 0) },
		"unknown type":        func(x *guest) { x.typ = 9; x.do(packet.Request, 0) },
		"unknown op":          func(x *guest) { x.do(99, 0) },
		"response to nothing": func(x *guest) { x.do(packet.Response, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			x := a.guest(1000, 2000)
			x.peer = 4
			a.post(1)
			f(x)
			settle(a, b)
			if ops, _ := x.take(a.reap()); len(ops) != 1 || ops[0] != packet.Reset {
				t.Errorf("%v", ops)
			}
			if l := b.reap(); len(l) != 0 || a.d.conns.used+b.d.conns.used != 0 {
				t.Errorf("the sibling hears %+v", l)
			}
		})
	}
	a.post(1)
	x := a.guest(1000, 2000)
	x.peer = 4
	x.do(packet.Reset, 0)
	settle(a, b)
	if l := a.reap(); len(l) != 0 {
		t.Errorf("RST is answered with %+v", l)
	}
}

// TestSiblingGoes: both ends are told when one guest goes.
func TestSiblingGoes(t *testing.T) {
	for name, f := range map[string]func(b *rig){
		"reset": func(b *rig) {
			b.d.Stop(rxQueue)
			b.d.Stop(txQueue)
			b.d.Reset()
		},
		"broken ring": func(b *rig) { b.d.tx.q.Break(faultReason); b.d.Ready(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := siblings(t)
			x, _ := between(t, a, b)
			a.post(1)
			f(b)
			settle(a, b)
			if ops, _ := x.take(a.reap()); len(ops) != 1 || ops[0] != packet.Reset || a.d.conns.used+b.d.conns.used != 0 {
				t.Errorf("%v", ops)
			}
		})
	}
}

// TestSiblingFaults: memory that goes while a packet is copied from it costs its
// own guest. The other hears of no part of the packet, and goes on.
func TestSiblingFaults(t *testing.T) {
	a, b := siblings(t)
	x, y := between(t, a, b)
	head, good, gone := a.mem.Alloc(packet.Size, 1), a.mem.Alloc(4096, 1), a.mem.Alloc(4096, 4096)
	a.mem.Write(head, encode(x.header(packet.RW, 8192)))
	if err := unix.Mprotect(a.mem.Table().Slice(gone, 4096), unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	a.ring[txQueue].Q.Add([]vring.DriverSeg{{GPA: head, Len: packet.Size}, {GPA: good, Len: 4096}, {GPA: gone, Len: 4096}}, 0)
	a.ring[txQueue].Q.Publish()
	a.d.turn.ask(a.loop) // a kick would not come by the loop, which catches the fault
	a.loop.Turn(0)
	if a.d.up || a.loop.Stats().Panics != 1 || b.d.pool.out != 0 {
		t.Fatalf("up %v, %d panics, %d chunks wait", a.d.up, a.loop.Stats().Panics, b.d.pool.out)
	}
	b.post(4)
	b.settle()
	if ops, _ := y.take(b.reap()); len(ops) != 1 || ops[0] != packet.Reset {
		t.Errorf("%v", ops)
	}
	b.guest(1, 1).connect()
}

// TestSiblingCredit is V6 between guests: whoever sends more than the other has
// room for loses the connection; a window that has become smaller does not count
// against what was under way.
func TestSiblingCredit(t *testing.T) {
	a, b := siblings(t)
	x, y := between(t, a, b)
	a.post(10)
	b.post(100)
	y.alloc = 1000
	y.do(packet.CreditUpdate, 0)
	for range 4 {
		x.send(make([]byte, 64<<10), 0)
	}
	settle(a, b)
	if ops, data := y.take(b.reap()); len(ops) != 1 || len(data) != 256<<10 {
		t.Fatalf("%v, %d bytes", ops, len(data))
	}
	x.take(a.reap())
	y.fwd = 0
	x.send([]byte("x"), 0)
	settle(a, b)
	xo, _ := x.take(a.reap())
	yo, _ := y.take(b.reap())
	if len(xo) != 1 || xo[0] != packet.Reset || len(yo) != 1 || yo[0] != packet.Reset {
		t.Errorf("%v, %v", xo, yo)
	}
}

// TestSiblingTimeout: a request that the other guest does not answer is not kept
// for ever.
func TestSiblingTimeout(t *testing.T) {
	a, b := siblings(t)
	x := a.guest(1000, 2000)
	x.peer = 4
	a.post(1)
	b.post(2)
	x.do(packet.Request, 0)
	settle(a, b)
	a.clock.Advance(time.Duration(dialLimit) + time.Second)
	settle(a, b)
	if ops, _ := x.take(a.reap()); len(ops) != 1 || ops[0] != packet.Reset {
		t.Errorf("%v", ops)
	}
	if l := b.reap(); len(l) != 2 || l[1].Op != packet.Reset {
		t.Errorf("%+v", l)
	}
}

// TestSiblingBackPressure: who sends to a guest without receive buffers is left
// alone; two that send to each other so are not, up to a bound.
func TestSiblingBackPressure(t *testing.T) {
	roomy := func(x *guest) {
		x.alloc = 1 << 30
		x.do(packet.CreditUpdate, 0)
	}
	flood := func(x *guest, n int) {
		for range n {
			x.put(x.header(packet.RW, 64<<10), make([]byte, 64<<10))
			x.r.settle()
			x.r.ring[txQueue].Reap()
		}
	}
	t.Run("one way", func(t *testing.T) {
		a, b := siblings(t)
		x, y := between(t, a, b)
		roomy(y)
		settle(a, b)
		flood(x, 40)
		if a.d.waitsFor != b.d || b.d.inbox.bytes > inboxSoft+(70<<10) {
			t.Fatalf("%d bytes wait", b.d.inbox.bytes)
		}
		got := 0
		for i := 0; got < 40*64<<10; i++ {
			b.post(100)
			settle(a, b)
			_, data := y.take(b.reap())
			got += len(data)
			if i > 100 {
				t.Fatalf("stuck after %d bytes", got)
			}
		}
		if a.d.waitsFor != nil || b.d.pool.out != 0 {
			t.Error("somebody still waits")
		}
	})
	t.Run("to one that is paused", func(t *testing.T) {
		a, b := siblings(t)
		x, y := between(t, a, b)
		roomy(y)
		settle(a, b)
		flood(x, 20)
		if a.d.waitsFor != b.d {
			t.Fatal("nobody waits: the test is of nothing")
		}
		a.post(1)
		settle(a, b)
		a.reap() // of the credit that was told
		b.d.Enable(rxQueue, false)
		a.post(1)
		settle(a, b)
		if ops, _ := x.take(a.reap()); len(ops) != 1 || ops[0] != packet.Reset || b.d.counters.InboxFull == 0 {
			t.Errorf("%v", ops)
		}
		a.guest(1, 80).connect() // the host is still there for it
	})
	t.Run("both ways", func(t *testing.T) {
		a, b := siblings(t)
		x, y := between(t, a, b)
		roomy(y)
		roomy(x)
		settle(a, b)
		for range 200 {
			flood(x, 1)
			flood(y, 1)
		}
		if n := max(a.d.inbox.bytes, b.d.inbox.bytes); n < inboxHard || n > inboxHard+(70<<10) {
			t.Errorf("%d bytes wait", n)
		}
		if a.d.conns.used != 1 || b.d.conns.used != 1 || a.conn(1000, 2000) != nil {
			t.Error("the connection lives")
		}
		for range 60 {
			for _, r := range []*rig{a, b} {
				r.reap()
				for r.ring[rxQueue].Q.Free() > 0 {
					r.post(1)
				}
			}
			settle(a, b)
		}
		if a.d.pool.out+b.d.pool.out+a.d.conns.used+b.d.conns.used != 0 {
			t.Error("something is left")
		}
	})
}

func TestGroupRefusesDuplicates(t *testing.T) {
	a, _ := siblings(t)
	_, err := New(Config{CID: 3, Groups: a.cfg.Groups}, a.loop)
	if err == nil || !strings.Contains(err.Error(), "CID 3") {
		t.Errorf("%v", err)
	}
	if _, err := New(Config{CID: 2}, a.loop); err == nil {
		t.Error("a guest has the host's CID")
	}
}
