package vsockbridge

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// TestGuestToHost: bytes in packets of every layout that Linux guests have used
// arrive as they were sent.
func TestGuestToHost(t *testing.T) {
	for _, tc := range []struct {
		name string
		cut  func(b []byte) [][]byte
	}{
		{"one descriptor (6.2)", func(b []byte) [][]byte { return [][]byte{b} }},
		{"header and payload (5.x)", func(b []byte) [][]byte { return [][]byte{b[:44], b[44:]} }},
		{"header and two (6.17)", func(b []byte) [][]byte { return [][]byte{b[:44], b[44:5000], b[5000:]} }},
		{"header split", func(b []byte) [][]byte { return [][]byte{b[:1], b[1:43], b[43:50], b[50:]} }},
		{"seventeen fragments", func(b []byte) (l [][]byte) {
			for n := 44; len(b) > 0; n = 4000 {
				l = append(l, b[:min(n, len(b))])
				b = b[min(n, len(b)):]
			}
			return l
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			g := r.guest(1000, 80)
			s := g.connect()
			r.post(20)
			want := pattern(64<<10, 1)
			if _, ok := r.ring[txQueue].Send(tc.cut(append(encode(g.header(packet.RW, len(want))), want...))...); !ok {
				t.Fatal("ring full")
			}
			r.settle()
			if b, eof := s.read(); !bytes.Equal(b, want) || eof {
				t.Errorf("%d bytes, eof %v", len(b), eof)
			}
			if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.CreditUpdate}) || g.peerFwd != 64<<10 {
				t.Errorf("told %v, fwd_cnt %d", ops, g.peerFwd)
			}
		})
	}
}

// TestOneWriteForMany: packets of one connection that come together go out in
// one system call.
func TestOneWriteForMany(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	want := pattern(40<<10, 1)
	for i := 0; i < len(want); i += 1 << 10 {
		g.send(want[i:i+1<<10], 0)
	}
	r.settle()
	if b, _ := s.read(); !bytes.Equal(b, want) {
		t.Errorf("%d bytes", len(b))
	}
	if n := r.d.counters.Writes; n != 1 {
		t.Errorf("%d writes", n)
	}
}

// TestHostToGuest: one read fills as many chains as the bytes need.
func TestHostToGuest(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	r.post(100)
	want := pattern(100_000, 2)
	if n := s.write(want); n != len(want) {
		t.Fatal(n)
	}
	r.settle()
	ops, data := g.take(r.reap())
	if !slices.Equal(ops, []packet.Op{packet.RW}) || !bytes.Equal(data, want) {
		t.Errorf("%v, %d bytes", ops, len(data))
	}
	if n := r.d.counters.RxPackets; n != 1+uint64((len(want)+pageRoom-45)/(pageRoom-44)) {
		t.Errorf("%d packets", n)
	}
	if n := r.d.counters.Reads; n > 6 {
		t.Errorf("%d reads", n)
	}
}

// TestOddBuffers: receive chains of any make are used, and those without room
// come back empty.
func TestOddBuffers(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	r.post(1, 10)
	r.post(1, 44)
	r.post(1, 43, 3)
	r.post(1, 20, 20, 20)
	r.post(1, 1<<17)
	r.post(1, 45)
	r.post(10)
	want := pattern(80_000, 2)
	s.write(want)
	r.settle()
	if ops, data := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.RW}) || !bytes.Equal(data, want) {
		t.Errorf("%v, %d bytes", ops, len(data))
	}
	if r.drops(DropRxShort) != 2 {
		t.Errorf("%d chains had no room", r.drops(DropRxShort))
	}
}

