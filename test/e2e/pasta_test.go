package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
)

// newPasta starts guestwire under the name pasta as podman does: it returns when the namespace is connected, and the daemon goes on.
func newPasta(t *testing.T, args ...string) (e *nsEnv, pid int) {
	t.Helper()
	e = newWorld(t)
	pasta, pidFile := filepath.Join(e.dir, "pasta"), filepath.Join(e.dir, "pid")
	if err := os.Symlink(shared.guestwire, pasta); err != nil {
		t.Fatal(err)
	}
	args = append([]string{pasta, "--config-net", "--quiet", "--netns", "/run/netns/" + e.ns.Name, "-P", pidFile}, args...)
	if out, err := spawn.Run(10*time.Second, spawn.Options{NS: e.w.Host.Name}, args...); err != nil || out != "" {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return e, pid
}

// TestPasta: the arguments of podman, and what its containers count on: the host's own address and name of the interface, name service at an address of the
// link, the host under another, published ports under the clients' addresses, and the end with the namespace.
func TestPasta(t *testing.T) {
	e, pid := newPasta(t, "--dns-forward", "169.254.1.1", "-t", netns.HostV4+"/18080-18081:7777-7778", "-u", "18080:7777", "-T", "none", "-U", "none", "--no-map-gw", "--map-guest-addr", "169.254.1.2")
	has(t, e.inside(t, "ip -br addr; ip route"), netns.HostV4+"/24", netns.HostV6+"/64", "default via "+netns.GatewayV4)
	if err := traffic.Get(dialer(e.ns, netns.ServiceV4, hostsvc.Port), bulk, 1, time.Minute); err != nil {
		t.Error(err)
	}
	if err := traffic.Put(dialer(e.ns, netns.ServiceV6, hostsvc.Port), bulk, 2, time.Minute); err != nil {
		t.Error(err)
	}
	has(t, e.inside(t, shared.guestprog+" dns udp 169.254.1.1 www.lab.example A"), "192.0.2.80")

	l, err := e.w.Host.Listen("tcp", netns.HostV4+":7070")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go e.svc.Traffic.Serve(l)
	if err := traffic.Get(dialer(e.ns, "169.254.1.2", 7070), 1<<20, 3, time.Minute); err != nil {
		t.Errorf("the host's own address: %v", err)
	}

	e.serve(netns.HostV4+":7777", netns.HostV4+":7778")
	for _, port := range []int{18080, 18081} {
		d := dialer(e.w.Peer, netns.HostV4, port)
		if err := traffic.Get(d, 1<<20, 4, time.Minute); err != nil {
			t.Errorf("published port %d: %v", port, err)
		}
		from := func() (net.Conn, error) {
			return e.w.Peer.DialFrom("tcp", netns.ServiceV4+":0", net.JoinHostPort(netns.HostV4, strconv.Itoa(port)))
		}
		if peer, err := traffic.Ask(from, "peer", 10*time.Second); err != nil || !strings.HasPrefix(peer, netns.ServiceV4+":") {
			t.Errorf("the server sees %q, %v, want %s", peer, err, netns.ServiceV4)
		}
	}
	datagrams(t, e.w.Peer, netns.HostV4, 18080)

	if err := e.w.Remove(e.ns); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); syscall.Kill(pid, 0) == nil; time.Sleep(20 * time.Millisecond) {
		if state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); strings.Contains(string(state), ") Z ") {
			break // nobody takes in what has lost its parent, in some containers
		}
		if time.Now().After(end) {
			t.Fatal("the daemon outlives the namespace")
		}
	}
}

// TestPastaGateway: without --no-map-gw the gateway's address is the host's loopback.
func TestPastaGateway(t *testing.T) {
	e, pid := newPasta(t, "-t", "none", "-u", "none", "-T", "none", "-U", "none")
	l, err := e.w.Host.Listen("tcp", "127.0.0.1:7071")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go e.svc.Traffic.Serve(l)
	if err := traffic.Get(dialer(e.ns, netns.GatewayV4, 7071), 1<<20, 3, time.Minute); err != nil {
		t.Error(err)
	}
	if c, err := e.ns.Dial("tcp", net.JoinHostPort(netns.HostV4, "7071")); err == nil {
		c.Close()
		t.Error("the host's loopback is reached by its own address")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
