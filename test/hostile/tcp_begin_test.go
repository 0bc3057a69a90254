package hostile

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
)

// How connections begin, or do not.
var tcpBeginRows = []row{
	{"T8", both(hugeScale)},
	{"T16", both(simultaneousOpen)},
	{"T17", both(strangeFlags)},
	{"T18", both(dataOnSYN)},
	{"T19", both(badOffsets)},
	{"T20", both(strangeMSS)},
	{"T21", both(unofferedOptions)},
	{"T26", both(noAddresses)},
	{"T27", both(forbiddenDestinations)},
	{"T28", both(connectErrors)},
	{"T29", both(portsUsedAgain)},
	{"T30", both(predictable)},
}

func syn(s *layers.TCP) { s.SYN, s.Seq = true, 1000 }

// hugeScale: a window scale above 14 counts as 14 (RFC 7323, 2.3), and none counts
// unless both sides have it.
func hugeScale(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	for i, scale := range []byte{15, 16, 255} {
		sport := uint16(4001 + i)
		c := g.connectWith(srv, sport, []layers.TCPOption{
			{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{scale}}})
		p := srv.accept()
		c.segment("", func(s *layers.TCP) { s.Window = 1 }) // 16 KiB
		_, err := p.c.Write(make([]byte, 40_000))
		must(t, err)
		n := 0
		d.eventually("16 KiB to come", func() bool {
			for _, fr := range g.receive() {
				if s := segment(fr, sport); s != nil {
					n = max(n, int(s.Seq-c.ack)+len(s.Payload))
				}
			}
			return n > 1<<14-536
		})
		g.silence("more than the window", func(fr []byte) bool {
			s := segment(fr, sport)
			return s != nil && len(s.Payload) > 0 && int(s.Seq-c.ack)+len(s.Payload) > 1<<14
		})
		if n > 1<<14 {
			t.Errorf("scale %d: %d bytes in a window of 1<<14", scale, n)
		}
		c.segment("", func(s *layers.TCP) { s.RST, s.ACK = true, false })
		p.wantReset()
	}
	g.leave()
	d.healthy()
}

