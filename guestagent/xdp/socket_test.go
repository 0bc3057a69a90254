package xdp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"guestwire/translate/wire"
)

// wired runs f on a thread whose network namespace has the cards a (10.9.0.1) and
// b (10.9.0.2), wired to each other. The kernel copies there: a veth has no zero
// copy.
func wired(t *testing.T, f func(t *testing.T, a, b netlink.Link)) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		err := unix.Unshare(unix.CLONE_NEWNET)
		defer func() { done <- err }()
		if err != nil {
			return
		}
		if err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}); err != nil {
			return
		}
		var links [2]netlink.Link
		for i, name := range []string{"a", "b"} {
			l, e := netlink.LinkByName(name)
			addr, _ := netlink.ParseAddr([]string{"10.9.0.1/24", "10.9.0.2/24"}[i])
			if err = errors.Join(e, netlink.AddrAdd(l, addr), netlink.LinkSetUp(l)); err != nil {
				return
			}
			links[i] = l
		}
		f(t, links[0], links[1])
	}()
	switch err := <-done; {
	case errors.Is(err, unix.EPERM):
		t.Skip("needs the right to make a network namespace")
	case err != nil:
		t.Fatal(err)
	}
}

func openable(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("this kernel has no AF_XDP")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func across(a, b netlink.Link) Flow {
	return Flow{SrcMAC: wire.MAC(a.Attrs().HardwareAddr), DstMAC: wire.MAC(b.Attrs().HardwareAddr),
		Src: netip.MustParseAddrPort("10.9.0.1:4000"), Dst: netip.MustParseAddrPort("10.9.0.2:9000")}
}

// TestCopyBothWays: what an AF_XDP sender sends, an AF_XDP receiver gets, whole
// and without a gap; and nothing on the way allocates.
func TestCopyBothWays(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		const count = 20_000
		f := across(a, b)
		r, err := NewReceiver(Load{By: ByCopy, Index: b.Attrs().Index, Flow: f, Count: count, Duration: 20 * time.Second}, 1, true)
		openable(t, err)
		defer r.Close()
		s, err := NewSender(Load{By: ByCopy, Index: a.Attrs().Index, Flow: f, Size: 200, Count: count})
		openable(t, err)
		defer s.Close()
		if s.ZC || r.ZC {
			t.Error("zero copy on a veth")
		}
		sock := s.out.(*frames)
		var got, sent Count
		for sent.Packets < count { // in turns, so that no ring runs over
			k, err := sock.send(Batch, sent.Packets)
			if err != nil {
				t.Fatal(err)
			}
			sent.Packets += uint64(k)
			for idle := 0; got.Packets < sent.Packets && idle < 20; idle++ {
				r.frames(&got)
				if err := sock.s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got.Bad != 0 || got.Packets != sent.Packets || got.Last != sent.Packets-1 || got.Bytes != 200*got.Packets {
			t.Errorf("sent %+v, got %+v", sent, got)
		}
		if err := sock.finish(time.Second); err != nil {
			t.Error(err)
		}
		if n := testing.AllocsPerRun(50, func() {
			_, _ = sock.send(Batch, 0)
			r.frames(&got)
		}); n != 0 {
			t.Errorf("%v allocations a batch", n)
		}
		if sock.s.spoiled+r.sock.spoiled != 0 {
			t.Error("entries outside the UMEM")
		}
	})
}

// TestOnlyThePort: frames to other ports and of other protocols go to the kernel
// while the program is there, and all when it has gone.
func TestOnlyThePort(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		f := across(a, b)
		f.Src = netip.MustParseAddrPort("10.9.0.77:4000") // not the namespace's own, from which the kernel takes nothing
		other := f
		other.Dst = netip.MustParseAddrPort("10.9.0.2:9001")
		kernel := receiver(t, "10.9.0.2:9001")
		r, err := NewReceiver(Load{By: ByCopy, Index: b.Attrs().Index, Flow: f, Count: 1, Duration: 10 * time.Second}, 1, true)
		openable(t, err)
		for _, to := range []Flow{other, f} {
			s, err := NewSender(Load{By: ByCopy, Index: a.Attrs().Index, Flow: to, Size: 64, Count: 1})
			openable(t, err)
			if _, err := s.Run(t.Context(), nil); err != nil {
				t.Error(err)
			}
			s.Close()
		}
		if c, err := r.Run(t.Context(), nil); err != nil || c.Packets != 1 || c.Bad != 0 {
			t.Errorf("at the port: %+v, %v", c, err)
		}
		expect(t, kernel)
		r.Close()
		same := receiver(t, "10.9.0.2:9000")
		s, err := NewSender(Load{By: ByCopy, Index: a.Attrs().Index, Flow: f, Size: 64, Count: 1})
		openable(t, err)
		defer s.Close()
		if _, err := s.Run(t.Context(), nil); err != nil {
			t.Error(err)
		}
		expect(t, same)
	})
}

func receiver(t *testing.T, at string) *net.UDPConn {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func expect(t *testing.T, c *net.UDPConn) {
	t.Helper()
	b := make([]byte, 2048)
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(b); err != nil || n != 64 || !intact(b[:n]) {
		t.Errorf("the kernel got %d bytes, %v", n, err)
	}
}

func TestSyscalls(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		f := across(a, b)
		f.Dst = netip.MustParseAddrPort("10.9.0.1:9000") // its own: loopback
		if lo, err := netlink.LinkByName("lo"); err == nil {
			_ = netlink.LinkSetUp(lo)
		}
		r, err := NewReceiver(Load{By: BySyscall, Flow: f, Count: 100, Duration: 10 * time.Second}, 1, true)
		openable(t, err)
		defer r.Close()
		s, err := NewSender(Load{By: BySyscall, Flow: f, Size: 100, Count: 100})
		openable(t, err)
		defer s.Close()
		if c, err := s.Run(t.Context(), nil); err != nil || c.Packets != 100 {
			t.Errorf("sent %+v, %v", c, err)
		}
		if c, err := r.Run(t.Context(), nil); err != nil || c.Packets != 100 || c.Bad+c.Lost != 0 {
			t.Errorf("got %+v, %v", c, err)
		}
	})
}

func TestZeroCopyIsNotAssumed(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		s, err := Open(Config{Index: a.Attrs().Index, Mode: ZeroCopy})
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("a veth with zero copy: %v", err)
		}
		if s != nil {
			t.Error("a socket beside an error")
		}
	})
}

// TestBindAgain: a queue can be bound again as often as one likes, and no
// descriptor is left.
func TestBindAgain(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		f := across(a, b)
		before := descriptors(t)
		for range 20 {
			r, err := NewReceiver(Load{By: ByCopy, Index: b.Attrs().Index, Flow: f}, 1, true)
			openable(t, err)
			r.Close()
		}
		if now := descriptors(t); now > before+2 { // epoll and eventfd of the runtime
			t.Errorf("%d descriptors, %d before", now, before)
		}
	})
}

func TestRunEnds(t *testing.T) {
	wired(t, func(t *testing.T, a, b netlink.Link) {
		r, err := NewReceiver(Load{By: ByCopy, Index: b.Attrs().Index, Flow: across(a, b)}, 1, false)
		openable(t, err)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c, err := r.Run(ctx, nil); err != nil || c.Packets != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
