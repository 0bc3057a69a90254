package tcp

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/vnet/link/linktest"
)

// model is a guest's TCP, simple and strict: it sends a stream, takes one, and
// recovers from whatever the link does. It is written from RFC 9293 and knows
// nothing of the engine.
type model struct {
	r    *rig
	d    side
	rng  *rand.Rand
	p    *hostsocktest.Peer
	sack bool
	mss  int

	up      []byte // to the target
	iss     uint32
	una     int // offsets into up; len(up) is the FIN
	nxt     int
	edge    int
	finSent bool
	resend  time.Duration // when una is sent again
	probe   time.Duration // when a closed window is probed

	irs     uint32
	down    []byte // from the target, in order
	held    map[int][]byte
	downFin int // offset of the target's FIN, -1
	rcvBuf  int // window
	read    int // of down, by the application
	reset   bool
	owed    bool
}

func (m *model) now() time.Duration { return time.Duration(m.r.time.Now()) }

// ackNo is what m expects next.
func (m *model) ackNo() uint32 {
	n := m.irs + 1 + uint32(len(m.down))
	if m.gotAll() {
		n++
	}
	return n
}

func (m *model) gotAll() bool { return m.downFin >= 0 && len(m.down) == m.downFin }

func (m *model) wnd() uint16 { return uint16(max(m.rcvBuf-(len(m.down)-m.read), 0) >> 3) }

// segment is the frame of up[from:to], with the FIN when it is the end.
func (m *model) segment(from, to int, fin bool) linktest.Frame {
	s := seg{flags: "A", seq: m.iss + 1 + uint32(from), ack: m.ackNo(), wnd: m.wnd(), data: m.up[from:to]}
	if fin {
		s.flags = "FA"
	}
	if m.sack {
		for off, b := range m.held {
			if len(s.sack) == 3 {
				break
			}
			a := m.irs + 1 + uint32(off)
			s.sack = append(s.sack, [2]uint32{a, a + uint32(len(b))})
		}
	}
	return m.r.frame(m.d, s)
}

// work is what the guest sends now.
func (m *model) work() (out []linktest.Frame) {
	idle := m.una == m.nxt
	for k := 0; m.nxt < len(m.up) && m.nxt < m.edge && k < 12; k++ {
		n := min(1+m.rng.IntN(m.mss), len(m.up)-m.nxt, m.edge-m.nxt)
		out = append(out, m.segment(m.nxt, m.nxt+n, m.nxt+n == len(m.up) && m.edge > len(m.up)))
		m.nxt += n
		if m.nxt == len(m.up) && m.edge > len(m.up) {
			m.finSent = true
			m.nxt++
		}
	}
	if m.nxt == len(m.up) && !m.finSent && m.edge >= len(m.up) {
		out = append(out, m.segment(m.nxt, m.nxt, true))
		m.finSent = true
		m.nxt++
	}
	if m.una < m.nxt && m.now() >= m.resend {
		to := min(m.una+m.mss, len(m.up))
		out = append(out, m.segment(min(m.una, len(m.up)), to, to == len(m.up) && m.finSent))
		m.resend = m.now() + 250*time.Millisecond
	}
	if idle && m.nxt > m.una {
		m.resend = m.now() + 250*time.Millisecond
	}
	if m.una == m.nxt && m.nxt <= len(m.up) && m.now() >= m.probe {
		out = append(out, m.segment(max(m.una-1, 0), m.una, false))
		m.probe = m.now() + 250*time.Millisecond
	}
	if m.owed && len(out) == 0 {
		at := min(m.nxt, len(m.up))
		f := m.segment(at, at, false)
		if m.finSent { // behind our FIN
			f = m.r.frame(m.d, seg{flags: "A", seq: m.iss + 1 + uint32(m.nxt), ack: m.ackNo(), wnd: m.wnd()})
		}
		out = append(out, f)
	}
	if len(out) > 0 {
		m.owed = false
	}
	return out
}

// take takes one segment of ours.
func (m *model) take(s seg) {
	t := m.r.t
	if s.flags == "R" || s.flags == "RA" {
		m.reset = true
		return
	}
	if ack := int(int32(s.ack - m.iss - 1)); ack > m.nxt {
		t.Fatalf("ACK of %d bytes, %d were sent", ack, m.nxt)
	} else if ack >= m.una {
		if ack > m.una {
			m.una, m.resend = ack, m.now()+250*time.Millisecond
		}
		m.edge = max(m.edge, ack+int(s.wnd)<<5)
	}
	off := int(int32(s.seq - m.irs - 1))
	fin := s.flags[0] == 'F'
	if fin {
		m.downFin = off + len(s.data)
	}
	if len(s.data) == 0 && !fin {
		if off < len(m.down) {
			m.owed = true // a probe
		}
		return
	}
	m.owed = true
	if len(s.data) > 0 && off+len(s.data) > len(m.down) && len(m.down)+m.rcvBuf-(len(m.down)-m.read) >= off+len(s.data) {
		if b, ok := m.held[off]; !ok || len(b) < len(s.data) {
			m.held[off] = s.data
		}
	}
	for again := true; again; {
		again = false
		for at, b := range m.held {
			if at > len(m.down) {
				continue
			}
			delete(m.held, at)
			if skip := len(m.down) - at; skip < len(b) {
				m.down = append(m.down, b[skip:]...)
				again = true
			}
		}
	}
}

