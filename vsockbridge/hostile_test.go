package vsockbridge

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vsockbridge/packet"
)

// TestHostile is the catalogue of hostile packets, V1 to V11, at the device.
// After each the device serves others as before.
func TestHostile(t *testing.T) {
	rst := []packet.Op{packet.Reset}
	raw := func(g *guest, edit func(h *packet.Header), data []byte) {
		h := g.header(packet.RW, len(data))
		edit(&h)
		g.put(h, data)
		g.r.settle()
	}
	for _, tc := range []struct {
		name string
		do   func(r *rig, g *guest) // g is connected
		ops  []packet.Op            // what it hears
		drop Drop
	}{
		{"V1 shorter than a header", func(r *rig, g *guest) { r.ring[txQueue].Send(make([]byte, 43)); r.settle() }, nil, DropShort},
		{"V1 no readable bytes", func(r *rig, g *guest) { r.ring[txQueue].Post(100); r.settle() }, nil, DropShort},
		{"V1 longer than its chain", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Len = 11 }, make([]byte, 10)) }, rst, DropLength},
		{"V1 longer than 64 KiB", func(_ *rig, g *guest) { raw(g, func(*packet.Header) {}, make([]byte, 65537)) }, rst, DropLength},
		{"V1 length of 4 GiB", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Len = 1<<32 - 1 }, nil) }, rst, DropLength},
		{"V1 more than 4 GiB", func(r *rig, _ *guest) {
			q, most := r.ring[txQueue].Q, uint32(60<<20)
			q.Add(slices.Repeat([]vring.DriverSeg{{GPA: r.mem.Alloc(uint64(most), 1), Len: most}}, 72), 0)
			q.Publish()
			r.settle()
			q.Used()
		}, nil, DropLength},
		{"V1 trailing bytes", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Len = 3 }, []byte("abcdef")) }, nil, 0},
		{"V2 another's CID", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.SrcCID = 8 }, []byte("x")) }, nil, DropCID},
		{"V2 CID with upper half", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.SrcCID |= 1 << 32 }, []byte("x")) }, nil, DropCID},
		{"V2 to another CID", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.DstCID = 9 }, []byte("x")) }, nil, DropCID},
		{"V2 to CID 1", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.DstCID = 1 }, []byte("x")) }, nil, DropCID},
		{"V2 to the host with upper half", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.DstCID |= 1 << 32 }, []byte("x")) }, nil, DropCID},
		{"V3 op 0", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Op = 0 }, nil) }, rst, 0},
		{"V3 op 8", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Op = 8 }, nil) }, rst, 0},
		{"V3 another type", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Type = packet.SeqPacket }, []byte("x")) }, rst, 0},
		{"V3 unknown flags", func(_ *rig, g *guest) { raw(g, func(h *packet.Header) { h.Flags = ^uint32(0) }, []byte("x")) }, nil, 0},
		{"V5 request again", func(_ *rig, g *guest) { g.do(packet.Request, 0) }, rst, 0},
		{"V5 response to nothing", func(_ *rig, g *guest) { g.do(packet.Response, 0) }, rst, 0},
		{"V6 beyond the credit", func(_ *rig, g *guest) {
			for range DefaultBufAlloc/(64<<10) + 7 { // the socket takes some
				g.put(g.header(packet.RW, 64<<10), make([]byte, 64<<10))
				g.r.settle()
				g.r.ring[txQueue].Reap()
			}
		}, nil, 0},
		{"V7 fwd_cnt ahead of what was sent", func(_ *rig, g *guest) { g.fwd = 1; g.do(packet.CreditUpdate, 0) }, rst, 0},
		{"V7 fwd_cnt behind", func(_ *rig, g *guest) { g.fwd = 1<<32 - 1; g.do(packet.CreditUpdate, 0) }, nil, 0},
		{"V7 huge buf_alloc", func(_ *rig, g *guest) { g.alloc = 1<<32 - 1; g.do(packet.CreditUpdate, 0) }, nil, 0},
		{"V8 credit asked for", func(_ *rig, g *guest) { g.do(packet.CreditRequest, 0) }, []packet.Op{packet.CreditUpdate}, 0},
		{"V9 no payload", func(_ *rig, g *guest) { raw(g, func(*packet.Header) {}, nil) }, nil, 0},
		{"V9 shutdown of nothing", func(_ *rig, g *guest) { g.do(packet.Shutdown, 0) }, nil, 0},
		{"V9 shutdown of something unknown", func(_ *rig, g *guest) { g.do(packet.Shutdown, ^uint32(3)) }, nil, 0},
		{"V9 shutdowns add up", func(_ *rig, g *guest) {
			g.do(packet.Shutdown, packet.ShutdownSend)
			g.do(packet.Shutdown, packet.ShutdownSend)
			g.do(packet.Shutdown, packet.ShutdownReceive)
		}, rst, 0},
		{"data behind a shutdown", func(_ *rig, g *guest) {
			g.do(packet.Shutdown, packet.ShutdownSend)
			raw(g, func(*packet.Header) {}, []byte("x"))
		}, rst, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			g := r.guest(1000, 80)
			g.connect()
			r.post(20)
			tc.do(r, g)
			r.ring[txQueue].Reap()
			if ops, _ := g.take(r.reap()); tc.name != "V6 beyond the credit" && !slices.Equal(ops, tc.ops) {
				t.Errorf("heard %v, want %v", ops, tc.ops)
			} else if tc.name == "V6 beyond the credit" && r.d.counters.Violations == 0 && r.conn(1000, 80).credit.held() > DefaultBufAlloc {
				t.Errorf("%d bytes are held", r.conn(1000, 80).credit.held())
			}
			if tc.drop != 0 && r.drops(tc.drop) != 1 {
				t.Errorf("drops %v, want one of %v", r.d.drops, tc.drop)
			}
			if slices.Equal(tc.ops, rst) && r.d.conns.used != 0 {
				t.Error("the connection lives")
			}
			r.guest(1001, 80).connect()
		})
	}
}

