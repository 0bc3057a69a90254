package hostile

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"
)

var systemRows = []row{
	{"S1", noDescriptors},
	{"S2", reusedDescriptors},
	{"S6", faultInDevice},
}

// noDescriptors takes all descriptors away. New flows are refused, the one that
// is there goes on, and when there are descriptors again so do new flows.
func noDescriptors(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 4001)
	p := srv.accept()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	hogs := exhaust(t)
	g.send(tcp(t, gateway, 4002, srv.port(), nil, syn))
	g.send(udp(t, guestIP, world, 53, []byte("no socket for this")))
	c.alive(p)
	g.ping()
	for _, fd := range hogs {
		unix.Close(fd)
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	c2 := g.connect(srv, 4003)
	p2 := srv.accept()
	if p2.c.RemoteAddr() == nil {
		t.Error("no peer")
	}
	_ = c2
	g.leave()
	d.healthy()
}

// exhaust opens descriptors until there are no more, under a low limit.
func exhaust(t *testing.T) (fds []int) {
	t.Helper()
	low := unix.Rlimit{Cur: uint64(descriptors(t)) + 60, Max: 0}
	var now unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &now))
	low.Max = now.Max
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	for {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return fds
		}
		fds = append(fds, fd)
	}
}

// reusedDescriptors opens and resets flows so fast that descriptor numbers come
// back within one batch of events: no event may reach the wrong flow.
func reusedDescriptors(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 4001)
	p := srv.accept()
	go func() {
		for {
			x, err := srv.l.AcceptTCP()
			if err != nil {
				return
			}
			_ = x.SetLinger(0)
			x.Close()
		}
	}()
	for i := range 300 {
		sport := uint16(10000 + i)
		g.send(tcp(t, gateway, sport, srv.port(), nil, syn))
		g.send(tcp(t, gateway, sport, srv.port(), nil, func(s *layers.TCP) { s.RST, s.Seq = true, 1001 }))
		if i%20 == 0 {
			g.receive()
		}
	}
	c.alive(p)
	d.eventually("the short flows to go", func() bool { return d.counters()["tcp_flows"] <= 1 })
	if n := d.counters()["loop_panics"]; n != 0 {
		t.Errorf("%d panics", n)
	}
	g.leave()
	d.healthy()
}

// faultInDevice takes guest memory away under the running device, memory that
// cannot be sealed against it: the fault is recovered at the loop's boundary and
// breaks that device alone. The worker goes on and takes the next frontend.
func faultInDevice(t *testing.T) {
	other := start(t, nil).guest()
	d := start(t, nil)
	d.unsealable = true
	g := d.guest()
	g.ping()
	must(t, unix.Ftruncate(g.mem.FD, 0)) // from here on this test must not touch the memory either
	signal(g.tx.Kick.FD)
	g.broken(1)
	if n := d.counters()["loop_panics"]; n != 1 {
		t.Errorf("%d faults recovered, want 1", n)
	}
	other.ping()
	g.leave()
	next := d.frontend(features)
	next.leave()
}
