package hostile

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"
)

// Where connections meet limits, and silence.
var tcpLimitRows = []row{
	{"T1", both(synFlood)},
	{"T2", both(blackHoled)},
	{"T3", both(inboundFlood)},
	{"T4", both(unansweredSYN)},
}

// blackHole is a listener whose queue is full: the kernel drops what comes to it
// without a word, as a dead host does.
func blackHole(t *testing.T, f *family) netip.AddrPort {
	t.Helper()
	domain, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if f.v6 {
		domain, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, at))
	must(t, unix.Listen(fd, 0)) // a queue of one
	name, err := unix.Getsockname(fd)
	must(t, err)
	hole := netip.AddrPortFrom(f.loopback, uint16(portOf(name)))
	c, err := net.Dial("tcp", hole.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return hole
}

func portOf(a unix.Sockaddr) int {
	if a6, ok := a.(*unix.SockaddrInet6); ok {
		return a6.Port
	}
	return a.(*unix.SockaddrInet4).Port
}

// somewhere is one of many addresses out there (RFC 2544, RFC 5180).
func (f *family) somewhere(i int) net.IP {
	if f.v6 {
		return net.IP{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(i >> 8), byte(i)}
	}
	return net.IP{198, 18, byte(i >> 8), byte(i)}
}

// synFlood sends SYNs from everywhere to everywhere, to targets that never
// answer. Every limit holds, what is established goes on, a good connection still
// gets through because what is half open gives way to it, and the other guest
// notices nothing.
func synFlood(t *testing.T, f *family) {
	for _, tt := range []struct {
		name     string
		maxFlows int
		limit    uint64 // of flows
		refused  string
	}{
		{"half-open", 0, 2048 + 1, "tcp_drop_syn-limit"},
		{"flows", 2048, 2048, "tcp_drop_flow-limit"},
	} {
		if f.v6 && tt.maxFlows != 0 {
			continue // one table for both
		}
		t.Run(tt.name, func(t *testing.T) {
			other := start(t, nil).guest()
			d := startOn(t, func(o *configOptions) { o.MaxFlows = tt.maxFlows }, leads(blackHole(t, f)))
			d.clock.slow()
			srv := listenOn(t, f)
			g := d.guest()
			c := g.connect(srv, 40000)
			p := srv.accept()
			fds, sent := descriptors(t), 0
			flood := func(n int) {
				for range n {
					g.send(tcp(t, f.somewhere(sent), uint16(1024+sent%30000), uint16(1+sent), nil, syn))
					if sent++; sent%50 == 0 { // the device rests now and then
						d.clock.ahead.Add(int64(200 * time.Microsecond))
					}
				}
			}
			flood(12_000)
			d.counts("tcp_segments_in", uint64(sent)+2)
			n := d.counters()
			if n["tcp_drop_syn-rate"] == 0 || n[tt.refused]+n["tcp_drop_syn-rate"]+tt.limit != uint64(sent)+1 {
				t.Errorf("of %d SYNs %d are above the rate, %d above the limit", sent+1, n["tcp_drop_syn-rate"], n[tt.refused])
			}
			if n["flows"] != tt.limit || n["tcp_buffer_bytes"] != 0 {
				t.Errorf("%d flows, want %d; %d bytes of buffers", n["flows"], tt.limit, n["tcp_buffer_bytes"])
			}
			if now := descriptors(t); now-fds > int(tt.limit) {
				t.Errorf("%d descriptors for %d flows", now-fds, tt.limit)
			}
			other.ping()
			c.alive(p)

			// It goes on at the full rate. A client that repeats its SYN after 1 and
			// after 3 seconds, as all do, is served.
			through := false
			for step := 0; step < 310 && !through; step++ {
				d.clock.ahead.Add(int64(10 * time.Millisecond))
				flood(50)
				if step%100 == 0 {
					g.send(tcp(t, f.gateway, 40001, srv.port(), nil, syn))
				}
				flood(50)
				for _, fr := range g.receive() {
					s := segment(fr, 40001)
					through = through || s != nil && s.SYN && s.ACK
				}
			}
			if !through {
				t.Errorf("no way through the flood;%s", d.nonzero())
			}
			srv.accept()
			g.send(tcp(t, f.gateway, 40001, srv.port(), nil, func(s *layers.TCP) { s.RST, s.Seq = true, 1001 }))
			n = d.counters()
			if n["tcp_evicted"] == 0 || n["flows"] > tt.limit+1 || descriptors(t)-fds > int(tt.limit)+2 {
				t.Errorf("%d evicted, %d flows, %d descriptors more", n["tcp_evicted"], n["flows"], descriptors(t)-fds)
			}
			c.alive(p)
			d.pass(62*time.Second, time.Second)
			d.eventually("the half-open to go", func() bool { return d.counters()["tcp_half_open"] == 0 })
			c.alive(p)
			g.leave()
			d.healthy()
		})
	}
}

// blackHoled: a target that never answers holds its place for a minute, and the
// guest hears nothing: its own timer decides.
func blackHoled(t *testing.T, f *family) {
	d := startOn(t, nil, leads(blackHole(t, f)))
	g := d.guest()
	g.send(tcp(t, f.world, 4001, 80, nil, syn))
	d.counts("tcp_half_open", 1)
	fds := descriptors(t)
	d.pass(59*time.Second, time.Second)
	if n := d.counters()["tcp_half_open"]; n != 1 {
		t.Errorf("after 59 s %d half open, want 1", n)
	}
	d.pass(2*time.Second, time.Second)
	if n := d.counters(); n["flows"] != 0 || descriptors(t) != fds-1 {
		t.Errorf("after 61 s %d flows, %d descriptors of %d", n["flows"], descriptors(t), fds)
	}
	g.silence("a word about a black hole", func(fr []byte) bool { return segment(fr, 4001) != nil || isUnreachable(fr) })
	g.leave()
	d.healthy()
}

