package hostile

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// overseer watches what a worker does with descriptor numbers: when they come
// back, whether an event reaches one that is closed, how many are closed in one
// turn. It can hold the loop in Accept.
type overseer struct {
	hostsock.Host
	clock func() int64 // reads: the same within a turn

	mu      sync.Mutex
	closed  map[hostsock.FD]int64 // when
	watched map[hostsock.FD]*proxy
	reused  int           // numbers that came back in the turn in which they were closed
	astray  int           // events for a socket that was closed
	ends    map[int64]int // closes by turn
	held    chan struct{} // closed when the loop is held; nil: no hold
	release chan struct{}
}

// proxy stands between the loop and a source.
type proxy struct {
	eventloop.Source
	o    *overseer
	dead bool
}

func (p *proxy) Ready(cookie uint32, ev eventloop.Events) {
	p.o.mu.Lock()
	if p.dead {
		p.o.astray++
	}
	p.o.mu.Unlock()
	p.Source.Ready(cookie, ev)
}

// oversee starts a worker with an overseer.
func oversee(t *testing.T, change func(*configOptions)) (*daemon, *overseer) {
	t.Helper()
	o := &overseer{closed: map[hostsock.FD]int64{}, watched: map[hostsock.FD]*proxy{}, ends: map[int64]int{}}
	o.clock = func() int64 { return 0 }
	d := startOn(t, change, func(h hostsock.Host) hostsock.Host { o.Host = h; return o })
	o.mu.Lock()
	o.clock = d.clock.reads.Load
	o.mu.Unlock()
	return d, o
}

func (o *overseer) Close(fd hostsock.FD, abort bool) {
	o.mu.Lock()
	now := o.clock()
	o.closed[fd] = now
	o.ends[now]++
	if p := o.watched[fd]; p != nil {
		p.dead = true
		delete(o.watched, fd)
	}
	o.mu.Unlock()
	o.Host.Close(fd, abort)
}

func (o *overseer) Dial(p hostsock.Proto, to netip.AddrPort, opt *hostsock.Options) (hostsock.FD, syscall.Errno) {
	fd, e := o.Host.Dial(p, to, opt)
	o.mu.Lock()
	if at, ok := o.closed[fd]; ok && e == 0 && at == o.clock() {
		o.reused++
	}
	o.mu.Unlock()
	return fd, e
}

func (o *overseer) Watch(fd hostsock.FD, ev eventloop.Events, s eventloop.Source, cookie uint32) syscall.Errno {
	p := &proxy{Source: s, o: o}
	o.mu.Lock()
	o.watched[fd] = p
	o.mu.Unlock()
	return o.Host.Watch(fd, ev, p, cookie)
}

func (o *overseer) Accept(l hostsock.FD) (hostsock.FD, netip.AddrPort, netip.AddrPort, syscall.Errno) {
	o.mu.Lock()
	held, release := o.held, o.release
	o.held = nil
	o.mu.Unlock()
	if held != nil {
		close(held)
		<-release
	}
	return o.Host.Accept(l)
}

// hold has the loop stop in the next Accept. Call the result to let it go on.
func (o *overseer) hold() (held chan struct{}, release func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held, o.release = make(chan struct{}), make(chan struct{})
	r := o.release
	return o.held, func() { close(r) }
}

// reusedDescriptors has one batch of events hold, in this order, a kick of the
// guest's, which ends flows and begins as many, and the ends of the first by the
// host. The new flows get the numbers of the old ones; the events that were
// fetched for those must not reach them.
func reusedDescriptors(t *testing.T) {
	const n = 20
	d, o := oversee(t, func(c *configOptions) { c.TCPPorts = []string{"127.0.0.1/0:7000"} })
	srv := listen(t)
	g := d.guest()
	var old []*conn
	var peers []*peer
	for i := range n {
		old = append(old, g.connect(srv, uint16(4001+i)))
		peers = append(peers, srv.accept())
	}
	d.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
	g.receive()
	stale := d.counters()["loop_stale_events"]

	held, release := o.hold()
	knock, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", d.forwards()[0]), time.Second)
	must(t, err)
	defer knock.Close()
	<-held
	for _, c := range old {
		c.segment("", func(s *layers.TCP) { s.RST = true })
	}
	for i := range n {
		g.send(tcp(t, gateway, uint16(5001+i), srv.port(), nil, syn))
	}
	signal(g.tx.Kick.FD) // first in the batch
	for _, p := range peers {
		_, err := p.c.Write([]byte("for the one who is gone"))
		must(t, err)
		_ = p.c.SetLinger(0)
		p.c.Close()
	}
	release()

	fresh := map[uint16]*conn{}
	g.await("SYN-ACKs for all new connections", func(f []byte) bool {
		for i := range n {
			port := uint16(5001 + i)
			s := segment(f, port)
			switch {
			case s == nil:
			case s.SYN && s.ACK:
				fresh[port] = &conn{g: g, to: gateway, sport: port, dport: srv.port(), seq: 1001, ack: s.Seq + 1}
			case s.RST || len(s.Payload) > 0:
				t.Errorf("port %d got what was meant for another: %v", port, s)
			}
		}
		return len(fresh) == n
	})
	for port, c := range fresh {
		c.send(fmt.Sprint("new ", port))
	}
	seen := map[string]bool{}
	for range n {
		b := make([]byte, len("new 5001"))
		if _, err := io.ReadFull(srv.accept().c, b); err != nil {
			t.Fatal(err)
		}
		seen[string(b)] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d new connections carry their own data: %v", len(seen), n, seen)
	}
	if now := d.counters()["loop_stale_events"]; now == stale {
		t.Error("no event was dropped as stale")
	}
	o.mu.Lock()
	if o.reused == 0 {
		t.Error("no number has come back within a turn: the row tests nothing")
	}
	if o.astray != 0 {
		t.Errorf("%d events have reached a socket that was closed", o.astray)
	}
	o.mu.Unlock()
	g.leave()
	d.healthy()
}

// clockJumps: an hour passes in an instant. Idle flows end, but not all in one
// turn; what may be idle for longer lives, and the guest is served.
func clockJumps(t *testing.T) {
	const flows, atOnce = 1300, 512 // timers in a turn (eventloop)
	d, o := oversee(t, nil)
	srv := listen(t)
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IP{127, 0, 0, 1}})
	must(t, err)
	defer sink.Close()
	port := uint16(sink.LocalAddr().(*net.UDPAddr).Port)
	g := d.guest()
	c := g.connect(srv, 4001)
	p := srv.accept()
	c.alive(p)
	for i := range flows {
		g.send(udpFrom(t, guestIP, uint16(10000+i), gateway, port, []byte("tick")))
	}
	d.counts("udp_flows", flows)
	o.mu.Lock()
	clear(o.ends)
	o.mu.Unlock()
	d.clock.ahead.Add(int64(time.Hour))
	d.eventually("the idle flows to end", func() bool { return d.counters()["flows"] == 1 })
	o.mu.Lock()
	most, sum := 0, 0
	for _, n := range o.ends {
		most, sum = max(most, n), sum+n
	}
	o.mu.Unlock()
	if sum < flows || most > atOnce {
		t.Errorf("%d sockets closed, %d of them in one turn; want %d and at most %d", sum, most, flows, atOnce)
	}
	c.alive(p)
	g.ping()
	g.leave()
	d.healthy()
}
