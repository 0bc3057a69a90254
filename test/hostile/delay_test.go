package hostile

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"
)

// mirror is a TUN interface in n, with address 192.0.2.1, that sends every packet
// back after a delay with its addresses exchanged: who connects to 192.0.2.2
// reaches the services of 192.0.2.1, over a path with a round trip of twice the
// delay. (Exchanging addresses changes no checksum.)
func mirror(t *testing.T, n *namespace, delay time.Duration) {
	t.Helper()
	var tun *os.File
	var err error
	onThread(func() {
		n.enter()
		tun, err = openTUN("mirror0")
	})
	if err != nil {
		t.Skipf("a TUN interface: %v", err)
	}
	n.ip(n, "link set lo up", "addr add 192.0.2.1/24 dev mirror0", "link set mirror0 mtu 1500 up")
	type late struct {
		at     time.Time
		packet []byte
	}
	queue := make(chan late, 1<<16)
	go func() {
		defer close(queue)
		for {
			b := make([]byte, 1500)
			k, err := tun.Read(b)
			if err != nil {
				return
			}
			queue <- late{time.Now().Add(delay), b[:k]}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l := range queue {
			if len(l.packet) < 20 || l.packet[0]>>4 != 4 {
				continue
			}
			time.Sleep(time.Until(l.at)) // this is the path, not the test
			src := [4]byte(l.packet[12:16])
			copy(l.packet[12:16], l.packet[16:20])
			copy(l.packet[16:20], src[:])
			_, _ = tun.Write(l.packet)
		}
	}()
	t.Cleanup(func() {
		tun.Close()
		<-done
	})
}

func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

// TestSendBufferGrows: an upload over a path with a round trip of 20 ms is as fast
// as the host's send buffer is large, and the kernel enlarges that only for a
// writer that fills it (design.md, rules of translation). What the guest may have
// outstanding follows.
func TestSendBufferGrows(t *testing.T) {
	host := newNamespace(t)
	mirror(t, host, 10*time.Millisecond)
	var l net.Listener
	var err error
	onThread(func() {
		host.enter()
		l, err = net.Listen("tcp4", "192.0.2.1:0")
	})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	target := &net.TCPAddr{IP: net.IP{192, 0, 2, 2}, Port: l.Addr().(*net.TCPAddr).Port}

	d := startIn(t, nil, surroundings{enter: host.enter})
	g := d.guest()
	g.send(tcp(t, target.IP, 4001, uint16(target.Port), nil, func(s *layers.TCP) {
		syn(s)
		s.Options = []layers.TCPOption{
			{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}},
			{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
		}
	}))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	shift := 0
	for _, o := range sa.Options {
		if o.OptionType == layers.TCPOptionKindWindowScale {
			shift = int(o.OptionData[0])
		}
	}
	peer, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { peer.Close() })
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, peer)
		got <- n
	}()

	c := &conn{g: g, to: target.IP, sport: 4001, dport: uint16(target.Port), seq: 1001, ack: sa.Seq + 1}
	c.segment("", func(*layers.TCP) {})
	begin, una, wnd := c.seq, c.seq, uint32(sa.Window)
	before := sendBuffer(t, target)
	const size, total = 1460, 24 << 20
	data := string(pattern(1, size))
	widest := uint32(0)
	for end := time.Now().Add(20 * time.Second); c.seq-begin < total; {
		for _, fr := range g.receive() {
			if s := segment(fr, 4001); s != nil && s.ACK && int32(s.Ack-una) >= 0 {
				una, wnd = s.Ack, uint32(s.Window)<<shift
			}
		}
		widest = max(widest, wnd)
		if c.seq+size-una <= wnd {
			c.send(data)
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes of %d in 20 s; counters:%s", c.seq-begin, total, d.nonzero())
		}
		time.Sleep(100 * time.Microsecond)
	}
	after := sendBuffer(t, target)
	c.segment("", func(s *layers.TCP) { s.FIN = true })
	if n := <-got; n != int64(c.seq-begin) {
		t.Errorf("the target got %d bytes of %d", n, c.seq-begin)
	}
	// 69 KB is what a writer that stays within the free space was left with.
	if after < 4*before || after < 512<<10 {
		t.Errorf("SO_SNDBUF was %d and is %d after %d MiB; counters:%s", before, after, total>>20, d.nonzero())
	}
	if n := d.counters(); n["tcp_drop_in-window"] != 0 || n["tcp_short_writes"] == 0 {
		t.Errorf("%d segments dropped in the window, %d short writes", n["tcp_drop_in-window"], n["tcp_short_writes"])
	}
	t.Logf("SO_SNDBUF %d -> %d, window up to %d", before, after, widest)
	g.leave()
	d.healthy()
}

// sendBuffer is SO_SNDBUF of the socket of this process that is connected to a.
func sendBuffer(t *testing.T, a *net.TCPAddr) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, e := range list {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			continue
		}
		p, err := unix.Getpeername(fd)
		if err != nil {
			continue
		}
		if p4, ok := p.(*unix.SockaddrInet4); ok && p4.Port == a.Port && net.IP(p4.Addr[:]).Equal(a.IP) {
			n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
			must(t, err)
			return n
		}
	}
	t.Fatalf("no socket is connected to %v", a)
	return 0
}
