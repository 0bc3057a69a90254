package hostile

import (
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
)

var tcpRows = []row{
	{"T1", synFlood},
	{"T9", resets},
	{"T10", synOnEstablished},
	{"T11", ackOfTheFuture},
	{"T13", overlappingSegments},
	{"T14", outOfOrderFlood},
	{"T15", urgent},
	{"T16", simultaneousOpen},
	{"T17", strangeFlags},
	{"T18", dataOnSYN},
	{"T19", badOffsets},
	{"T20", strangeMSS},
	{"T22", dataAfterFIN},
	{"T24", hostResets},
	{"T26", noAddresses},
	{"T27", forbiddenDestinations},
}

func syn(s *layers.TCP) { s.SYN, s.Seq = true, 1000 }

// synFlood sends SYNs from everywhere to everywhere. What is over the limits is
// refused and counted, a connection that is there goes on, and so does the other
// guest.
func synFlood(t *testing.T) {
	other := start(t, nil).guest()
	d := start(t, func(o *configOptions) { o.MaxFlows = 256 })
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 40000)
	p := srv.accept()
	for i := range 3000 {
		g.send(tcp(t, net.IP{198, 18, byte(i >> 8), byte(i)}, uint16(1024+i), uint16(1+i), nil, syn))
		if i%500 == 0 {
			g.receive()
		}
	}
	d.counts("net_tx_frames", 3000)
	n := d.counters()
	if n["flows"] > 256 {
		t.Errorf("%d flows, at most 256 were allowed", n["flows"])
	}
	if n["tcp_drop_syn-limit"]+n["tcp_drop_flow-limit"]+n["tcp_drop_syn-rate"]+n["tcp_evicted"]+n["tcp_connect_errors"] == 0 {
		t.Errorf("nothing was refused: %v", n)
	}
	other.ping()
	c.alive(p)
	g.leave()
	d.healthy()
}

// resets: exact ends the connection, in the window asks for proof, outside does
// nothing (RFC 5961, 3.2).
func resets(t *testing.T) {
	d, g, c, p := established(t)
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
	c.alive(p)
	c.segment("", func(s *layers.TCP) { s.RST, s.ACK = true, false })
	p.wantReset()
	g.leave()
	d.healthy()
}

