package hostile

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// namespace is a network namespace that lives as long as its file is open.
type namespace struct {
	t *testing.T
	f *os.File
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t}
	onThread(func() {
		if unix.Unshare(unix.CLONE_NEWNET) == nil {
			n.f, _ = os.Open("/proc/thread-self/ns/net")
		}
	})
	if n.f == nil {
		t.Skip("no network namespace is to be had without privileges")
	}
	t.Cleanup(func() { n.f.Close() })
	return n
}

// onThread runs f on a thread that dies with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// enter moves the calling thread, which must be locked, into n.
func (n *namespace) enter() { must(n.t, unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET)) }

// ip runs ip(8) in n; "PEER" stands for the namespace peer.
func (n *namespace) ip(peer *namespace, lines ...string) {
	n.t.Helper()
	var err error
	var out []byte
	onThread(func() {
		n.enter()
		for _, line := range lines {
			c := exec.Command("ip", strings.Fields(strings.Replace(line, "PEER", "/proc/self/fd/3", 1))...)
			c.ExtraFiles = []*os.File{peer.f}
			if out, err = c.CombinedOutput(); err != nil {
				return
			}
		}
	})
	if err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
}

// hostNetworkGone takes the host's network away under the worker: the link goes
// down and comes back, the address changes, the interface goes and a new one
// comes. Meanwhile new flows are refused with an error; afterwards they work, and
// what was under way over the short gap goes on.
func hostNetworkGone(t *testing.T) {
	host, far := newNamespace(t), newNamespace(t)
	cable := func(addr string) {
		host.ip(far, "link set lo up", "link add eth0 type veth peer name far0 netns PEER", "addr add "+addr+"/24 dev eth0", "link set eth0 up")
		far.ip(host, "link set lo up", "addr add 198.51.100.3/24 dev far0", "link set far0 up")
	}
	cable("198.51.100.2")
	srv := &server{t: t, f: &family{gateway: net.IP{198, 51, 100, 3}}}
	onThread(func() {
		far.enter()
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: 80})
		must(t, err)
		t.Cleanup(func() { l.Close() })
		srv.l = l
	})
	d := startIn(t, nil, surroundings{enter: host.enter})
	g := d.guest()
	c := g.connect(srv, 4001)
	p := srv.accept()
	c.alive(p)

	host.ip(far, "link set eth0 down")
	g.refused(srv, 4002)
	c.send("written while the link was down")
	host.ip(far, "link set eth0 up")
	p.want("written while the link was down")
	g.connect(srv, 4003).alive(srv.accept())
	c.alive(p)

	host.ip(far, "addr del 198.51.100.2/24 dev eth0", "addr add 198.51.100.9/24 dev eth0")
	c4 := g.connect(srv, 4004)
	p4 := srv.accept()
	c4.alive(p4)
	if from := netip.MustParseAddrPort(p4.c.RemoteAddr().String()).Addr().String(); from != "198.51.100.9" {
		t.Errorf("a new flow comes from %s, the host is 198.51.100.9 now", from)
	}

	host.ip(far, "link del eth0")
	g.refused(srv, 4005)
	cable("198.51.100.2")
	g.connect(srv, 4006).alive(srv.accept())
	g.leave()
	d.healthy()
}

// refused checks that a connection attempt gets an error: a reset, or an ICMP
// message that the host or network is unreachable.
func (g *guest) refused(s *server, sport uint16) {
	g.t.Helper()
	g.receive()
	g.send(tcp(g.t, s.f.gateway, sport, s.port(), nil, syn))
	g.await("a refusal", func(f []byte) bool {
		if s := segment(f, sport); s != nil {
			return s.RST
		}
		l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		return ok && l.TypeCode.Type() == layers.ICMPv4TypeDestinationUnreachable
	})
}