// TestBeyondCredit is V6 exactly: the byte after the last that there was room for.
func TestBeyondCredit(t *testing.T) {
	r := newRig(t, config(func(c *Config) { c.BufAlloc = 64 << 10 }))
	g := r.guest(1000, 80)
	g.connect()
	r.post(100)
	for i := 0; r.d.pool.out == 0; i++ { // what the socket itself holds
		if g.send(make([]byte, 32<<10), 0); i > 1000 {
			t.Fatal("the socket takes everything")
		}
		r.settle()
		r.ring[txQueue].Reap()
	}
	left := 64<<10 - r.conn(1000, 80).credit.held()
	g.send(make([]byte, left), 0)
	r.settle()
	if r.conn(1000, 80) == nil || r.d.counters.Violations != 0 {
		t.Fatal("held to less than was given")
	}
	g.send(make([]byte, 1), 0)
	r.settle()
	l := r.reap()
	if n := len(l); n == 0 || l[n-1].Op != packet.Reset || r.d.conns.used != 0 || r.d.pool.out != 0 {
		t.Errorf("%d connections, %d chunks", r.d.conns.used, r.d.pool.out)
	}
}

// TestStrangers is V4: RST once for each packet of no connection, none for RST,
// and no more in memory than the queue of them holds.
func TestStrangers(t *testing.T) {
	r := newRig(t, ringSize(256))
	g := r.guest(1000, 80)
	for _, op := range []packet.Op{packet.Response, packet.Shutdown, packet.RW, packet.CreditUpdate, packet.CreditRequest, 0, 99} {
		g.do(op, 0)
	}
	g.do(packet.Reset, 0)
	r.post(7)
	r.settle()
	if ops, _ := g.take(r.reap()); len(ops) != 7 || !slices.Equal(slices.Compact(ops), []packet.Op{packet.Reset}) {
		t.Errorf("%v", ops)
	}
	for range maxResets + 200 {
		g.do(packet.RW, 0)
		r.ring[txQueue].Reap()
	}
	if r.d.counters.ResetsLost != 200 || r.d.resets.n != maxResets {
		t.Errorf("%d lost, %d wait", r.d.counters.ResetsLost, r.d.resets.n)
	}
	// A request for the ports that an RST waits for takes it back.
	g.do(packet.Request, 0)
	r.post(2)
	r.settle()
	if ops, _ := g.take(r.reap()); !slices.Equal(ops, []packet.Op{packet.Response}) {
		t.Errorf("the request is answered %v", ops)
	}
}

