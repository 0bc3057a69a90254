package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
)

// patience is how long what is to come may take; listeners are looked for once a second.
const patience = 15 * time.Second

// nsEnv is a namespace that `guestwire netns` connects to the world, and traffic servers in it.
type nsEnv struct {
	t   *testing.T
	w   *netns.World
	svc *hostsvc.Services
	d   *spawn.Process
	ns  *netns.NS
	dir string
}

func newNetns(t *testing.T, args ...string) *nsEnv {
	t.Helper()
	e := newWorld(t)
	e.start(args...)
	return e
}

// newWorld is a namespace that nobody connects yet.
func newWorld(t *testing.T) *nsEnv {
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
	return e
}

// inside runs a command in the namespace.
func (e *nsEnv) inside(t *testing.T, command string) string {
	t.Helper()
	out, err := e.ns.Run(20*time.Second, "sh", "-c", command)
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (e *nsEnv) start(args ...string) {
	e.t.Helper()
	argv := append([]string{shared.guestwire, "netns", "--config-net"}, args...)
	log := filepath.Join(e.dir, "netns.log")
	_ = os.Remove(log) // of an earlier one
	var err error
	e.d, err = spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: log}, append(argv, e.ns.Name)...)
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

// The host gets another address while we run: what begins from then on comes from it, and ports are reached at it.
func TestNetnsHostAddressChanges(t *testing.T) {
	e := newNetns(t, "-t", "18080:7777", "-u", "18080:7777")
	e.serve(backend.Guest4 + ":7777")
	const moved = "198.51.100.9"
	talk := func(at string) {
		t.Helper()
		out := dialer(e.ns, netns.ServiceV4, hostsvc.Port)
		if err := traffic.Get(out, 1<<20, 1, time.Minute); err != nil {
			t.Errorf("out of the namespace: %v", err)
		}
		if peer, err := traffic.Ask(out, "peer", 10*time.Second); err != nil || !strings.HasPrefix(peer, at+":") {
			t.Errorf("the server sees %q, %v, want %s", peer, err, at)
		}
		datagrams(t, e.ns, netns.ServiceV4, hostsvc.Port)
		if err := traffic.Get(dialer(e.w.Peer, at, 18080), 1<<20, 2, time.Minute); err != nil {
			t.Errorf("into the namespace at %s: %v", at, err)
		}
		datagrams(t, e.w.Peer, at, 18080)
	}
	talk(netns.HostV4)
	for _, c := range []string{"addr del " + netns.HostV4 + "/24 dev eth0", "addr add " + moved + "/24 dev eth0", "route replace default via " + netns.GatewayV4} {
		if out, err := e.w.Host.Run(5*time.Second, append([]string{"ip"}, strings.Fields(c)...)...); err != nil {
			t.Fatalf("ip %s: %v\n%s", c, err, out)
		}
	}
	talk(moved)
	e.orderly()
}

// What comes from the host's loopback goes the short way, between two sockets; by default to the namespace's own address.
func TestNetnsFromLoopback(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		v4, v6 string // where the servers are
	}{
		{"to its address", nil, backend.Guest4, backend.Guest6},
		{"to its loopback", []string{"--host-lo-to-ns-lo"}, "127.0.0.1", "::1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newNetns(t, append([]string{"-t", "18080:7777", "-u", "18080:7777"}, tt.args...)...)
			e.serve(net.JoinHostPort(tt.v4, "7777"), net.JoinHostPort(tt.v6, "7777"))
			for name, at := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"} {
				t.Run(name, func(t *testing.T) { exact(t, dialer(e.w.Host, at, 18080)) })
			}
			if n := e.counter("splice_accepted"); n < 400 {
				t.Errorf("%d connections went the short way", n)
			}
			if len(tt.args) == 0 {
				datagrams(t, e.w.Host, "127.0.0.1", 18080)
			}
			e.orderly()
		})
	}
}

// Ports of the namespace's loopback lead to the host's, TCP and UDP; others do not, and the host's loopback is not to be had otherwise.
func TestNetnsToLoopback(t *testing.T) {
	e := newNetns(t, "-T", "80:7777", "-U", "80:7777")
	for name, at := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"} {
		t.Run(name, func(t *testing.T) {
			exact(t, dialer(e.ns, at, 80))
			datagrams(t, e.ns, at, 80)
			if _, err := e.ns.Dial("tcp", net.JoinHostPort(at, "7777")); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("a port that is not forwarded: %v", err)
			}
		})
	}
	for _, a := range []string{backend.Gateway4, backend.DNS4} {
		if c, err := e.ns.Dial("tcp", a+":7777"); err == nil {
			c.Close()
			t.Errorf("the host's loopback is reached by %s", a)
		}
	}
	e.orderly()
}