// connectWith opens a connection whose SYN has options.
func (g *guest) connectWith(s *server, sport uint16, options []layers.TCPOption) *conn {
	g.t.Helper()
	g.send(tcp(g.t, s.f.gateway, sport, s.port(), nil, func(s *layers.TCP) {
		syn(s)
		s.Options = options
	}))
	sa := g.awaitSegment("a SYN-ACK", sport, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	c := &conn{g: g, to: s.f.gateway, sport: sport, dport: s.port(), seq: 1001, ack: sa.Seq + 1}
	c.segment("", func(*layers.TCP) {})
	return c
}

// simultaneousOpen: a SYN of the guest meets ours on the same pair of addresses.
// Neither half survives, nothing leaks.
func simultaneousOpen(t *testing.T, f *family) {
	d, at := forward7000(t, f, nil)
	g := d.guest()
	g.ping()
	p := knock(t, at)
	s := g.awaitSegment("our SYN", 7000, func(s *layers.TCP) bool { return s.SYN && !s.ACK })
	g.send(tcp(t, f.gateway, 7000, uint16(s.SrcPort), nil, syn))
	g.awaitSegment("a reset", 7000, isRST)
	p.wantReset()
	d.eventually("both halves to go", func() bool { return d.counters()["tcp_flows"] == 0 })
	g.leave()
	d.healthy()
}

func strangeFlags(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	for i, flags := range []func(*layers.TCP){
		func(s *layers.TCP) { s.SYN, s.FIN = true, true },
		func(s *layers.TCP) { s.SYN, s.RST = true, true },
		func(s *layers.TCP) {},
		func(s *layers.TCP) { s.SYN, s.FIN, s.RST, s.PSH, s.ACK, s.URG = true, true, true, true, true, true },
	} {
		g.dropped("tcp_drop_flags", make([]byte, netHdr), tcp(t, f.world, uint16(4100+i), 80, nil, flags))
	}
	g.silence("an answer to nonsense", func(fr []byte) bool { return segment(fr, 4100) != nil })
	g.leave()
	d.healthy()
}

// dataOnSYN: the SYN counts, the data must be sent again.
func dataOnSYN(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	g.send(tcp(t, f.gateway, 4001, srv.port(), []byte("early"), syn))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	if sa.Ack != 1001 {
		t.Errorf("SYN-ACK for %d, want 1001", sa.Ack)
	}
	c := &conn{g: g, to: f.gateway, sport: 4001, dport: srv.port(), seq: 1001, ack: sa.Seq + 1}
	c.alive(srv.accept())
	g.leave()
	d.healthy()
}

// badOffsets: data offsets that lie are dropped, options that lie are, and what
// is only odd is taken.
func badOffsets(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	l4 := 14 + f.ipHeader
	vouched := hdr(1, 0, 0, 0, uint16(l4), 16) // the checksum is the device's to complete
	for _, off := range []byte{0, 4, 6, 15} {
		fr := tcp(t, f.gateway, 4000, srv.port(), nil, syn)
		fr[l4+12] = off << 4
		g.dropped("drop_l4hdr", vouched, fr)
	}
	nops := slices.Repeat([]byte{1}, 40)
	for i, tt := range []struct {
		name    string
		options []byte
		bad     bool
	}{
		{"MSS of length 0", []byte{2, 0, 0, 0}, true},
		{"MSS of length 1", []byte{2, 1, 0, 0}, true},
		{"beyond the end", []byte{3, 200, 0, 0}, true},
		{"beyond the end by one", []byte{3, 5, 0, 0}, true},
		{"timestamps without a length", []byte{1, 1, 1, 8}, true},
		{"SACK without end", []byte{5, 255, 1, 2}, true},
		{"cut off behind NOPs", []byte{1, 1, 1, 1, 1, 1, 1, 2}, true},
		{"lie behind 39 NOPs", append(nops[:39:39], 2), true},
		{"40 NOPs", nops, false},
		{"40 ends", make([]byte, 40), false},
		{"lie behind the end", []byte{0, 2, 0, 0}, false},
		{"MSS of length 2", []byte{2, 2, 1, 1}, false},
		{"unknown", []byte{77, 4, 1, 2}, false},
	} {
		sport := uint16(4200 + i)
		fr := tcp(t, f.gateway, sport, srv.port(), tt.options, syn) // options in the place of data: the offset says which
		fr[l4+12] = byte(5+len(tt.options)/4) << 4
		if tt.bad {
			g.dropped("drop_l4hdr", vouched, fr)
			continue
		}
		g.sendHdr(vouched, fr)
		if sa := g.awaitSegment(tt.name, sport, func(s *layers.TCP) bool { return s.SYN && s.ACK }); sa.Ack != 1001 {
			t.Errorf("%s: SYN-ACK for %d", tt.name, sa.Ack)
		}
	}
	g.leave()
	d.healthy()
}

func strangeMSS(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	for i, mss := range []uint16{0, 1, 65535} {
		sport := uint16(4001 + i)
		g.connectWith(srv, sport, []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{byte(mss >> 8), byte(mss)}}})
		p := srv.accept()
		_, err := p.c.Write(make([]byte, 4000))
		must(t, err)
		s := g.awaitSegment("data", sport, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
		if n, most := len(s.Payload), 1500-f.ipHeader-20; n < 256 || n > most {
			t.Errorf("MSS %d: a segment of %d bytes, want 256 to %d", mss, n, most)
		}
	}
	g.leave()
	d.healthy()
}

// unofferedOptions: a SYN without options gets a SYN-ACK without those that both
// must offer (RFC 7323, 1.3; RFC 2018, 2).
func unofferedOptions(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	g.send(tcp(t, f.gateway, 4001, srv.port(), nil, syn))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	for _, o := range sa.Options {
		switch o.OptionType {
		case layers.TCPOptionKindWindowScale, layers.TCPOptionKindSACKPermitted, layers.TCPOptionKindTimestamps:
			t.Errorf("the SYN-ACK has %v, which the SYN had not", o)
		}
	}
	g.leave()
	d.healthy()
}

// noAddresses: port 0 and sources that no guest has, before they can be hashed.
func noAddresses(t *testing.T, f *family) {
	d := start(t, nil)
	g := d.guest()
	plain := make([]byte, netHdr)
	g.dropped("tcp_drop_addr", plain, tcp(t, f.world, 0, 80, nil, syn))
	g.dropped("tcp_drop_addr", plain, tcp(t, f.world, 4000, 0, nil, syn))
	sources := []net.IP{{255, 255, 255, 255}, {224, 0, 0, 1}, {0, 0, 0, 0}, {127, 0, 0, 1}, {192, 0, 2, 1}, f.gateway}
	if f.v6 {
		sources = []net.IP{net.ParseIP("ff02::1"), net.IPv6unspecified, net.IPv6loopback, net.ParseIP("2001:db8::9"), f.gateway, routerLL}
	}
	for _, src := range sources {
		g.dropped("drop_addr-source", plain, tcpFrom(t, src, f.world, 4000, 80, nil, syn))
	}
	g.leave()
	d.healthy()
}

