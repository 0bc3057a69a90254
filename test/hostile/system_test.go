package hostile

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var systemRows = []row{
	{"S1", hostFails},
	{"S2", reusedDescriptors},
	{"S3", clockJumps},
	{"S4", diskFull},
	{"S5", hostNetworkGone},
	{"S6", faultInDevice},
	{"S7", killedWorker},
	{"S8", orphaned},
	{"S9", signals},
	{"S10", oneProcessor},
}

// hostFails lets every call into the host's sockets fail, one after the other by
// number, with each of the errors of a host that has run out of something. What
// was under way may fail; the next round works, nothing is left behind, and the
// loop does not spin.
func hostFails(t *testing.T) {
	t.Run("no descriptors", noDescriptors)
	t.Run("every call", func(t *testing.T) {
		e := startErrands(t)
		if failed := e.run(); failed != nil {
			t.Fatalf("%v fails without a fault; counters:%s", failed, e.d.nonzero())
		}
		sites := map[string]int{}
		n := int64(1)
		for past := 0; past < 3; n++ { // rounds differ by a few calls
			for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
				e.host.arm(n, errno)
				failed := e.run()
				site := e.host.failed()
				e.host.arm(0, 0)
				if site == "" {
					past++
				} else {
					sites[site]++
					past = 0
				}
				if site == "" && failed != nil {
					t.Fatalf("%v fails without a fault in round %d; counters:%s", failed, n, e.d.nonzero())
				}
			}
			if again := e.run(); again != nil {
				t.Fatalf("after call %d has failed in every way: %v still fails; counters:%s", n, again, e.d.nonzero())
			}
		}
		t.Logf("%d calls a round, by site: %v", n-1, sites)
		for _, site := range []string{"Dial", "Accept", "Watch", "Writev", "Peekv", "Discard", "Send", "Recv", "Shutdown"} {
			if sites[site] == 0 {
				t.Errorf("no %s has failed", site)
			}
		}
		e.finish()
	})
	t.Run("all calls", func(t *testing.T) {
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
			e := startErrands(t)
			e.host.arm(-1, errno)
			_ = e.run()
			calls, turns := e.host.calls.Load(), e.d.counters()["loop_turns"]
			time.Sleep(50 * time.Millisecond)
			if c, n := e.host.calls.Load()-calls, e.d.counters()["loop_turns"]-turns; c > 1000 || n > 1000 {
				t.Errorf("%v: %d calls and %d turns in 50 ms: the loop spins", errno, c, n)
			}
			e.d.pass(2*time.Second, 100*time.Millisecond) // listeners are to be taken up again, which fails too
			e.host.arm(0, 0)
			e.d.pass(2*time.Second, 100*time.Millisecond)
			for range ringSize {
				e.g.receive()
			}
			if failed := e.run(); failed != nil {
				t.Errorf("%v: afterwards %v still fails; counters:%s", errno, failed, e.d.nonzero())
			}
			e.finish()
		}
	})
}

// finish lets everything age, after which no flow and no socket is left.
func (e *errands) finish() {
	e.t.Helper()
	if n := e.d.counters()["loop_panics"]; n != 0 {
		e.t.Errorf("%d panics", n)
	}
	e.g.leave()
	e.d.eventually("all flows to end", func() bool {
		e.d.pass(3*time.Hour, 20*time.Minute)
		c := e.d.counters()
		return c["flows"] == 0 && c["host_sockets"] == 2 // the forwards
	})
	e.d.eventually("all descriptors to be closed", func() bool { return descriptors(e.t) <= e.fds })
	e.d.healthy()
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
