package hostile

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

var moreRows = []row{
	{"R16", smallBuffers},
	{"R22", noCall},
	{"M8", secondOwner},
	{"M18", wrongKicks},
}

// smallBuffers: receive buffers smaller than the virtio header come back with
// nothing in them, and never with a part of a frame.
func smallBuffers(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(vhostuser.FVersion1)
	var drv [2]*vringtest.Driver
	for i := range g.rings {
		g.rings[i] = g.mem.NewRing(ringSize)
		drv[i] = g.rings[i].NewDriver(vringtest.Features{}, 0)
		must(t, g.startRing(i, drv[i].Kick.FD))
	}
	for range 8 {
		drv[0].Post(8)
	}
	drv[1].Send(make([]byte, netHdr), arpFor(t, gateway))
	d.counts("net_tx_frames", 1)
	time.Sleep(20 * time.Millisecond)
	for _, u := range drv[0].Reap() {
		if len(u.Data) != 0 {
			t.Errorf("% x in a buffer that is too small", u.Data)
		}
	}
	g.leave()
	d.healthy()
}

// noCall: a driver that polls gives no call descriptor, and in the end not even a
// kick.
func noCall(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	must(t, g.f.SetVringCall(0, -1))
	must(t, g.f.SetVringCall(1, -1))
	g.ping()
	must(t, g.f.SetVringKick(0, -1))
	must(t, g.f.SetVringKick(1, -1))
	g.ping()
	g.leave()
	d.healthy()
}

// secondOwner says who owns the session again and again: allowed, or refused,
// but never harmful.
func secondOwner(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for range 3 {
		_ = g.f.Send(vhostuser.MsgSetOwner, nil)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// wrongKicks: a folder and a regular file cannot be waited for, and what can be
// may still be no event: an epoll, the frontend's own connection.
func wrongKicks(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	for _, path := range []string{"/", "/proc/self/exe"} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		if err := g.f.SetVringKick(1, fd); err == nil {
			t.Errorf("%s is taken for a kick", path)
		}
		unix.Close(fd)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	must(t, err)
	defer unix.Close(epoll)
	for name, fd := range map[string]int{"an epoll": epoll, "the connection itself": g.f.FD()} {
		if err := g.f.SetVringKick(1, fd); err == nil {
			t.Errorf("%s is taken for a kick", name)
		}
	}
	if err := g.f.SetVringCall(1, epoll); err == nil {
		t.Error("an epoll is taken for a call")
	}
	g.leave()
	d.healthy()
}
