package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"guestwire/test/harness/spawn"
)

// Addresses of the world (documentation ranges of RFC 5737 and RFC 3849).
const (
	HostV4, HostV6       = "198.51.100.2", "2001:db8::2"
	GatewayV4, GatewayV6 = "198.51.100.1", "2001:db8::1"
	ServiceV4, ServiceV6 = "198.51.100.3", "2001:db8::3" // in peer: DNS and the test services
	RouterV4, RouterV6   = "203.0.113.1", "2001:db8:1::1"
	FarV4, FarV6         = "203.0.113.2", "2001:db8:1::2"
)

// World is one set of namespaces.
type World struct {
	Host, Peer, Far *NS
	names           []string
}

const prefix = "gwt-"

var worlds atomic.Int32

// New makes a world. Close removes it.
func New() (w *World, err error) {
	removeStale()
	base := fmt.Sprintf("%s%d-%d-", prefix, os.Getpid(), worlds.Add(1))
	w = &World{Host: &NS{base + "host"}, Peer: &NS{base + "peer"}, Far: &NS{base + "far"}}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for _, n := range []*NS{w.Host, w.Peer, w.Far} {
		if _, err := run("ip", "netns", "add", n.Name); err != nil {
			return w, err
		}
		w.names = append(w.names, n.Name)
		if err := n.prepare(); err != nil {
			return w, err
		}
	}
	if err := w.wire(); err != nil {
		return w, err
	}
	return w, w.Resolver("nameserver " + ServiceV4 + "\nnameserver " + ServiceV6 + "\nsearch lab.example\n")
}

// Add makes a namespace beside the world, connected to nothing: what is to be connected by the program under test.
func (w *World) Add(name string) (*NS, error) {
	n := &NS{strings.TrimSuffix(w.Host.Name, "host") + name}
	if _, err := run("ip", "netns", "add", n.Name); err != nil {
		return nil, err
	}
	w.names = append(w.names, n.Name)
	return n, n.prepare()
}

// Remove removes a namespace of Add before the world ends.
func (w *World) Remove(n *NS) error {
	w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == n.Name })
	_, err := run("ip", "netns", "del", n.Name)
	return err
}

// prepare sets what every namespace of the world has: loopback up, no waiting for duplicate address detection, ping sockets, unlimited ICMP errors.
func (n *NS) prepare() error {
	if err := n.ip("link set lo up"); err != nil {
		return err
	}
	for key, v := range map[string]string{
		"ipv6.conf.default.accept_dad": "0", "ipv6.conf.all.accept_dad": "0", "ipv6.conf.default.accept_ra": "0",
		"ipv4.ping_group_range": "0 2147483647", "ipv4.ip_unprivileged_port_start": "0", "ipv4.icmp_ratelimit": "0", "ipv6.icmp.ratelimit": "0", "ipv4.icmp_msgs_per_sec": "100000",
	} {
		if err := n.Sysctl(key, v); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return err // some of these exist only in the first namespace on older kernels
		}
	}
	return nil
}

// wire joins the namespaces and gives them addresses and routes.
func (w *World) wire() error {
	if _, err := run("ip", "link", "add", "eth0", "netns", w.Host.Name, "type", "veth", "peer", "name", "eth0", "netns", w.Peer.Name); err != nil {
		return err
	}
	if _, err := run("ip", "link", "add", "eth1", "netns", w.Peer.Name, "type", "veth", "peer", "name", "eth0", "netns", w.Far.Name); err != nil {
		return err
	}
	for _, s := range []struct {
		ns   *NS
		args string
	}{
		{w.Host, "addr add " + HostV4 + "/24 dev eth0"}, {w.Host, "addr add " + HostV6 + "/64 dev eth0 nodad"}, {w.Host, "link set eth0 up"},
		// The service address first: it is the one that servers bound to no address (iperf3, netserver) answer UDP from.
		{w.Peer, "addr add " + ServiceV4 + "/24 dev eth0"}, {w.Peer, "addr add " + ServiceV6 + "/64 dev eth0 nodad"},
		{w.Peer, "addr add " + GatewayV4 + "/24 dev eth0"}, {w.Peer, "addr add " + GatewayV6 + "/64 dev eth0 nodad"},
		{w.Peer, "addr add " + RouterV4 + "/24 dev eth1"}, {w.Peer, "addr add " + RouterV6 + "/64 dev eth1 nodad"},
		{w.Peer, "link set eth0 up"}, {w.Peer, "link set eth1 up"},
		{w.Far, "addr add " + FarV4 + "/24 dev eth0"}, {w.Far, "addr add " + FarV6 + "/64 dev eth0 nodad"}, {w.Far, "link set eth0 up"},
		{w.Host, "route add default via " + GatewayV4}, {w.Host, "-6 route add default via " + GatewayV6},
		{w.Far, "route add default via " + RouterV4}, {w.Far, "-6 route add default via " + RouterV6},
	} {
		args := s.args
		if rest, v6 := strings.CutPrefix(args, "-6 "); v6 {
			if _, err := run(append([]string{"ip", "-6", "-n", s.ns.Name}, strings.Fields(rest)...)...); err != nil {
				return err
			}
			continue
		}
		if err := s.ns.ip(args); err != nil {
			return err
		}
	}
	if err := w.Peer.Sysctl("ipv4.ip_forward", "1"); err != nil {
		return err
	}
	return w.Peer.Sysctl("ipv6.conf.all.forwarding", "1")
}

// Resolver writes the resolv.conf that programs in the host namespace see (ip-netns(8): files in /etc/netns/NAME are mounted over /etc).
func (w *World) Resolver(text string) error {
	dir := filepath.Join("/etc/netns", w.Host.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(text), 0o644)
}

// Close removes the namespaces. Processes that still run in them keep them alive until they end.
func (w *World) Close() {
	for _, name := range w.names {
		_, _ = run("ip", "netns", "del", name)
		_ = os.RemoveAll(filepath.Join("/etc/netns", name))
	}
	w.names = nil
}

// removeStale deletes the namespaces of runs that were killed: those named after a process that is gone.
func removeStale() {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(id)
		if err != nil || pid == os.Getpid() || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		_, _ = run("ip", "netns", "del", e.Name())
		_ = os.RemoveAll(filepath.Join("/etc/netns", e.Name()))
	}
}

func run(argv ...string) (string, error) { return spawn.Run(10*time.Second, spawn.Options{}, argv...) }
