package hostile

import (
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// Connections that there are.
var tcpRows = []row{
	{"T5", both(vanishedGuest)},
	{"T6", both(zeroWindow)},
	{"T7", both(shrinkingWindow)},
	{"T9", both(resets)},
	{"T10", both(synOnEstablished)},
	{"T11", both(ackOfTheFuture)},
	{"T12", both(duplicateACKs)},
	{"T13", both(overlappingSegments)},
	{"T14", both(outOfOrderFlood)},
	{"T15", both(urgent)},
	{"T22", both(dataAfterFIN)},
	{"T23", both(halfClosed)},
	{"T24", both(hostResets)},
	{"T25", both(hostBufferFull)},
}

// resets: exact ends the connection, in the window asks for proof, outside does
// nothing (RFC 5961, 3.2).
func resets(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	for _, off := range []uint32{1, 1000} {
		c.segment("", func(s *layers.TCP) { s.RST, s.ACK, s.Seq = true, false, c.seq+off })
		if a := g.awaitSegment("a challenge ACK", 4001, isACK); a.Ack != c.seq {
			t.Errorf("challenge ACK for %d, want %d", a.Ack, c.seq)
		}
	}
	for _, seq := range []uint32{c.seq - 1, c.seq + 1<<30} {
		before := d.counters()["tcp_drop_rst"]
		c.segment("", func(s *layers.TCP) { s.RST, s.ACK, s.Seq = true, false, seq })
		d.counts("tcp_drop_rst", before+1)
	}
	d.clock.slow()
	for range 300 { // no more challenges than 100 per second (RFC 5961, 7)
		c.segment("", func(s *layers.TCP) { s.RST, s.ACK, s.Seq = true, false, c.seq+1 })
	}
	d.counts("tcp_drop_rst-inside", 302)
	if n := d.counters(); n["tcp_challenges"] > 120 || n["tcp_challenges_cut"] < 180 {
		t.Errorf("%d challenge ACKs, %d kept back", n["tcp_challenges"], n["tcp_challenges_cut"])
	}
	c.alive(p)
	c.segment("", func(s *layers.TCP) { s.RST, s.ACK = true, false })
	p.wantReset()
	g.leave()
	d.healthy()
}

func synOnEstablished(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	c.segment("", func(s *layers.TCP) { s.SYN, s.ACK, s.Seq = true, false, c.seq+5 })
	g.awaitSegment("a challenge ACK", 4001, isACK)
	if n := d.counters()["tcp_flows"]; n != 1 {
		t.Errorf("%d flows", n)
	}
	c.alive(p)
	g.leave()
	d.healthy()
}

// ackOfTheFuture: nothing is consumed from the host's socket for it.
func ackOfTheFuture(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	c.segment("", func(s *layers.TCP) { s.Ack = c.ack + 1_000_000 })
	g.awaitSegment("an ACK", 4001, isACK)
	if _, err := p.c.Write([]byte("to the guest")); err != nil {
		t.Fatal(err)
	}
	s := g.awaitSegment("the data", 4001, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
	if string(s.Payload) != "to the guest" || s.Seq != c.ack {
		t.Errorf("got %q at %d, want it at %d", s.Payload, s.Seq, c.ack)
	}
	c.ack += uint32(len(s.Payload))
	c.alive(p)
	g.leave()
	d.healthy()
}

// overlappingSegments: only what is new counts, and the first delivery wins.
func overlappingSegments(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	at := c.seq
	put := func(off uint32, data string) {
		c.segment(data, func(s *layers.TCP) { s.Seq = at + off })
	}
	put(6, "ghijkl") // ahead
	put(0, "abc")
	put(0, "---def") // partly old
	put(3, "YYYZZZ") // wholly old by now, or overlapping what is held
	put(12, "mn")
	p.want("abcdefghijklmn")
	g.leave()
	d.healthy()
}

// outOfOrderFlood: single bytes with gaps between, 2,000 of them. A bounded number
// is kept, the rest is not acknowledged, and the stream comes right in the end.
func outOfOrderFlood(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	const window = 60_000
	data := pattern(2, window)
	at := c.seq
	for i := range 2000 {
		off := 2 + i*20%(window-2)
		c.segment(string(data[off:off+1]), func(s *layers.TCP) { s.Seq = at + uint32(off) })
		if i%50 == 0 {
			g.receive()
		}
	}
	g.taken()
	if n := d.counters(); n["tcp_out_of_order"] == 0 || n["tcp_drop_ooo-full"] < 1900 || n["tcp_buffer_bytes"] > 80<<10 {
		t.Errorf("%d segments kept, %d not, %d bytes", n["tcp_out_of_order"], n["tcp_drop_ooo-full"], n["tcp_buffer_bytes"])
	}
	for c.seq = at; len(data) > 0; data = data[min(1000, len(data)):] {
		text := string(data[:min(1000, len(data))])
		c.send(text)
		p.want(text)
		g.receive()
	}
	g.taken()
	if n := d.counters()["tcp_buffer_bytes"]; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// urgent: the pointer says anything, the bytes stay where they are.
func urgent(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	for _, u := range []uint16{0, 1, 3, 65535} {
		c.segment("urgent", func(s *layers.TCP) { s.URG, s.PSH, s.Urgent = true, true, u })
		c.seq += 6
		p.want("urgent")
	}
	g.leave()
	d.healthy()
}

// dataAfterFIN: a FIN ahead of data waits for it, one that comes again is
// acknowledged again, and data behind it is not delivered.
func dataAfterFIN(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	fin := func(s *layers.TCP) { s.FIN, s.Seq = true, c.seq+4 }
	c.segment("", fin) // out of order
	g.awaitSegment("an ACK of what is there", 4001, func(s *layers.TCP) bool { return isACK(s) && s.Ack == c.seq })
	c.segment("last", func(*layers.TCP) {})
	p.want("last")
	c.segment("", fin) // in case that it was not kept
	end := c.seq + 5
	isEnd := func(s *layers.TCP) bool { return isACK(s) && s.Ack == end }
	g.awaitSegment("an ACK of the FIN", 4001, isEnd)
	g.taken()
	g.receive()
	c.segment("", fin)
	g.awaitSegment("an ACK of the FIN that came again", 4001, isEnd)
	c.segment("more?", func(s *layers.TCP) { s.Seq = end })
	d.counts("tcp_drop_after-fin", 1)
	if n, err := p.c.Read(make([]byte, 8)); n != 0 || err != io.EOF {
		t.Errorf("the host read %d bytes behind the end, %v", n, err)
	}
	g.leave()
	d.healthy()
}

// hostResets: the guest gets one RST, and the flow is gone, whichever call it is
// that meets the reset.
func hostResets(t *testing.T, f *family) {
	for _, tt := range []struct {
		name   string
		before func(c *conn, p *peer)
	}{
		{"idle", func(*conn, *peer) {}},
		{"unread", func(c *conn, p *peer) { c.send("nobody will read this"); c.g.taken() }},
		{"reading", func(c *conn, p *peer) { // what was sent before the reset comes first
			_, err := p.c.Write([]byte("goodbye"))
			must(c.g.t, err)
			c.read(7)
		}},
		{"writing", func(c *conn, p *peer) {
			must(c.g.t, p.c.SetReadBuffer(2048))
			for range 40 { // more than the target takes: written and staged
				c.send(string(pattern(3, 1400)))
			}
			c.g.taken()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, g, c, p := establishedOn(t, f)
			tt.before(c, p)
			must(t, p.c.SetLinger(0))
			p.c.Close()
			c.send("into the void") // EPIPE, if the flow is still there
			s := g.awaitSegment("a reset", 4001, isRST)
			if s.Seq != c.ack {
				t.Errorf("RST at %d, want %d", s.Seq, c.ack)
			}
			d.eventually("the flow to go", func() bool { return d.counters()["tcp_flows"] == 0 })
			if n := d.counters(); n["tcp_aborted"] != 1 || n["host_sockets"] != 0 || n["tcp_buffer_bytes"] != 0 {
				t.Errorf("%d aborted, %d sockets, %d bytes left", n["tcp_aborted"], n["host_sockets"], n["tcp_buffer_bytes"])
			}
			g.leave()
			d.healthy()
		})
	}
}

// zeroWindow: what the host sends waits in its socket. The guest is asked whether
// its window has opened, and when it has the data comes; a window that stays
// closed for hours ends the connection, however often the guest answers.
func zeroWindow(t *testing.T, f *family) {
	shut := func(s *layers.TCP) { s.Window = 0 }
	closedWindow := func(t *testing.T) (*daemon, *guest, *conn, *peer, []byte) {
		d, g, c, p := establishedOn(t, f)
		c.segment("", shut)
		g.taken()
		data := pattern(1, 50_000)
		_, err := p.c.Write(data)
		must(t, err)
		g.silence("data in a closed window", func(fr []byte) bool { s := segment(fr, 4001); return s != nil && len(s.Payload) > 1 })
		return d, g, c, p, data
	}
	t.Run("opens", func(t *testing.T) {
		d, g, c, _, data := closedWindow(t)
		probes := 0
		for range 30 {
			d.pass(time.Second, time.Second)
			for _, fr := range g.receive() {
				if s := segment(fr, 4001); s != nil {
					probes++
					c.segment("", shut)
				}
			}
		}
		if n := d.counters(); probes < 3 || n["tcp_buffer_bytes"] != 0 {
			t.Errorf("%d probes in 30 s, %d bytes in user space", probes, n["tcp_buffer_bytes"])
		}
		c.segment("", func(*layers.TCP) {})
		if got := c.read(len(data)); string(got) != string(data) {
			t.Error("the guest got something else")
		}
		g.leave()
		d.healthy()
	})
	t.Run("stays", func(t *testing.T) {
		d, g, c, p, _ := closedWindow(t)
		reset := 0
		for minute := 1; minute < 5*60 && reset == 0; minute++ {
			d.pass(time.Minute, time.Minute)
			for _, fr := range g.receive() {
				if s := segment(fr, 4001); s != nil && s.RST {
					reset = minute
				} else if s != nil {
					c.segment("", shut)
				}
			}
		}
		if reset < 4*60 {
			t.Errorf("reset after %d minutes, want it after 4 hours", reset)
		}
		p.c.SetDeadline(time.Now().Add(4 * time.Second))
		p.wantReset()
		g.leave()
		d.healthy()
	})
}

// duplicateACKs: a storm of them is worth one retransmission, and old ACKs none.
func duplicateACKs(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	_, err := p.c.Write([]byte("once"))
	must(t, err)
	g.awaitSegment("the data", 4001, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
	d.clock.slow() // what comes now comes for the ACKs
	n := 0
	for i := range 1000 {
		c.segment("", func(s *layers.TCP) {
			if i%2 == 1 {
				s.Ack -= uint32(i) % 7
			}
		})
		if i%50 == 49 {
			g.taken()
			n += g.payloads(4001)
		}
	}
	g.taken()
	if n += g.payloads(4001); n > 1 {
		t.Errorf("1,000 duplicate ACKs cause %d retransmissions", n)
	}
	c.ack += 4
	c.alive(p)
	g.leave()
	d.healthy()
}

// payloads counts the segments with data among the frames that have come.
func (g *guest) payloads(port uint16) (n int) {
	for _, f := range g.receive() {
		if s := segment(f, port); s != nil && len(s.Payload) > 0 {
			n++
		}
	}
	return n
}

// halfClosed: one side has said its last word, the other has not. That may last,
// but not for ever with a guest that has gone silent.
func halfClosed(t *testing.T, f *family) {
	t.Run("guest", func(t *testing.T) {
		d, g, c, p := establishedOn(t, f)
		c.segment("", func(s *layers.TCP) { s.FIN = true })
		c.seq++
		if n, err := p.c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v; want the end", n, err)
		}
		d.pass(time.Minute, time.Second)
		_, err := p.c.Write([]byte("still talking"))
		must(t, err)
		if got := c.read(13); string(got) != "still talking" {
			t.Errorf("the guest got %q", got)
		}
		g.gone(p)
	})
	t.Run("host", func(t *testing.T) {
		d, g, c, p := establishedOn(t, f)
		must(t, p.c.CloseWrite())
		fin := g.awaitSegment("a FIN", 4001, func(s *layers.TCP) bool { return s.FIN })
		c.ack = fin.Seq + 1
		c.segment("", func(*layers.TCP) {})
		d.pass(time.Minute, time.Second)
		c.alive(p)
		g.gone(p)
	})
}

// gone: half closed, the guest is probed after 2 minutes and given up after 9
// probes.
func (g *guest) gone(p *peer) {
	g.t.Helper()
	g.d.pass(6*time.Minute, 5*time.Second)
	_, err := p.c.Write([]byte("?"))
	if n, rerr := p.c.Read(make([]byte, 1)); n != 0 || err == nil && rerr == io.EOF {
		// After its own FIN the host cannot read the reset, but it cannot write either.
		if _, err = p.c.Write([]byte("?")); err == nil {
			g.t.Error("the host was not told")
		}
	}
	if n := g.d.counters()["flows"]; n != 0 {
		g.t.Errorf("%d flows", n)
	}
	g.leave()
	g.d.healthy()
}

// vanishedGuest: what it does not acknowledge is repeated for some minutes, and a
// connection without traffic is probed after two hours. Then the host is told.
func vanishedGuest(t *testing.T, f *family) {
	t.Run("in flight", func(t *testing.T) {
		d, g, c, p := establishedOn(t, f)
		_, err := p.c.Write([]byte("anybody there?"))
		must(t, err)
		tries := 0
		for range 15 * 60 {
			d.pass(time.Second, time.Second)
			for _, fr := range g.receive() {
				if s := segment(fr, 4001); s != nil && s.Seq == c.ack && len(s.Payload) > 0 {
					tries++
				}
			}
		}
		if tries != 1+12 {
			t.Errorf("sent %d times, want 13", tries)
		}
		p.wantReset()
		g.forgotten()
	})
	t.Run("idle", func(t *testing.T) {
		d, g, c, p := establishedOn(t, f)
		d.pass(119*time.Minute, 10*time.Minute)
		g.receive()
		probes := 0
		for range 15 {
			d.pass(time.Minute, 15*time.Second)
			for _, fr := range g.receive() {
				if s := segment(fr, 4001); s != nil && isACK(s) && s.Seq == c.ack-1 { // RFC 9293, 3.8.4
					probes++
				}
			}
		}
		if probes != 9 {
			t.Errorf("%d probes, want 9", probes)
		}
		p.wantReset()
		g.forgotten()
	})
	t.Run("no buffers", func(t *testing.T) { // it takes no frame any more
		d, g, _, p := establishedOn(t, f)
		for range ringSize {
			g.send(arpFor(t, gateway))
		}
		g.taken()
		_, err := p.c.Write([]byte("anybody there?"))
		must(t, err)
		d.pass(3*time.Hour, time.Minute)
		p.wantReset()
		g.forgotten()
	})
}

// forgotten checks that nothing of a connection is left.
func (g *guest) forgotten() {
	g.t.Helper()
	g.receive() // room for the reset
	g.d.eventually("the flow to go", func() bool { return g.d.counters()["flows"] == 0 })
	if n := g.d.counters(); n["host_sockets"] != 0 || n["tcp_buffer_bytes"] != 0 {
		g.t.Errorf("%d sockets and %d bytes are left", n["host_sockets"], n["tcp_buffer_bytes"])
	}
	g.leave()
	g.d.healthy()
}

// shrinkingWindow: the guest takes back window that is in flight (RFC 9293,
// 3.8.6). From then on nothing goes beyond it, and nothing is lost.
func shrinkingWindow(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	c.segment("", func(s *layers.TCP) { s.Window = 4000 })
	g.taken()
	data := pattern(4, 20_000)
	_, err := p.c.Write(data)
	must(t, err)
	first := 0
	reach := func() (n int) { // of what has come, from what the guest has acknowledged on
		for _, fr := range g.receive() {
			if s := segment(fr, 4001); s != nil && len(s.Payload) > 0 {
				n = max(n, int(s.Seq-c.ack)+len(s.Payload))
				if s.Seq == c.ack && first == 0 {
					first = len(s.Payload)
				}
			}
		}
		return n
	}
	sent := 0
	d.eventually("the window to be filled", func() bool { sent = max(sent, reach()); return sent > 4000-536 })
	c.ack += uint32(first)
	c.segment("", func(s *layers.TCP) { s.Window = 600 })
	g.taken()
	g.receive()
	again := 0
	for range 40 {
		d.pass(100*time.Millisecond, 100*time.Millisecond)
		again = max(again, reach())
	}
	if again == 0 || again > 600 {
		t.Errorf("sent up to %d bytes into a window of 600", again)
	}
	c.segment("", func(*layers.TCP) {})
	d.pass(10*time.Second, time.Second) // what was sent meanwhile was not acknowledged
	if got := c.read(len(data) - first); string(got) != string(data[first:]) {
		t.Error("the guest got something else")
	}
	c.alive(p)
	g.leave()
	d.healthy()
}

// hostBufferFull: what the kernel does not take is staged within a bound, what
// is acknowledged arrives, and the guest is stopped by its window and not by loss.
func hostBufferFull(t *testing.T, f *family) {
	d, g, c, p := establishedOn(t, f)
	const size = 1400
	begin, una, wnd := c.seq, c.seq, uint32(65535)
	upload := func(until uint32) (full bool) { // as far as the window goes
		for quiet := 0; c.seq-begin < until; {
			for _, fr := range g.receive() {
				if s := segment(fr, 4001); s != nil && s.ACK && int32(s.Ack-una) >= 0 {
					una, wnd, quiet = s.Ack, uint32(s.Window), 0
				}
			}
			if c.seq+size-una <= wnd {
				c.send(string(pattern(int(c.seq-begin), size)))
				continue
			}
			g.taken()
			if quiet++; quiet == 50 {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}
	if !upload(64 << 20) {
		t.Fatal("a target that does not read took 64 MiB")
	}
	n := d.counters()
	if n["tcp_buffer_bytes"] == 0 || n["tcp_buffer_bytes"] > 2<<20 || n["tcp_drop_in-window"] != 0 {
		t.Errorf("%d bytes staged, %d segments dropped", n["tcp_buffer_bytes"], n["tcp_drop_in-window"])
	}
	if una != c.seq {
		t.Errorf("%d bytes in the window are not acknowledged", c.seq-una)
	}
	must(t, p.c.SetDeadline(time.Now().Add(8*time.Second)))
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(p.c)
		got <- b
	}()
	upload(c.seq - begin + 100*size)
	c.segment("", func(s *layers.TCP) { s.FIN = true })
	b := <-got
	if len(b) != int(c.seq-begin) {
		t.Fatalf("the host got %d bytes of %d; counters:%s", len(b), c.seq-begin, d.nonzero())
	}
	for off := 0; off < len(b); off += size {
		if string(b[off:off+size]) != string(pattern(off, size)) {
			t.Fatalf("the host got something else at %d", off)
		}
	}
	if n := d.counters(); n["tcp_buffer_bytes"] != 0 || n["tcp_drop_in-window"] != 0 {
		t.Errorf("%d bytes staged in the end, %d dropped", n["tcp_buffer_bytes"], n["tcp_drop_in-window"])
	}
	g.leave()
	d.healthy()
}
