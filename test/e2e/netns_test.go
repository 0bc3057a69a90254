package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
)

// nsEnv is a namespace that `guestwire netns` connects to the world, and traffic servers in it.
type nsEnv struct {
	t       *testing.T
	w       *netns.World
	svc     *hostsvc.Services
	d       *spawn.Process
	ns      *netns.NS
	dir     string
	servers []interface{ Close() error }
}

func newNetns(t *testing.T, args ...string) *nsEnv {
	t.Helper()
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	e := &nsEnv{t: t, dir: filepath.Join(shared.dir, dirName(t.Name()))}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.w, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.w.Close)
	if e.svc, err = hostsvc.Start(e.w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.svc.Close)
	if e.ns, err = e.w.Add("inside"); err != nil {
		t.Fatal(err)
	}
	e.start(args...)
	return e
}

func (e *nsEnv) start(args ...string) {
	e.t.Helper()
	argv := append([]string{shared.guestwire, "netns", "--config-net"}, args...)
	var err error
	e.d, err = spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: filepath.Join(e.dir, "netns.log")}, append(argv, e.ns.Name)...)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(e.d.Kill)
	if err := e.d.WaitOutput("ready on", 10*time.Second); err != nil {
		e.t.Fatal(err)
	}
}

// serve puts the traffic servers into the namespace, TCP and UDP.
func (e *nsEnv) serve(addrs ...string) {
	e.t.Helper()
	for _, a := range addrs {
		l, err := e.ns.Listen("tcp", a)
		if err != nil {
			e.t.Fatal(err)
		}
		u, err := e.ns.ListenUDP(a)
		if err != nil {
			e.t.Fatal(err)
		}
		go e.svc.Traffic.Serve(l)
		go e.svc.Traffic.ServeUDP(u)
		e.t.Cleanup(func() { l.Close(); u.Close() })
	}
}

func dialer(from *netns.NS, addr string, port int) traffic.Dialer {
	return func() (net.Conn, error) { return from.Dial("tcp", net.JoinHostPort(addr, fmt.Sprint(port))) }
}

// exact holds a path to its bytes: hashes both ways, half-closes, resets, many at a time.
func exact(t *testing.T, d traffic.Dialer) {
	t.Helper()
	const limit = 2 * time.Minute
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"get", func() error { return traffic.Get(d, bulk, 1, limit) }},
		{"put", func() error { return traffic.Put(d, bulk, 2, limit) }},
		{"get in small writes", func() error { return traffic.GetIn(d, 1<<20, 3, 100, limit) }},
		{"the server half-closes", func() error { return traffic.Half(d, 1<<20, 4, dirName(t.Name())+"half", limit) }},
		{"reset by the server", func() error { return traffic.ResetByServer(d, limit) }},
		{"reset by the client", func() error { return traffic.ResetByClient(d, dirName(t.Name())+"reset", limit) }},
		{"200 connections", func() error { return traffic.Parallel(d, 200, 20_000, limit) }},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// datagrams holds a path to its datagrams: of every size, empty ones, and larger ones than any MTU of the way.
func datagrams(t *testing.T, from *netns.NS, addr string, port int) {
	t.Helper()
	c, err := from.Dial("udp", net.JoinHostPort(addr, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := traffic.EchoSizes(c, []int{0, 1, 100, 1400, 1472, 1473, 9000, 60000}); err != nil {
		t.Error(err)
	}
}

// Outbound traffic of a namespace, at the usual MTU and the largest.
func TestNetnsOutbound(t *testing.T) {
	for _, mtu := range []int{1500, 65520} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			e := newNetns(t, "--mtu", fmt.Sprint(mtu))
			for _, f := range families {
				t.Run(f.name, func(t *testing.T) {
					exact(t, dialer(e.ns, f.addr, hostsvc.Port))
					datagrams(t, e.ns, f.addr, hostsvc.Port)
				})
			}
			if _, err := e.ns.Dial("tcp", netns.ServiceV4+":9"); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("a closed port: %v", err)
			}
			for _, a := range []string{netns.FarV4, netns.FarV6, backend.Gateway4} {
				if out, err := e.ns.Run(10*time.Second, "ping", "-c", "2", "-i", "0.2", "-W", "3", a); err != nil {
					t.Errorf("ping: %v\n%s", err, out)
				}
			}
			e.orderly()
		})
	}
}

// Ports of the host that lead into a namespace: the client's address is kept.
func TestNetnsInbound(t *testing.T) {
	e := newNetns(t, "-t", "18080:7777", "-u", "18080:7777")
	e.serve(backend.Guest4+":7777", "["+backend.Guest6+"]:7777")
	for _, f := range []struct{ name, host, client string }{{"IPv4", netns.HostV4, netns.ServiceV4}, {"IPv6", netns.HostV6, netns.ServiceV6}} {
		t.Run(f.name, func(t *testing.T) {
			exact(t, dialer(e.w.Peer, f.host, 18080))
			datagrams(t, e.w.Peer, f.host, 18080)
			from := func() (net.Conn, error) {
				return e.w.Peer.DialFrom("tcp", net.JoinHostPort(f.client, "0"), net.JoinHostPort(f.host, "18080"))
			}
			if peer, err := traffic.Ask(from, "peer", 10*time.Second); err != nil || !strings.HasPrefix(peer, strings.TrimSuffix(net.JoinHostPort(f.client, ""), ":")) {
				t.Errorf("the server sees %q, %v, want %s", peer, err, f.client)
			}
		})
	}
	e.orderly()
}

// orderly ends the daemon, which must leave neither interface nor process behind.
func (e *nsEnv) orderly() {
	e.t.Helper()
	if err := e.d.Stop(5 * time.Second); err != nil {
		e.t.Errorf("orderly stop: %v\n%s", err, e.d.Tail(20))
	}
	if out, _ := e.ns.Run(5*time.Second, "ip", "-o", "link"); strings.Contains(out, "eth0") {
		e.t.Errorf("the interface is still there:\n%s", out)
	}
}