// wire is one direction of a bad link.
type badWire[T any] struct {
	rng  *rand.Rand
	loss float64
	late []T
}

// pass returns what arrives of in.
func (w *badWire[T]) pass(in []T) (out []T) {
	for _, f := range in {
		switch x := w.rng.Float64(); {
		case x < w.loss:
		case x < 2*w.loss:
			out = append(out, f, f)
		case x < 3*w.loss:
			w.late = append(w.late, f)
		default:
			out = append(out, f)
		}
	}
	if len(w.late) > 0 && w.rng.IntN(3) == 0 {
		out = append(out, w.late...)
		w.late = nil
	}
	return out
}

type simulation struct {
	seed             uint64
	loss             float64
	up, down         int
	d                side
	inbound          bool
	opts             []option
	squeeze, noSpace bool // host buffers, guest ring
}

var streams = flag.Int("streams", 64, "simulated connections of TestStreams")

// TestStreams moves streams both ways over bad links: what arrives is what was
// sent, both ends see an orderly end, and nothing is left.
func TestStreams(t *testing.T) {
	shapes := [][]option{nil, {noPeek}, {noCaps}, {noPeek, noCaps}}
	for i := range *streams {
		rng := rand.New(rand.NewPCG(uint64(i), 77))
		s := simulation{
			seed: uint64(i), loss: []float64{0, 0.01, 0.05, 0.15}[i%4],
			up: rng.IntN(200_000), down: rng.IntN(200_000),
			d: side4(uint16(1000 + i)), inbound: rng.IntN(2) == 0, opts: shapes[i/4%4],
			squeeze: rng.IntN(2) == 0, noSpace: rng.IntN(3) == 0,
		}
		if rng.IntN(2) == 0 {
			s.d = side6(uint16(1000 + i))
		}
		if rng.IntN(8) == 0 {
			s.up = 0
		}
		if rng.IntN(8) == 0 {
			s.down = 0
		}
		t.Run(fmt.Sprintf("%d_loss%v", i, s.loss), func(t *testing.T) { s.run(t) })
	}
}

func (s *simulation) run(t *testing.T) {
	r := newRig(t, s.opts...)
	rng := rand.New(rand.NewPCG(s.seed, 1))
	up, down := pattern(s.up, byte(s.seed)), pattern(s.down, byte(s.seed+100))
	var c *g
	if s.inbound {
		c = r.accept(s.d)
	} else {
		c = r.dialWith(s.d, seg{mss: 1460, wscale: 3, sackOK: s.seed%3 != 0, wnd: 8000})
	}
	m := &model{
		r: r, d: s.d, rng: rng, p: c.p, sack: s.inbound || s.seed%3 != 0, mss: 1400, up: up, iss: guestISN, irs: c.ours,
		edge: 65535, held: map[int][]byte{}, downFin: -1, rcvBuf: 64000,
	}
	toHost := badWire[linktest.Frame]{rng: rng, loss: s.loss}
	toGuest := badWire[seg]{rng: rng, loss: s.loss}
	var got []byte
	sent, closed := 0, false
	for step := 0; ; step++ {
		if step > 20000 {
			t.Fatalf("no end: up %d/%d down %d/%d, %v, %+v", len(got), s.up, len(m.down), s.down, c.state(), r.e.Stats())
		}
		// The target reads and writes as it likes.
		if s.squeeze && rng.IntN(4) == 0 {
			c.p.SetSendBuffer(rng.IntN(20000))
		}
		got = append(got, c.p.Read(rng.IntN(30000))...)
		if sent < len(down) {
			sent += c.p.Send(down[sent:min(len(down), sent+rng.IntN(20000))])
		} else if !closed && rng.IntN(10) == 0 {
			closed = true
			c.p.CloseWrite()
		}
		if s.noSpace {
			r.ep.Room = rng.IntN(5)
		}
		r.k.Pump()
		// The guest.
		m.read = min(len(m.down), m.read+rng.IntN(50000))
		if in := toHost.pass(m.work()); len(in) > 0 {
			for i := range in { // a frame twice must not share memory that is cleared
				in[i].Data = bytes.Clone(in[i].Data)
			}
			r.input(in...)
		}
		if r.ep.Room != 0 && r.ep.Short {
			r.ep.Short = false
			r.e.Writable()
		}
		for _, x := range toGuest.pass(r.take(s.d)) {
			m.take(x)
		}
		r.check()
		r.time.Advance(time.Duration(1+rng.IntN(20)) * time.Millisecond)
		if m.reset {
			break
		}
		if m.gotAll() && m.una == len(m.up)+1 && c.p.SawFIN() && c.p.Unread() == 0 {
			break
		}
	}
	if m.reset && !(m.gotAll() && m.una >= len(m.up)) {
		t.Fatalf("reset: up %d/%d down %d/%d", len(got), s.up, len(m.down), s.down)
	}
	got = append(got, c.p.ReadAll()...)
	if !bytes.Equal(got, up) {
		t.Errorf("up: %d of %d bytes, equal for %d", len(got), len(up), common(got, up))
	}
	if !bytes.Equal(m.down, down) {
		t.Errorf("down: %d of %d bytes, equal for %d", len(m.down), len(down), common(m.down, down))
	}
	if c.p.SawRST() {
		t.Error("target saw RST")
	}
	// Our side may still wait for the ACK of its FIN.
	r.ep.Room = -1
	for range 100 {
		r.e.Writable()
		r.advance(100 * time.Millisecond)
		for _, x := range r.take(s.d) {
			m.take(x)
		}
		if m.owed && !m.reset {
			r.input(m.work()...)
		}
	}
	if n := r.e.Stats().Drops[DropInWindow]; n != 0 {
		t.Errorf("%d segments lost inside the window", n)
	}
	r.clean()
}