// TestHalfClose is complaint vd/874: each direction ends alone.
func TestHalfClose(t *testing.T) {
	t.Run("guest first", func(t *testing.T) {
		r := newRig(t)
		g := r.guest(1000, 80)
		s := g.connect()
		r.post(20)
		g.send([]byte("question"), 0)
		g.do(packet.Shutdown, packet.ShutdownSend)
		if b, eof := s.read(); string(b) != "question" || !eof {
			t.Fatalf("%q, eof %v", b, eof)
		}
		s.write([]byte("answer"))
		r.settle()
		if ops, data := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.RW}) || string(data) != "answer" {
			t.Fatalf("%v %q", ops, data)
		}
		s.close()
		r.settle()
		if l := r.reap(); len(l) != 1 || l[0].Op != packet.Shutdown || l[0].Flags != packet.ShutdownBoth {
			t.Fatalf("%+v", l)
		}
		g.do(packet.Reset, 0)
		if r.d.conns.used != 0 || len(r.reap()) != 0 {
			t.Error("not forgotten, or answered")
		}
	})
	t.Run("host first", func(t *testing.T) {
		r := newRig(t)
		g := r.guest(1000, 80)
		s := g.connect()
		r.post(20)
		s.write([]byte("question"))
		unix.Shutdown(s.fd, unix.SHUT_WR)
		r.settle()
		l := r.reap()
		if len(l) != 2 || l[1].Op != packet.Shutdown || l[1].Flags != packet.ShutdownSend {
			t.Fatalf("%+v", l)
		}
		if _, data := g.take(l); string(data) != "question" {
			t.Fatalf("%q", data)
		}
		g.send([]byte("answer"), 0)
		g.do(packet.Shutdown, packet.ShutdownBoth)
		if b, eof := s.read(); string(b) != "answer" || !eof {
			t.Errorf("%q, eof %v", b, eof)
		}
		if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) || r.d.conns.used != 0 {
			t.Errorf("%v", ops)
		}
	})
	t.Run("guest reads no more", func(t *testing.T) {
		r := newRig(t)
		g := r.guest(1000, 80)
		s := g.connect()
		r.post(20)
		g.do(packet.Shutdown, packet.ShutdownReceive)
		if _, err := unix.Write(s.fd, []byte("x")); err != unix.EPIPE {
			t.Errorf("write: %v", err)
		}
		g.send([]byte("still"), 0)
		r.settle()
		if b, eof := s.read(); string(b) != "still" || eof {
			t.Errorf("%q, eof %v", b, eof)
		}
	})
	t.Run("host closes", func(t *testing.T) {
		r := newRig(t)
		g := r.guest(1000, 80)
		s := g.connect()
		r.post(20)
		s.write([]byte("bye"))
		s.close()
		r.settle()
		l := r.reap()
		if len(l) != 2 || string(l[0].data) != "bye" || l[1].Op != packet.Shutdown || l[1].Flags != packet.ShutdownBoth {
			t.Fatalf("%+v", l)
		}
		g.send([]byte("lost"), 0) // had been under way
		r.settle()
		if l := r.reap(); len(l) != 0 {
			t.Fatalf("%+v", l)
		}
		r.clock.Advance(1 * 11e9)
		r.settle()
		if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) || r.d.conns.used != 0 {
			t.Errorf("%v after the guest did not answer", ops)
		}
	})
}

// TestSlowReader is kr/772: what the host socket does not take is kept, within
// the credit, and arrives whole; credit comes back as it is taken.
func TestSlowReader(t *testing.T) {
	r := newRig(t, config(func(c *Config) { c.BufAlloc = 1 << 20 }))
	g := r.guest(1000, 80)
	g.alloc = 1 << 20
	s := g.connect()
	r.post(100)
	want := pattern(8<<20, 3)
	var have []byte
	sent := 0
	for len(have) < len(want) {
		for sent < len(want) {
			n := min(64<<10, len(want)-sent, int(g.peerAlloc-(g.sent-g.peerFwd)))
			if n == 0 {
				break
			}
			g.send(want[sent:sent+n], 0)
			sent += n
			r.settle()
			r.ring[txQueue].Reap()
		}
		if r.d.pool.out > 1<<20/chunkSize+1 {
			t.Fatalf("%d chunks are held", r.d.pool.out)
		}
		b, _ := s.read()
		have = append(have, b...)
		r.settle()
		ops, _ := g.take(r.reap())
		r.post(len(ops))
		if len(b) == 0 && len(ops) == 0 {
			t.Fatalf("stuck after %d bytes", len(have))
		}
	}
	if !bytes.Equal(have, want) {
		t.Error("bytes differ")
	}
	if r.d.pool.out != 0 {
		t.Errorf("%d chunks are held by nobody", r.d.pool.out)
	}
	if n := r.d.counters.CreditUpdates; n > 4*8+8 {
		t.Errorf("%d credit updates for 8 windows", n)
	}
}

// TestGuestCredit: no more is sent than the guest has room for, and the rest
// when it has read.
func TestGuestCredit(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	g.alloc = 10_000
	s := g.connect()
	r.post(100)
	want := pattern(25_000, 3)
	s.write(want)
	r.settle()
	var have []byte
	for _, n := range []int{10_000, 10_000, 5000} {
		_, b := g.take(r.reap())
		if len(b) != n {
			t.Fatalf("%d bytes after %d", len(b), len(have))
		}
		have = append(have, b...)
		g.do(packet.CreditUpdate, 0)
	}
	if !bytes.Equal(have, want) {
		t.Error("bytes differ")
	}
}

// TestClose: a device that goes resets what it can; guest memory that has gone
// does not matter.
func TestClose(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	r.post(5)
	r.d.Close()
	if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Reset}) {
		t.Errorf("%v", ops)
	}
	if _, eof := s.read(); !eof {
		t.Error("the host socket is open")
	}
}

// TestCloseWithOrphan: no host socket outlives its device, not even one that has
// still to get what a guest sent before it went.
func TestCloseWithOrphan(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	r.post(20)
	for r.d.pool.out == 0 {
		g.send(make([]byte, 64<<10), 0)
		r.settle()
		r.ring[txQueue].Reap()
	}
	g.do(packet.Shutdown, packet.ShutdownBoth)
	g.do(packet.Reset, 0)
	if r.d.conns.used != 1 {
		t.Fatal("there is no orphan")
	}
	r.d.Close()
	if _, eof := s.read(); !eof || r.d.conns.used != 0 || r.d.pool.out != 0 {
		t.Errorf("the host socket is closed %v, %d connections, %d chunks are left", eof, r.d.conns.used, r.d.pool.out)
	}
}
