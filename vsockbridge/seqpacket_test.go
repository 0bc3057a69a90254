package vsockbridge

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

func (r *rig) seqpacket(port, host uint32) (*guest, *socket) {
	g := r.guest(port, host)
	g.typ = packet.SeqPacket
	return g, g.connect()
}

// message reads one message of the host socket.
func (s *socket) message() ([]byte, bool) {
	s.tb.Helper()
	b := make([]byte, 1<<20)
	n, err := unix.Read(s.fd, b)
	if err == unix.EAGAIN {
		return nil, false
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	return b[:n], true
}

// TestRecordsToHost: messages keep their bounds, in one packet or in many.
func TestRecordsToHost(t *testing.T) {
	r := newRig(t)
	g, s := r.seqpacket(1000, 80)
	r.post(50)
	for _, n := range []int{1, 44, 4096, 64 << 10, 100_000, 200_000} {
		want := pattern(n, uint64(n))
		for at := 0; at < n; at += 60_000 {
			end := min(at+60_000, n)
			flags := uint32(0)
			if end == n {
				flags = packet.EndOfMessage
			}
			g.send(want[at:end], flags)
		}
		r.settle()
		b, ok := s.message()
		if !ok || !bytes.Equal(b, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(b), ok)
		}
		if _, ok := s.message(); ok {
			t.Errorf("%d bytes: more than one message", n)
		}
		g.take(r.reap())
		r.ring[txQueue].Reap()
	}
	if r.d.pool.out != 0 {
		t.Errorf("%d chunks are held", r.d.pool.out)
	}
}

// TestRecordsWait: messages that the host socket has no room for wait whole and
// in order, also those whose lengths fall on the bounds of chunks.
func TestRecordsWait(t *testing.T) {
	r := newRig(t)
	g, s := r.seqpacket(1000, 80)
	r.post(100)
	var want [][]byte
	for i := 0; r.d.pool.out < 8; i++ {
		if i > 1000 {
			t.Fatal("nothing waits: the test is of nothing")
		}
		n := []int{1, 60_000, 65_535, 3, 4096, 65_536, 2, 500}[i%8]
		m := pattern(n, uint64(i))
		h := g.header(packet.RW, n)
		h.Flags = packet.EndOfMessage
		g.put(h, m)
		want = append(want, m)
		r.settle()
		r.ring[txQueue].Reap()
	}
	for i := range want {
		b, ok := s.message()
		if !ok {
			r.settle()
			b, ok = s.message()
		}
		if !ok || !bytes.Equal(b, want[i]) {
			t.Fatalf("message %d: %d bytes, %v, want %d", i, len(b), ok, len(want[i]))
		}
	}
	r.settle()
	if c := r.conn(1000, 80); c.credit.held() != 0 || r.d.pool.out != 0 || c.state.unsent {
		t.Errorf("%d bytes, %d chunks are held", c.credit.held(), r.d.pool.out)
	}
}

// TestRecordsToGuest: a message goes out in as many packets as chains need, the
// last of which ends it, never mixed with another.
func TestRecordsToGuest(t *testing.T) {
	for name, buffers := range map[string][]uint32{"many chains": {pageRoom}, "few large chains": {20_000}, "split chains": {10, 1000, 300}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g, s := r.seqpacket(1000, 80)
			var have [][]byte
			var part []byte
			take := func() {
				l := r.reap()
				for _, p := range l {
					if p.Op != packet.RW {
						continue
					}
					part = append(part, p.data...)
					if p.Flags&^packet.EndOfMessage != 0 {
						t.Fatalf("flags %#x", p.Flags)
					}
					if p.Flags == packet.EndOfMessage {
						have = append(have, part)
						part = nil
					}
				}
				g.take(l)
			}
			var want [][]byte
			for i, n := range []int{1, 3732, 3733, 100_000, 5, 150_000, 150_000, 7} {
				want = append(want, pattern(n, uint64(i)))
				for s.write(want[i]) == 0 {
					r.post(20, buffers...)
					r.settle()
					take()
					g.do(packet.CreditUpdate, 0)
				}
			}
			for len(have) < len(want) {
				before := len(have) + len(part)
				r.post(20, buffers...)
				r.settle()
				take()
				g.do(packet.CreditUpdate, 0)
				take()
				if len(have)+len(part) == before {
					t.Fatalf("stuck after %d messages", len(have))
				}
			}
			for i := range want {
				if !bytes.Equal(have[i], want[i]) {
					t.Errorf("message %d: %d bytes, want %d", i, len(have[i]), len(want[i]))
				}
			}
			if r.d.pool.out != 0 {
				t.Errorf("%d chunks are held", r.d.pool.out)
			}
		})
	}
}

// TestRecordEnds: the end of a host socket is told apart from an empty message,
// which vsock does not have.
func TestRecordEnds(t *testing.T) {
	r := newRig(t)
	g, s := r.seqpacket(1000, 80)
	r.post(20)
	unix.Write(s.fd, nil)
	s.write([]byte("a"))
	unix.Write(s.fd, nil)
	r.settle()
	if ops, b := g.take(r.reap()); string(b) != "a" || len(ops) != 1 {
		t.Fatalf("%v %q", ops, b)
	}
	s.write([]byte("b"))
	unix.Shutdown(s.fd, unix.SHUT_WR)
	r.settle()
	l := r.reap()
	if len(l) != 2 || string(l[0].data) != "b" || l[1].Op != packet.Shutdown || l[1].Flags != packet.ShutdownSend {
		t.Fatalf("%+v", l)
	}
}

// TestRecordTooLong: a host message that the guest can never have whole ends the
// connection, rather than to hang it.
func TestRecordTooLong(t *testing.T) {
	r := newRig(t)
	g := r.guest(1000, 80)
	g.typ, g.alloc = packet.SeqPacket, 1000
	s := g.connect()
	r.post(20)
	s.write(make([]byte, 1001))
	r.settle()
	if ops, _ := g.take(r.reap()); len(ops) != 1 || ops[0] != packet.Reset || r.d.counters.TooLong != 1 {
		t.Errorf("%v", ops)
	}
}