func common(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// check verifies what must hold between any two calls.
func (r *rig) check() {
	r.t.Helper()
	e := r.e
	chunks := 0
	count := func(b *seqBuf) {
		for _, c := range b.chunk {
			if c != 0 {
				chunks++
			}
		}
	}
	e.conns.All(func(i uint32, c *conn) bool {
		if c.slot != i || c.state == Closed || c.batch != 0 {
			r.t.Errorf("conn %d: slot %d, state %v, batch %d", i, c.slot, c.state, c.batch)
		}
		if fl := e.flows.At(c.flow); fl.Slot != i || fl.FD != c.fd {
			r.t.Errorf("conn %d: flow says slot %d, fd %d", i, fl.Slot, fl.FD)
		}
		if c.una.Diff(c.nxt) > 0 || c.nxt.Diff(c.max) > 0 {
			r.t.Errorf("conn %d: una %d nxt %d max %d", i, c.una, c.nxt, c.max)
		}
		if c.state.synchronized() && c.fd >= 0 {
			fin := 0
			if c.has(fFinIn) {
				fin = 1
			}
			if int(c.rcvNxt.Diff(c.wrNxt)) != int(c.staged)+fin {
				r.t.Errorf("conn %d: %d between wrNxt and rcvNxt, %d staged, FIN %d", i, c.rcvNxt.Diff(c.wrNxt), c.staged, fin)
			}
			if int(c.rcvNxt.Diff(c.edge)) > fin {
				r.t.Errorf("conn %d: rcvNxt beyond the window by %d", i, c.rcvNxt.Diff(c.edge))
			}
			if c.base.Diff(c.una) > 0 {
				r.t.Errorf("conn %d: base %d beyond una %d", i, c.base, c.una)
			}
			if c.una != c.max && c.rtxAt == 0 {
				r.t.Errorf("conn %d: %d in flight and no timer (%v)", i, c.inFlight(), c.state)
			}
			if c.has(fAckOwed|fSynOwed|fResetOwed|fRtxOwed) && c.queue.in != waiting {
				r.t.Errorf("conn %d: owes something and does not wait", i)
			}
		}
		if c.timerAt != 0 != e.timers.Armed(c.timer) {
			r.t.Errorf("conn %d: timer armed %v, at %d", i, e.timers.Armed(c.timer), c.timerAt)
		}
		if c.rtxAt != 0 && (c.timerAt == 0 || c.timerAt > c.rtxAt) || c.idleAt != 0 && (c.timerAt == 0 || c.timerAt > c.idleAt) {
			r.t.Errorf("conn %d: deadlines %d %d, timer %d", i, c.rtxAt, c.idleAt, c.timerAt)
		}
		if c.inBuf != 0 {
			b := e.inBufs.At(c.inBuf)
			count(&b.seqBuf)
			bytes := 0
			for k, s := range b.ranges[:b.n] {
				bytes += s.len()
				if s.len() <= 0 || s.from.Diff(c.rcvNxt) <= 0 || k > 0 && s.from.Diff(b.ranges[k-1].to) <= 0 {
					r.t.Errorf("conn %d: ranges %v behind %d", i, b.ranges[:b.n], c.rcvNxt)
				}
			}
			if bytes != b.bytes || b.n > 0 && b.newest >= b.n || b.n == 0 && c.staged == 0 {
				r.t.Errorf("conn %d: ranges %v, %d bytes counted, newest %d", i, b.ranges[:b.n], b.bytes, b.newest)
			}
		}
		if c.outBuf != 0 {
			count(e.outBufs.At(c.outBuf))
		}
		return !r.t.Failed()
	})
	if chunks != e.pool.used || e.pool.used > e.pool.limit {
		r.t.Errorf("%d chunks held, %d counted, limit %d", chunks, e.pool.used, e.pool.limit)
	}
	if n := e.conns.Len(); r.time.Wheel.Len() > n || r.flows.Len() != n || r.k.Open() > n {
		r.t.Errorf("%d conns, %d timers, %d flows, %d sockets", n, r.time.Wheel.Len(), r.flows.Len(), r.k.Open())
	}
	if e.reserved || len(e.batch) != 0 {
		r.t.Error("something is open between calls")
	}
	r.accounted()
}