// forbiddenDestinations are refused by RST: the guest's connect fails at once.
func forbiddenDestinations(t *testing.T, f *family) {
	d := start(t, func(o *configOptions) { o.MapHostLoopback = nil })
	g := d.guest()
	loopback, refused := net.IP{127, 0, 0, 1}, []net.IP{f.gateway, f.resolver, {169, 254, 169, 254}, {100, 100, 100, 200}}
	if f.v6 {
		loopback, refused = net.IPv6loopback, []net.IP{f.gateway, f.resolver, routerLL, net.ParseIP("fd00:ec2::254"), net.ParseIP("fe80::77")}
	}
	g.dropped("tcp_drop_addr", make([]byte, netHdr), tcp(t, loopback, 4299, 80, nil, syn)) // no host sends that
	for i, dst := range refused {
		sport := uint16(4300 + i)
		g.send(tcp(t, dst, sport, 80, nil, syn))
		if s := g.awaitSegment("a reset from "+dst.String(), sport, isRST); s.Ack != 1001 {
			t.Errorf("%v: RST acknowledges %d, want 1001", dst, s.Ack)
		}
	}
	if f.v6 { // an IPv4 address in the dress of an IPv6 one (RFC 4291, 2.5.5.2) is no way around
		for i, dst := range []net.IP{{127, 0, 0, 1}, gateway, {169, 254, 169, 254}, {198, 51, 100, 1}} {
			fr := tcp(t, f.world, uint16(4400+i), 80, nil, syn)
			copy(fr[14+24:], dst.To16())
			g.sendHdr(hdr(1, 0, 0, 0, uint16(14+f.ipHeader), 16), fr)
			g.taken()
		}
	}
	if n := d.counters(); n["flows"] != 0 || n["host_opened"] != 0 {
		t.Errorf("%d flows, %d sockets", n["flows"], n["host_opened"])
	}
	g.leave()
	d.healthy()
}

// illness is a host that fails to connect, at once or when it is asked what
// became of it.
type illness struct {
	hostsock.Host
	now, later atomic.Int64 // syscall.Errno
	deaf       netip.AddrPort
}

// Dial implements hostsock.Host.
func (i *illness) Dial(p hostsock.Proto, to netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if e := syscall.Errno(i.now.Load()); e != 0 {
		return hostsock.None, e
	}
	if i.later.Load() != 0 {
		to = i.deaf
	}
	return i.Host.Dial(p, to, o)
}

// SocketError implements hostsock.Host.
func (i *illness) SocketError(fd hostsock.FD) syscall.Errno {
	e := i.Host.SocketError(fd)
	if later := syscall.Errno(i.later.Load()); e != 0 && later != 0 {
		return later
	}
	return e
}

// deaf is a port that nobody listens on.
func deaf(t *testing.T, f *family) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(f.loopback, 0).String())
	must(t, err)
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// connectErrors: the guest learns of a connect that failed what fits best, and may
// try again at once.
func connectErrors(t *testing.T, f *family) {
	const silence, reset = 0, 1 // else type<<8 | code of an ICMP error (RFC 792, RFC 1812, RFC 4443)
	icmp := func(v4, v6 int) int {
		if f.v6 {
			return v6
		}
		return v4
	}
	ill := &illness{deaf: deaf(t, f)}
	d := startOn(t, nil, func(h hostsock.Host) hostsock.Host { ill.Host = h; return ill })
	srv := listenOn(t, f)
	g := d.guest()
	sport := uint16(20000)
	for _, tt := range []struct {
		errno   syscall.Errno
		outcome int
	}{
		{syscall.ECONNREFUSED, reset},
		{syscall.EHOSTUNREACH, icmp(3<<8|1, 1<<8|3)},
		{syscall.ENETUNREACH, icmp(3<<8, 1<<8)},
		{syscall.EACCES, icmp(3<<8|13, 1<<8|1)},
		{syscall.EPERM, icmp(3<<8|13, 1<<8|1)},
		{syscall.ETIMEDOUT, silence},
		{syscall.EADDRNOTAVAIL, silence},
		{syscall.EMFILE, silence},
		{syscall.ENFILE, silence},
		{syscall.ENOBUFS, silence},
		{syscall.ENOMEM, silence},
	} {
		for _, when := range []*atomic.Int64{&ill.now, &ill.later} {
			name := fmt.Sprintf("%v, at once: %v", tt.errno, when == &ill.now)
			sport++
			failed := d.counters()["tcp_connect_errors"]
			when.Store(int64(tt.errno))
			g.send(tcp(t, f.gateway, sport, srv.port(), nil, syn))
			d.counts("tcp_connect_errors", failed+1)
			when.Store(0)
			switch tt.outcome {
			case silence:
			case reset:
				if s := g.awaitSegment(name, sport, isRST); s.Ack != 1001 {
					t.Errorf("%s: RST acknowledges %d", name, s.Ack)
				}
			default:
				fr := g.await(name, isUnreachable)
				typ, code, quote := icmpError(fr)
				if typ<<8|code != tt.outcome || len(quote) < 8 || quote[0] != byte(sport>>8) || quote[1] != byte(sport) {
					t.Errorf("%s: ICMP %d/%d about % x", name, typ, code, quote)
				}
			}
			// And again: this time it works, and nothing else was said about the first.
			g.send(tcp(t, f.gateway, sport, srv.port(), nil, syn))
			g.await("a connection after "+name, func(fr []byte) bool {
				s := segment(fr, sport)
				if isUnreachable(fr) || s != nil && s.RST {
					t.Errorf("%s: got % x too", name, fr)
				}
				return s != nil && s.SYN && s.ACK
			})
			srv.accept()
		}
	}
	if n := d.counters()["tcp_flows"]; n != 22 {
		t.Errorf("%d flows, want 22", n)
	}
	g.leave()
	d.healthy()
}