func synOnEstablished(t *testing.T) {
	d, g, c, p := established(t)
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
func ackOfTheFuture(t *testing.T) {
	d, g, c, p := established(t)
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
func overlappingSegments(t *testing.T) {
	d, g, c, p := established(t)
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

func outOfOrderFlood(t *testing.T) {
	d, g, c, p := established(t)
	at := c.seq
	for i := range uint32(2000) {
		c.segment("x", func(s *layers.TCP) { s.Seq = at + 2 + i*20%60000 })
		if i%50 == 0 {
			g.receive()
		}
	}
	c.seq = at
	c.send("ab")
	p.want("ab")
	g.ping()
	g.leave()
	d.healthy()
}

// urgent: the pointer says anything, the bytes stay where they are.
func urgent(t *testing.T) {
	d, g, c, p := established(t)
	for _, u := range []uint16{0, 1, 3, 65535} {
		c.segment("urgent", func(s *layers.TCP) { s.URG, s.PSH, s.Urgent = true, true, u })
		c.seq += 6
		p.want("urgent")
	}
	g.leave()
	d.healthy()
}

// simultaneousOpen: a SYN of the guest meets ours on the same pair of addresses.
// Neither half survives, nothing leaks.
func simultaneousOpen(t *testing.T) {
	d := start(t, func(o *configOptions) { o.TCPPorts = []string{"127.0.0.1/0:7000"} })
	g := d.guest()
	g.ping()
	var port uint16
	for _, b := range d.forwards() {
		port = b
	}
	host, err := net.Dial("tcp4", (&net.TCPAddr{IP: net.IP{127, 0, 0, 1}, Port: int(port)}).String())
	must(t, err)
	defer host.Close()
	s := g.awaitSegment("our SYN", 7000, func(s *layers.TCP) bool { return s.SYN && !s.ACK })
	g.send(tcp(t, gateway, 7000, uint16(s.SrcPort), nil, syn))
	g.awaitSegment("a reset", 7000, isRST)
	d.eventually("both halves to go", func() bool { return d.counters()["tcp_flows"] == 0 })
	g.leave()
	d.healthy()
}

func strangeFlags(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for i, flags := range []func(*layers.TCP){
		func(s *layers.TCP) { s.SYN, s.FIN = true, true },
		func(s *layers.TCP) { s.SYN, s.RST = true, true },
		func(s *layers.TCP) {},
		func(s *layers.TCP) { s.SYN, s.FIN, s.RST, s.PSH, s.ACK, s.URG = true, true, true, true, true, true },
	} {
		g.dropped("tcp_drop_flags", make([]byte, netHdr), tcp(t, world, uint16(4100+i), 80, nil, flags))
	}
	g.leave()
	d.healthy()
}

// dataOnSYN: the SYN counts, the data must be sent again.
func dataOnSYN(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	g.send(tcp(t, gateway, 4001, srv.port(), []byte("early"), syn))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	if sa.Ack != 1001 {
		t.Errorf("SYN-ACK for %d, want 1001", sa.Ack)
	}
	c := &conn{g: g, to: gateway, sport: 4001, dport: srv.port(), seq: 1001, ack: sa.Seq + 1}
	p := srv.accept()
	c.alive(p)
	g.leave()
	d.healthy()
}

// badOffsets: data offsets that lie, options without end.
func badOffsets(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for _, off := range []byte{0, 4, 15} {
		f := tcp(t, world, 4000, 80, nil, syn)
		f[34+12] = off << 4
		g.dropped("drop_l4hdr", hdr(1, 0, 0, 0, 34, 16), f)
	}
	for i, options := range [][]byte{{2, 0, 0, 0}, {2, 1, 0, 0}, {3, 200, 0, 0}, {8}, {5, 255, 1, 2}, make([]byte, 40), {1, 1, 1, 1, 1, 1, 1, 2}} {
		o := append(options, make([]byte, (4-len(options)%4)%4)...)
		f := tcp(t, world, uint16(4200+i), 80, o, syn) // options in the place of data: the offset says which
		f[34+12] = byte(5+len(o)/4) << 4
		g.sendHdr(hdr(1, 0, 0, 0, 34, 16), f)
	}
	g.ping()
	g.leave()
	d.healthy()
}

func strangeMSS(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	for i, mss := range []uint16{0, 1, 65535} {
		sport := uint16(4001 + i)
		g.send(tcp(t, gateway, sport, srv.port(), nil, func(s *layers.TCP) {
			syn(s)
			s.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{byte(mss >> 8), byte(mss)}}}
		}))
		sa := g.awaitSegment("a SYN-ACK", sport, func(s *layers.TCP) bool { return s.SYN && s.ACK })
		c := &conn{g: g, to: gateway, sport: sport, dport: srv.port(), seq: 1001, ack: sa.Seq + 1}
		c.segment("", func(*layers.TCP) {})
		p := srv.accept()
		if _, err := p.c.Write(make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
		s := g.awaitSegment("data", sport, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
		if n := len(s.Payload); n < 256 || n > 1460 {
			t.Errorf("MSS %d: a segment of %d bytes, want 256 to 1460", mss, n)
		}
	}
	g.leave()
	d.healthy()
}

func dataAfterFIN(t *testing.T) {
	d, g, c, p := established(t)
	c.send("last")
	c.segment("", func(s *layers.TCP) { s.FIN = true })
	c.seq++
	c.segment("more?", func(*layers.TCP) {})
	p.want("last")
	if n, err := p.c.Read(make([]byte, 8)); n != 0 || err == nil {
		t.Errorf("the host read %d bytes behind the end, %v", n, err)
	}
	g.leave()
	d.healthy()
}

// hostResets: the guest gets one RST, and the flow is gone.
func hostResets(t *testing.T) {
	d, g, c, p := established(t)
	must(t, p.c.SetLinger(0))
	p.c.Close()
	if s := g.awaitSegment("a reset", 4001, isRST); s.Seq != c.ack {
		t.Errorf("RST at %d, want %d", s.Seq, c.ack)
	}
	g.silence("a second reset", func(f []byte) bool { return segment(f, 4001) != nil })
	d.eventually("the flow to go", func() bool { return d.counters()["tcp_flows"] == 0 })
	g.leave()
	d.healthy()
}

// noAddresses: port 0 and sources that no guest has, before they can be hashed.
func noAddresses(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	plain := make([]byte, netHdr)
	g.dropped("tcp_drop_addr", plain, tcp(t, world, 0, 80, nil, syn))
	g.dropped("tcp_drop_addr", plain, tcp(t, world, 4000, 0, nil, syn))
	for _, src := range []net.IP{{255, 255, 255, 255}, {224, 0, 0, 1}, {0, 0, 0, 0}, {127, 0, 0, 1}, {192, 0, 2, 1}, gateway} {
		g.dropped("drop_addr-source", plain, tcpFrom(t, src, world, 4000, 80, nil, syn))
	}
	g.leave()
	d.healthy()
}

// forbiddenDestinations are refused by RST: the guest's connect fails at once.
func forbiddenDestinations(t *testing.T) {
	d := start(t, func(o *configOptions) { o.MapHostLoopback = nil })
	g := d.guest()
	g.dropped("tcp_drop_addr", make([]byte, netHdr), tcp(t, net.IP{127, 0, 0, 1}, 4299, 80, nil, syn)) // no host sends that
	for i, dst := range []net.IP{gateway, {169, 254, 169, 254}, {10, 0, 2, 3}} {
		sport := uint16(4300 + i)
		g.send(tcp(t, dst, sport, 80, nil, syn))
		if s := g.awaitSegment("a reset from "+dst.String(), sport, isRST); s.Ack != 1001 {
			t.Errorf("%v: RST acknowledges %d, want 1001", dst, s.Ack)
		}
	}
	if n := d.counters()["flows"]; n != 0 {
		t.Errorf("%d flows", n)
	}
	time.Sleep(time.Millisecond)
	g.leave()
	d.healthy()
}