// Forwards follow listeners, both ways, as they come and go; ours are not taken for somebody's.
func TestNetnsAuto(t *testing.T) {
	e := newNetns(t, "-t", "auto", "-T", "auto", "-u", "auto", "-U", "auto")
	if err := traffic.Get(dialer(e.ns, "127.0.0.1", hostsvc.Port), 1<<20, 5, 10*time.Second); err != nil {
		t.Errorf("the host's service, that was there before: %v", err)
	}
	l, err := e.ns.Listen("tcp", "0.0.0.0:8088")
	if err != nil {
		t.Fatal(err)
	}
	go e.svc.Traffic.Serve(l)
	u, err := e.ns.ListenUDP("0.0.0.0:8089")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go e.svc.Traffic.ServeUDP(u)
	reached := func(d traffic.Dialer) bool {
		c, err := d()
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	await(t, patience, "a forward to a new listener", func() bool { return reached(dialer(e.w.Peer, netns.HostV4, 8088)) })
	if err := traffic.Put(dialer(e.w.Peer, netns.HostV4, 8088), 1<<20, 6, 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := traffic.Put(dialer(e.w.Host, "127.0.0.1", 8088), 1<<20, 6, 10*time.Second); err != nil {
		t.Errorf("from the host's loopback: %v", err)
	}
	datagrams(t, e.w.Peer, netns.HostV4, 8089)
	// A service of the host's comes, and both go.
	h, err := e.w.Host.Listen("tcp", "127.0.0.1:8090")
	if err != nil {
		t.Fatal(err)
	}
	go e.svc.Traffic.Serve(h)
	await(t, patience, "a forward to a new service of the host", func() bool { return reached(dialer(e.ns, "127.0.0.1", 8090)) })
	l.Close()
	h.Close()
	await(t, patience, "the end of the forward in", func() bool { return !reached(dialer(e.w.Peer, netns.HostV4, 8088)) })
	await(t, patience, "the end of the forward out", func() bool { return !reached(dialer(e.ns, "127.0.0.1", 8090)) })
	e.orderly()
}

// counter asks the daemon for one of its counters.
func (e *nsEnv) counter(name string) (v uint64) {
	e.t.Helper()
	before := len(e.d.Output())
	if err := e.d.Signal(syscall.SIGUSR1); err != nil {
		e.t.Fatal(err)
	}
	found := false
	await(e.t, patience, "the statistics", func() bool {
		for line := range strings.SplitSeq(e.d.Output()[before:], "\n") {
			if _, err := fmt.Sscanf(line, name+" %d", &v); err == nil {
				found = true
			}
		}
		return found
	})
	return v
}

// The daemon ends with the namespace: when its file is removed, when its process ends. With a file name it is the name that counts.
func TestNetnsGone(t *testing.T) {
	e := newNetns(t)
	if err := traffic.Get(dialer(e.ns, netns.ServiceV4, hostsvc.Port), 1<<20, 1, 10*time.Second); err != nil {
		t.Error(err)
	}
	c, err := e.ns.Dial("tcp", net.JoinHostPort(netns.ServiceV4, fmt.Sprint(hostsvc.Port))) // under way
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := e.w.Remove(e.ns); err != nil {
		t.Fatal(err)
	}
	if err := e.d.Wait(10 * time.Second); err != nil {
		t.Errorf("after the name was removed: %v", err)
	}
	p, err := spawn.Start(spawn.Options{NS: e.w.Host.Name}, "unshare", "-n", "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	await(t, patience, "the process's namespace", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID()))
		return strings.TrimSpace(string(b)) == "sleep"
	})
	e.ns.Name = fmt.Sprint(p.PID())
	e.start()
	p.Kill()
	if err := e.d.Wait(10 * time.Second); err != nil {
		t.Errorf("after the process has ended: %v", err)
	}
}

// A command's status, output and end are those it would have without us.
func TestNetnsCommand(t *testing.T) {
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	w, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	svc, err := hostsvc.Start(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(svc.Close)
	run := func(command ...string) (string, int) {
		t.Helper()
		p, err := spawn.Start(spawn.Options{NS: w.Host.Name, Log: filepath.Join(t.TempDir(), "log")}, append([]string{shared.guestwire, "netns", "--"}, command...)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(20 * time.Second); errors.Is(err, spawn.ErrTimeout) {
			p.Kill()
			t.Fatalf("%q does not end", command)
		}
		return p.Output(), p.ExitCode()
	}
	for _, tt := range []struct {
		command string
		status  int
		says    string
	}{
		{"exit 0", 0, ""},
		{"exit 42", 42, ""},
		{"kill -TERM $$", 143, ""},
		{"echo $(id -u) $(ls /proc | grep -c '^[0-9]*$')", 0, "0 "},
		{fmt.Sprintf("%s get %s 1000000 3", shared.guestprog, service(netns.ServiceV4)), 0, ""},
		{fmt.Sprintf("%s get %s 1000000 3", shared.guestprog, service(netns.ServiceV6)), 0, ""},
		{"ping -c 1 -W 3 " + netns.FarV4, 0, "1 received"},
	} {
		out, status := run("sh", "-c", tt.command)
		if status != tt.status || !strings.Contains(out, tt.says) {
			t.Errorf("%s: status %d, want %d\n%s", tt.command, status, tt.status, out)
		}
	}
	// TERM goes to the command, whose answer counts.
	p, err := spawn.Start(spawn.Options{NS: w.Host.Name}, shared.guestwire, "netns", "--", "sh", "-c", "trap 'exit 9' TERM; echo trapping; while :; do sleep 0.1; done")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.WaitOutput("trapping", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	_ = p.Signal(syscall.SIGTERM)
	if _ = p.Wait(10 * time.Second); !p.Exited() || p.ExitCode() != 9 {
		t.Errorf("TERM: %s", p.Tail(5))
	}
}

// Namespaces by the hundred, one process each, in one world: every one of them is connected, and all of them go without a trace.
func TestNetnsHundred(t *testing.T) {
	e := newNetns(t)
	type one struct {
		ns *netns.NS
		d  *spawn.Process
	}
	var all []one
	for i := range 99 {
		ns, err := e.w.Add(fmt.Sprint("n", i))
		if err != nil {
			t.Fatal(err)
		}
		d, err := spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: filepath.Join(e.dir, fmt.Sprint(i, ".log"))}, shared.guestwire, "netns", "--config-net", ns.Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Kill)
		all = append(all, one{ns, d})
	}
	all = append(all, one{e.ns, e.d})
	for _, o := range all {
		if err := o.d.WaitOutput("ready on", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := traffic.Get(dialer(o.ns, netns.ServiceV4, hostsvc.Port), 200_000, 7, 20*time.Second); err != nil {
			t.Errorf("%s: %v", o.ns.Name, err)
		}
	}
	rss, _ := e.d.Status("VmRSS")
	fds, _ := e.d.FDs()
	t.Logf("each about %d KiB of memory, %d descriptors", rss, fds)
	for _, o := range all {
		_ = o.d.Signal(syscall.SIGTERM)
	}
	for _, o := range all {
		if err := o.d.Wait(20 * time.Second); err != nil {
			t.Errorf("%s: %v", o.ns.Name, err)
		}
	}
}

// A daemon that has done everything has as many descriptors as when it began.
func TestNetnsDescriptors(t *testing.T) {
	e := newNetns(t, "-t", "18080:7777", "-T", "80:7777", "-U", "80:7777")
	e.serve(backend.Guest4 + ":7777")
	work := func() {
		for _, d := range []traffic.Dialer{dialer(e.ns, netns.ServiceV4, hostsvc.Port), dialer(e.w.Host, "127.0.0.1", 18080), dialer(e.w.Peer, netns.HostV4, 18080), dialer(e.ns, "127.0.0.1", 80)} {
			if err := traffic.Parallel(d, 100, 10_000, time.Minute); err != nil {
				t.Error(err)
			}
			if err := traffic.ResetByServer(d, time.Minute); err != nil {
				t.Error(err)
			}
		}
	}
	work()
	steady := func() int {
		last, same := -1, 0
		await(t, patience, "a steady number of descriptors", func() bool {
			n, err := e.d.FDs()
			if err != nil {
				t.Fatal(err)
			}
			if n != last {
				last, same = n, 0
			}
			same++
			return same > 25 // half a second
		})
		return last
	}
	before := steady()
	for range 3 {
		work()
	}
	// Pools of pipes (32 descriptors) and of sockets (64) may have grown.
	if after := steady(); after > before+96 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	e.orderly()
}

// An ordinary user needs no privilege: neither for a namespace of a command, nor for one that he has made.
func TestNetnsRootless(t *testing.T) {
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	w, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	svc, err := hostsvc.Start(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(svc.Close)
	// /dev/net/tun is open to everybody where there is a udev; here it may be root's.
	const user = `mount -t tmpfs tun /mnt && mknod /mnt/tun c 10 200 && chmod 666 /mnt/tun && mount --bind /mnt/tun /dev/net/tun &&
		exec setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all "$@"`
	get := fmt.Sprintf("%s get %s 1000000 3", shared.guestprog, service(netns.ServiceV6))
	for name, script := range map[string]string{
		"a command": fmt.Sprintf(`%s netns -- sh -c 'id -u; %s'`, shared.guestwire, get),
		// Somebody else's sandbox, in which he is root, and one in which nobody is.
		"a namespace of his": fmt.Sprintf(`for map in --map-root-user --map-current-user; do
			unshare -U $map -n sleep 1000 & p=$!
			until [ "$(cat /proc/$p/comm)" = sleep ]; do sleep 0.05; done
			%s netns --config-net $p 2>&1 & g=$!
			until nsenter -U -n --preserve-credentials -t $p ip -6 route | grep -q default; do kill -0 $g || exit 1; sleep 0.05; done
			nsenter -U -n --preserve-credentials -t $p %s || exit 1
			kill $p; wait $g || exit 1
		done; echo 0`, shared.guestwire, get),
	} {
		t.Run(name, func(t *testing.T) {
			out, err := spawn.Run(time.Minute, spawn.Options{NS: w.Host.Name}, "unshare", "-m", "sh", "-c", user, "sh", "sh", "-c", script)
			if err != nil || !strings.Contains(out, "0\n") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// What is killed takes along what it has started: at any moment, without a trace of interface, keeper or command.
func TestNetnsKilled(t *testing.T) {
	e := newNetns(t)
	for i := range 8 {
		e.d.Kill() // the process group: daemon and keeper
		e.start()
		if i%2 == 0 { // the daemon alone, while it works
			c, err := e.ns.Dial("tcp", net.JoinHostPort(netns.ServiceV4, fmt.Sprint(hostsvc.Port)))
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = c.Write(make([]byte, 1<<20)); c.Close() }()
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", e.d.PID(), e.d.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_ = e.d.Signal(syscall.SIGKILL)
		_ = e.d.Wait(5 * time.Second)
		for pid := range strings.FieldsSeq(string(children)) {
			await(t, patience, "the end of the keeper", func() bool { _, err := os.Stat("/proc/" + pid); return err != nil })
		}
		await(t, patience, "the end of the interface", func() bool {
			out, _ := e.ns.Run(5*time.Second, "ip", "-o", "link")
			return !strings.Contains(out, "eth0")
		})
	}
	// A keeper that is killed does not end the network that is there; TERM still ends all.
	e.start()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", e.d.PID(), e.d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(children)) {
		n, _ := strconv.Atoi(pid)
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
	if err := traffic.Get(dialer(e.ns, netns.ServiceV4, hostsvc.Port), 1<<20, 1, 10*time.Second); err != nil {
		t.Errorf("after the keeper was killed: %v", err)
	}
	e.orderly()
}

// Without --config-net the namespace asks: router advertisements give it an address and a route, as do DHCP and its options.
func TestNetnsAsks(t *testing.T) {
	e := newNetns(t)
	e.d.Kill()
	argv := []string{shared.guestwire, "netns", "--mtu", "9000", e.ns.Name}
	var err error
	if e.d, err = spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: filepath.Join(e.dir, "bare.log")}, argv...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.d.Kill)
	if err := e.d.WaitOutput("ready on", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := e.ns.Sysctl("ipv6.conf.eth0.accept_ra", "1"); err != nil { // the world says 0
		t.Fatal(err)
	}
	script := filepath.Join(e.dir, "bound")
	const bound = "#!/bin/sh\n[ \"$1\" = bound ] && { ip addr add $ip/$mask dev $interface; ip route add default via $router; echo lease $ip $router $dns $mtu; } || :\n"
	if err := os.WriteFile(script, []byte(bound), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := e.ns.Run(20*time.Second, "sh", "-c", "ip link set eth0 up && busybox udhcpc -i eth0 -n -q -f -t 10 -T 1 -O mtu -s "+script)
	if want := fmt.Sprintf("lease %s %s %s 9000", backend.Guest4, backend.Gateway4, backend.DNS4); err != nil || !strings.Contains(out, want) {
		t.Errorf("DHCP: %v\n%s", err, out)
	}
	await(t, patience, "the address of a router advertisement", func() bool {
		out, _ := e.ns.Run(5*time.Second, "ip", "-6", "addr", "show", "dev", "eth0", "scope", "global", "-tentative")
		return strings.Contains(out, backend.Prefix6)
	})
	for _, f := range families {
		if err := traffic.Get(dialer(e.ns, f.addr, hostsvc.Port), 1<<20, 1, 10*time.Second); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}