// portsUsedAgain: the same pair of addresses right after it was closed, by either
// side, with sequence numbers of either side that wrap at 2^32.
func portsUsedAgain(t *testing.T, f *family) {
	d := start(t, nil)
	srv := listenOn(t, f)
	g := d.guest()
	var before uint32 // our ISN of the round before
	for round := range 3 {
		isn := uint32(1<<32-100) + uint32(round)*5000 // the first one wraps soon
		g.send(tcp(t, f.gateway, 4001, srv.port(), nil, func(s *layers.TCP) { s.SYN, s.Seq = true, isn }))
		sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK && s.Ack == isn+1 })
		if round == 2 && int32(sa.Seq-before) <= 0 {
			t.Errorf("round %d: ISN %d after %d", round, sa.Seq, before)
		}
		before = sa.Seq
		c := &conn{g: g, to: f.gateway, sport: 4001, dport: srv.port(), seq: isn + 1, ack: sa.Seq + 1}
		c.segment("", func(*layers.TCP) {})
		p := srv.accept()
		for i := range 4 {
			text := string(pattern(i, 300))
			c.send(text)
			p.want(text)
		}
		down := 3000
		if round == 1 {
			if down += int(-sa.Seq); down > 4<<20 {
				t.Fatalf("our ISN %d is too far from the wrap", sa.Seq)
			}
		}
		data := pattern(round, down)
		go func() { _, _ = p.c.Write(data) }()
		if got := c.read(down); string(got) != string(data) {
			t.Errorf("round %d: the guest got something else", round)
		}
		if round == 1 && c.ack > 1<<31 {
			t.Errorf("no wrap at %d", c.ack)
		}
		c.close(p, round == 1)
		if round == 0 { // 1 s of ticks of 4 us (RFC 6528) before ours wraps
			d.pass(time.Duration(-sa.Seq-1<<18)*4*time.Microsecond, time.Hour)
		}
	}
	g.leave()
	d.healthy()
}

// close ends the connection in both directions, the host first or the guest.
func (c *conn) close(p *peer, hostFirst bool) {
	c.g.t.Helper()
	fin := func(s *layers.TCP) { s.FIN = true }
	if !hostFirst {
		c.segment("", fin)
		c.seq++
	}
	must(c.g.t, p.c.CloseWrite())
	s := c.g.awaitSegment("a FIN", c.sport, func(s *layers.TCP) bool { return s.FIN })
	c.ack = s.Seq + 1
	if hostFirst {
		c.segment("", fin)
		c.seq++
	} else {
		c.segment("", func(*layers.TCP) {})
	}
	if n, err := p.c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		c.g.t.Fatalf("the host read %d bytes, %v; want the end", n, err)
	}
}

// predictable: what one connection shows of our sequence numbers tells nothing
// about another one's, nor about those of another process.
func predictable(t *testing.T, f *family) {
	const ports = 8
	srv := listenOn(t, f)
	isns := func() (n [ports]uint32) {
		d := start(t, nil)
		g := d.guest()
		for i := range n {
			sport := uint16(4001 + i)
			g.send(tcp(t, f.gateway, sport, srv.port(), nil, syn))
			n[i] = g.awaitSegment("a SYN-ACK", sport, func(s *layers.TCP) bool { return s.SYN && s.ACK }).Seq
			srv.accept()
		}
		g.leave()
		d.healthy()
		return n
	}
	a, b := isns(), isns()
	const minute = 60 * 250_000 // of the clock in them
	near := func(x, y uint32) bool { return x-y < minute || y-x < minute }
	between, within := 0, 0
	for i := range ports {
		if near(a[i], b[i]) {
			between++
		}
		if i > 0 && near(a[i], a[i-1]) {
			within++
		}
	}
	// By chance two are near once in 143 times.
	if between > 4 || within > 4 {
		t.Errorf("of %d ISNs %d are near those of another process, %d near their neighbour", ports, between, within)
	}
}