// TestConnectionFlood is V10: no more connections than configured, the rest are
// refused; all of them end, and no descriptor is left.
func TestConnectionFlood(t *testing.T) {
	before := descriptors(t)
	t.Run("flood", func(t *testing.T) {
		r := newRig(t, config(func(c *Config) { c.MaxConns = 100 }))
		r.host.connect = func() (int, bool) {
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(p[0])
			return p[1], false
		}
		for i := range uint32(5000) {
			r.guest(i, 80).do(packet.Request, 0)
			r.ring[txQueue].Reap()
		}
		if r.d.conns.used != 100 || r.d.counters.Full == 0 {
			t.Errorf("%d connections, %d refused", r.d.conns.used, r.d.counters.Full)
		}
		for range 50 {
			r.fill()
			r.settle()
			r.reap()
		}
		r.clock.Advance(time.Duration(lingerLimit) + time.Second)
		for range 5 {
			r.fill()
			r.settle()
			r.reap()
		}
		if r.d.conns.used != 0 || r.d.granted != 0 {
			t.Errorf("%d connections are left, %d bytes granted", r.d.conns.used, r.d.granted)
		}
	})
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// TestNoBuffers is V11: a guest that posts no receive buffers is not waited for
// by turning; what it is owed waits with the connections, and comes in order.
func TestNoBuffers(t *testing.T) {
	r := newRig(t)
	gs := make([]*guest, 10)
	ss := make([]*socket, 10)
	for i := range gs {
		gs[i] = r.guest(uint32(i), 80)
		ss[i] = gs[i].connect()
	}
	for i := range gs {
		ss[i].write([]byte("one"))
		r.settle()
		ss[i].write([]byte("two"))
		gs[i].do(packet.CreditRequest, 0)
		ss[i].close()
	}
	r.settle()
	before := r.loop.Stats()
	for range 100 {
		r.clock.Advance(time.Microsecond)
		r.turn()
	}
	if after := r.loop.Stats(); after.Agains != before.Agains || after.Events != before.Events {
		t.Error("the device turns while it can do nothing")
	}
	for i := range gs {
		_ = i
		r.post(1)
		r.settle()
	}
	r.post(100)
	r.settle()
	l := r.reap()
	for i, g := range gs {
		ops, data := g.take(l)
		if string(data) != "onetwo" || len(ops) < 2 || ops[len(ops)-1] != packet.Shutdown {
			t.Errorf("connection %d: %v, %q", i, ops, data)
		}
	}
}

// TestFairness is V10: a connection that has much for the guest does not keep
// the others from it.
func TestFairness(t *testing.T) {
	r := newRig(t)
	busy, quiet := r.guest(1, 80), r.guest(2, 80)
	busy.alloc = 16 << 20
	sb := busy.connect()
	sq := quiet.connect()
	for {
		if n := sb.write(make([]byte, 64<<10)); n < 64<<10 {
			break
		}
	}
	r.settle()
	sq.write([]byte("me too"))
	r.settle()
	for i := range 20 {
		r.fill()
		r.settle()
		l := r.reap()
		busy.take(l)
		if _, b := quiet.take(l); len(b) > 0 {
			return
		}
		for sb.write(make([]byte, 64<<10)) > 0 {
		}
		if i == 19 {
			t.Error("never its turn")
		}
	}
}

// TestOneByteSends: short messages of the host are put together, and no more
// packets are under way than a Linux guest of 2026 bears (complaint kr/795).
func TestOneByteSends(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	s := g.connect()
	packets, written := 0, 0
	for range 3000 {
		if r.ring[rxQueue].Q.Free() > 0 {
			r.post(1)
		}
		written += s.write([]byte{1})
		r.settle()
		for _, p := range r.reap() {
			if p.Op == packet.RW {
				packets++
			}
			if p.Op == packet.CreditRequest {
				if packets != 455 {
					t.Errorf("asked for credit after %d packets", packets)
				}
			}
		}
	}
	if packets != 455 || r.d.counters.CreditRequests != 1 {
		t.Errorf("%d packets are unread, %d times asked", packets, r.d.counters.CreditRequests)
	}
	g.fwd = 455
	r.fill()
	g.do(packet.CreditUpdate, 0)
	if ops, b := g.take(r.reap()); len(b) != written-455 || len(b) < 100 || len(ops) != 1 {
		t.Errorf("%v, %d bytes when they are read", ops, len(b))
	}
}

// TestLeaving: what a guest sent before it closed reaches a slow host socket, and
// the RST waits for that; a guest that does not wait frees its ports.
func TestLeaving(t *testing.T) {
	for name, patient := range map[string]bool{"guest waits": true, "guest does not": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.guest(1000, 80)
			s := g.connect()
			r.post(100)
			sent := 0
			for r.d.pool.out == 0 {
				g.send(make([]byte, 64<<10), 0)
				sent += 64 << 10
				r.settle()
				r.ring[txQueue].Reap()
			}
			g.take(r.reap())
			g.do(packet.Shutdown, packet.ShutdownBoth)
			if ops, _ := g.take(r.reap()); len(ops) != 0 {
				t.Fatalf("%v before all is flushed", ops)
			}
			if !patient {
				g.do(packet.Reset, 0)
				if r.conn(1000, 80) != nil || r.d.conns.used != 1 {
					t.Fatal("its ports are not free, or its bytes are gone")
				}
				r.guest(1000, 80).connect()
			}
			for got, eof := 0, false; !eof; {
				var b []byte
				b, eof = s.read()
				if got += len(b); eof && got != sent {
					t.Errorf("%d bytes of %d", got, sent)
				}
				if len(b) == 0 && !eof {
					t.Fatal("stuck")
				}
				r.settle()
			}
			if ops, _ := g.take(r.reap()); patient && !slices.Equal(ops, []packet.Op{packet.Reset}) {
				t.Errorf("%v at the end", ops)
			}
		})
	}
}