// forward7000 is a worker that leads a port of the host's loopback to port 7000 of
// the guest.
func forward7000(t *testing.T, f *family, change func(*configOptions)) (d *daemon, at netip.AddrPort) {
	t.Helper()
	d = start(t, func(o *configOptions) {
		o.TCPPorts = []string{f.loopback.String() + "/0:7000"}
		if change != nil {
			change(o)
		}
	})
	ports := d.forwards()
	if len(ports) != 1 {
		t.Fatalf("ports %v", ports)
	}
	return d, netip.AddrPortFrom(f.loopback, ports[0])
}

// knock begins a connection without waiting for anybody to accept it.
func knock(t *testing.T, to netip.AddrPort) *peer {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(8*time.Second)))
	return &peer{t, c.(*net.TCPConn)}
}

// answer is the guest's half of a connection that came by a forward, as its
// server does.
func (g *guest) answer(f *family) *conn {
	g.t.Helper()
	s := g.awaitSegment("a SYN", 7000, func(s *layers.TCP) bool { return s.SYN && !s.ACK })
	c := &conn{g: g, to: f.gateway, sport: 7000, dport: uint16(s.SrcPort), seq: 5000, ack: s.Seq + 1}
	c.segment("", func(s *layers.TCP) { s.SYN = true })
	c.seq++
	return c
}

// inboundFlood: connections to a forward are accepted while there is room for
// their flows and descriptors for their sockets. Beyond, the listener rests; who
// has waited for long is reset, and when there is room again all goes on.
func inboundFlood(t *testing.T, f *family) {
	t.Run("flows", func(t *testing.T) {
		d, at := forward7000(t, f, func(o *configOptions) { o.MaxFlows = 64 })
		g := d.guest()
		var clients []*peer
		for range 80 {
			clients = append(clients, knock(t, at))
		}
		d.counts("forward_pauses", 1)
		if n := d.counters(); n["flows"] != 64 || n["forward_accepted"] != 64 {
			t.Errorf("%d flows, %d accepted; want 64", n["flows"], n["forward_accepted"])
		}
		d.resting()
		d.pass(2*time.Second, 100*time.Millisecond)
		for _, p := range clients[64:] {
			p.wantReset()
		}
		d.pass(3*time.Minute, time.Second) // the guest answers none
		for _, p := range clients[:64] {
			p.wantReset()
		}
		g.receive()
		p := knock(t, at)
		g.answer(f).alive(p)
		g.leave()
		d.healthy()
	})
	t.Run("descriptors", func(t *testing.T) {
		d, at := forward7000(t, f, nil)
		g := d.guest()
		g.ping()
		var clients []int
		for range 3 {
			clients = append(clients, rawClient(t, f))
		}
		var old unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
		hogs := exhaust(t)
		for _, fd := range clients {
			must(t, unix.Connect(fd, sockaddr(at)))
		}
		d.counts("forward_pauses", 1)
		d.resting()
		d.pass(2*time.Second, 100*time.Millisecond)
		d.counts("host_refused", 3) // with the descriptor that was kept back for it
		for _, fd := range hogs {
			unix.Close(fd)
		}
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
		for _, fd := range clients {
			if _, err := unix.Read(fd, make([]byte, 1)); err != unix.ECONNRESET {
				t.Errorf("a client without room got %v, want a reset", err)
			}
		}
		d.pass(time.Second, 100*time.Millisecond)
		p := knock(t, at)
		g.answer(f).alive(p)
		g.leave()
		d.healthy()
	})
}

// resting checks that the loop does not run in circles.
func (d *daemon) resting() {
	d.t.Helper()
	before := d.counters()["loop_turns"]
	time.Sleep(50 * time.Millisecond)
	if n := d.counters()["loop_turns"] - before; n > 50 {
		d.t.Errorf("%d turns in 50 ms of rest", n)
	}
}

// rawClient is a TCP socket that is not connected yet.
func rawClient(t *testing.T, f *family) int {
	t.Helper()
	domain := unix.AF_INET
	if f.v6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// unansweredSYN: ours is repeated with back-off (RFC 6298), then the client is
// told.
func unansweredSYN(t *testing.T, f *family) {
	d, at := forward7000(t, f, nil)
	g := d.guest()
	p := knock(t, at)
	isSYN := func(s *layers.TCP) bool { return s.SYN && !s.ACK }
	first := g.awaitSegment("our SYN", 7000, isSYN)
	var seconds []int
	for now := 1; now <= 130; now++ {
		d.pass(1002*time.Millisecond, time.Minute) // timers are rounded up to the next millisecond
		for _, fr := range g.receive() {
			if s := segment(fr, 7000); s != nil && isSYN(s) && s.Seq == first.Seq {
				seconds = append(seconds, now)
			}
		}
	}
	if want := []int{1, 3, 7, 15, 31, 63}; !slices.Equal(seconds, want) {
		t.Errorf("repeated after %v s, want %v", seconds, want)
	}
	p.wantReset()
	if n := d.counters()["flows"]; n != 0 {
		t.Errorf("%d flows", n)
	}
	g.leave()
	d.healthy()
}