// FuzzPackets feeds the device packets made of the input, on connections that
// exist and others, with host sockets that read or do not.
func FuzzPackets(f *testing.F) {
	seed := func(g guest, ops ...packet.Op) (b []byte) {
		for _, op := range ops {
			b = append(b, byte(op), 0, 0, 10)
		}
		return b
	}
	f.Add(seed(guest{}, packet.Request, packet.RW, packet.Shutdown, packet.Reset))
	f.Add(seed(guest{}, packet.Request, packet.Request, packet.CreditRequest, packet.RW, packet.RW))
	f.Fuzz(func(t *testing.T, in []byte) {
		before := descriptors(t)
		fuzzOne(t, in)
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})
}

func fuzzOne(t *testing.T, in []byte) {
	t.Run("", func(t *testing.T) {
		r := newRig(t, config(func(c *Config) { c.MaxConns, c.BufAlloc = 8, 64<<10 }))
		payload := make([]byte, 70<<10)
		for len(in) >= 4 && r.d.up {
			c := in[:4]
			in = in[4:]
			g := r.guest(uint32(c[1]&3), uint32(c[1]>>2&3))
			g.typ = packet.Type(1 + c[1]>>4&1)
			n := 0
			switch c[0] >> 4 {
			case 0, 1, 2:
				n = int(c[3]) << (c[2] & 8)
			case 3:
				r.post(min(int(c[3]), r.ring[rxQueue].Q.Free()))
			case 4:
				if len(r.host.opened) > 0 {
					r.host.opened[int(c[3])%len(r.host.opened)].drain(c[2])
				}
			case 5:
				r.clock.Advance(time.Duration(c[3]) * time.Second)
			case 6:
				r.d.Connect(uint32(c[1]&3), g.typ, &initiator{tb: t, kind: unix.SOCK_STREAM, gone: c[2]&1 == 1}, 0)
			case 7:
				g.fwd = binary.LittleEndian.Uint32(append([]byte{c[2], c[3]}, 0, 0))
			}
			h := g.header(packet.Op(c[0]&15), n)
			h.Flags = uint32(c[2])
			g.alloc = uint32(c[3]) << 10
			if r.ring[txQueue].Q.Free() >= 2 {
				g.put(h, payload[:n])
			}
			r.settle()
			r.ring[txQueue].Reap()
			r.reap()
			held := 0
			r.d.each(func(c *conn) {
				if c.credit.held() > c.credit.alloc || c.credit.sent-c.credit.peerFwd > maxPeerAlloc {
					t.Fatalf("credit %+v", c.credit)
				}
				held += c.out.bytes + c.out.making
			})
			if r.d.conns.used > 8 || r.d.pool.out > 8*4 || held > 8*3*(64<<10) {
				t.Fatalf("%d connections, %d chunks", r.d.conns.used, r.d.pool.out)
			}
		}
		r.d.Stop(rxQueue)
		r.d.Stop(txQueue)
		r.d.Reset()
		r.clock.Advance(2 * time.Duration(orphanLimit))
		r.settle()
		if r.d.conns.used != 0 || r.d.pool.out != 0 || r.d.granted != 0 {
			t.Fatalf("%d connections, %d chunks, %d granted are left", r.d.conns.used, r.d.pool.out, r.d.granted)
		}
	})
}

// drain reads, writes or closes, as how says.
func (s *socket) drain(how byte) {
	if s.fd < 0 {
		return
	}
	b := make([]byte, 64<<10)
	switch how & 3 {
	case 0:
		unix.Read(s.fd, b)
	case 1:
		unix.Write(s.fd, b[:int(how)+1])
	case 2:
		unix.Shutdown(s.fd, unix.SHUT_WR)
	case 3:
		s.close()
	}
}
