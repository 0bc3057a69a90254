package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// guestwireOnly skips a test of what the peer does otherwise.
func guestwireOnly(t *testing.T) {
	if passt() {
		t.Skip("about guestwire's own options")
	}
}

// Every way to withhold a feature leaves a device that works: the software paths for checksums and segmentation, single receive buffers, plain rings.
func TestUMLWithoutFeatures(t *testing.T) {
	guestwireOnly(t)
	for _, flags := range []string{
		"--no-tso --no-uso", "--no-csum", "--no-mrg-rxbuf", "--no-event-idx --no-indirect --no-in-order",
		"--no-tso --no-csum --no-uso --no-mrg-rxbuf --no-event-idx --no-indirect --no-in-order",
	} {
		t.Run(flags, func(t *testing.T) {
			e := newEnv(t, setup{uml: true, args: strings.Fields(flags)})
			e.configure(t)
			e.quick(t)
			e.sh(t, "guestprog udp-sizes "+service(netns.ServiceV4))
			e.sh(t, fmt.Sprintf("guestprog parallel %s 50 10000", service(netns.ServiceV6)))
		})
	}
}

// The largest MTU: announced by DHCP, used both ways.
func TestUMLJumbo(t *testing.T) {
	e := newEnv(t, setup{uml: true, mtu: 65520})
	e.configure(t)
	if got := e.sh(t, "cat /sys/class/net/eth0/mtu"); got != "65520" {
		t.Errorf("MTU %s", got)
	}
	e.quick(t)
	checkBulk(t, e)
	e.sh(t, "ping -c 3 -i 0.2 -W 3 -s 60000 -M dont "+backendPing())
}

func backendPing() string {
	if passt() {
		return netns.ServiceV4
	}
	return backend.Gateway4
}

// The host's loopback under an address of the user's choice, as QEMU's user networking has it.
func TestUMLMapHostLoopback(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{uml: true, args: []string{"--map-host-loopback", backend.Gateway4, "--map-host-loopback", backend.Gateway6}})
	e.configure(t)
	for _, a := range []string{backend.Gateway4, backend.Gateway6} {
		e.sh(t, fmt.Sprintf("guestprog get %s 1000000 3 && guestprog put %s 1000000 4 && guestprog udp-sizes %s 1 1400 5000", service(a), service(a), service(a)))
		e.sh(t, "guestprog refused "+net.JoinHostPort(a, "9"))
	}
}

// An address plan of the user's, one family alone, and the host's own addresses.
func TestUMLAddressing(t *testing.T) {
	guestwireOnly(t)
	t.Run("own plan", func(t *testing.T) {
		e := newEnv(t, setup{uml: true, args: []string{"--address", "192.168.50.20/28", "--gateway", "192.168.50.30", "--address", "fd00:50::20/64", "--gateway", "fd00:50::1",
			"--dns-forward", "192.168.50.29", "--mac-addr", "02:11:22:33:44:55", "--hostname", "vm7"}})
		e.configure(t)
		out := e.sh(t, "ip addr show dev eth0; ip route; cat /tmp/dhcp.bound; ping -c 1 -W 3 192.168.50.30; ip neigh")
		for _, want := range []string{"192.168.50.20/28", "default via 192.168.50.30", "dns=192.168.50.29", "hostname=vm7", "02:11:22:33:44:55", "fd00:50:"} {
			if !strings.Contains(out, want) {
				t.Errorf("missing %q in\n%s", want, out)
			}
		}
		if got := e.sh(t, "guestprog dns udp 192.168.50.29 www.lab.example A"); got != "192.0.2.80" {
			t.Errorf("DNS: %q", got)
		}
		e.quick(t)
	})
	t.Run("host's own", func(t *testing.T) {
		e := newEnv(t, setup{uml: true, args: []string{"--address", "host"}})
		e.sh(t, "ip link set eth0 up; udhcpc -i eth0 -n -q -t 10 -T 1 -O mtu -O search")
		out := e.sh(t, "ip addr show dev eth0; ip route")
		for _, want := range []string{netns.HostV4 + "/24", "default via " + netns.GatewayV4} {
			if !strings.Contains(out, want) {
				t.Errorf("missing %q in\n%s", want, out)
			}
		}
		e.sh(t, "guestprog get "+service(netns.ServiceV4)+" 1000000 2; guestprog get "+service(netns.FarV4)+" 1000000 2")
	})
	t.Run("IPv6 only", func(t *testing.T) {
		e := newEnv(t, setup{uml: true, args: []string{"--ipv6-only"}})
		e.sh(t, "ip link set eth0 up; for i in $(seq 50); do ip -6 route | grep -q default && break; sleep 0.2; done; sleep 1.5")
		e.sh(t, "guestprog get "+service(netns.ServiceV6)+" 1000000 2")
		if out, exit := e.g.Run("udhcpc -i eth0 -n -q -t 2 -T 1"); exit == 0 {
			t.Errorf("a lease although IPv4 is off: %s", out)
		}
	})
}

// dhcpcd is a client of every protocol at once: DHCPv4 with its probes, router advertisements and DHCPv6.
func TestUMLDhcpcd(t *testing.T) {
	e := newEnv(t, setup{uml: true})
	e.sh(t, "mkdir -p /var/lib/dhcpcd; ip link set eth0 up; dhcpcd -1 -t 25 --waitip=46 --nohook resolv.conf eth0 2>&1 || true; for i in $(seq 40); do "+
		"ip addr show dev eth0 | grep -q 'inet "+backend.Guest4+"' && ip addr show dev eth0 | grep 'inet6 fd' && exit 0; sleep 0.5; done; ip addr; exit 1")
	e.quick(t)
}

// The host's resolv.conf changes while the guest runs: its questions follow.
func TestUMLResolverFollowsHost(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{uml: true})
	e.configure(t)
	ask := func() (string, int) { return e.g.Run("guestprog dns udp " + backend.DNS4 + " www.lab.example A") }
	if out, exit := ask(); exit != 0 {
		t.Fatal(out)
	}
	other, err := hostsvc.StartDNS(e.w.Far, netns.FarV4)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	e.svc.DNS.Close()
	if err := e.w.Resolver("nameserver " + netns.FarV4 + "\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if out, exit := ask(); exit == 0 && strings.TrimSpace(out) == "192.0.2.80" && other.Queries.Load() > 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("still no answer from the new resolver: %s", out)
		}
	}
}

// A path with a smaller MTU behind the host: TCP finds it, and a datagram that may not be cut is answered with "too big".
func TestUMLPathMTU(t *testing.T) {
	e := newEnv(t, setup{uml: true})
	for _, c := range [][]string{{"ip", "link", "set", "eth1", "mtu", "1300"}} {
		if _, err := e.w.Peer.Run(5*time.Second, c...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.w.Far.Run(5*time.Second, "ip", "link", "set", "eth0", "mtu", "1300"); err != nil {
		t.Fatal(err)
	}
	e.configure(t)
	for _, a := range []string{netns.FarV4, netns.FarV6} {
		e.sh(t, fmt.Sprintf("guestprog get %s 3000000 3 && guestprog put %s 3000000 4", service(a), service(a)))
	}
	if passt() {
		return
	}
	e.sh(t, "guestprog udp-sizes "+service(netns.FarV4)+" 1400 5000")
	e.sh(t, "guestprog udp-sizes "+service(netns.FarV6)+" 1400 5000")
}

// The forms of forwards: one address, a range, a port of the kernel's choice, UDP alone; and an unusable one is told at the start.
func TestUMLForwardForms(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{uml: true, tcp: []string{"127.0.0.1/9000:7777", netns.HostV4 + "/9001-9003:7777-7779", "0:7777"}})
	e.configure(t)
	if _, err := e.g.Start(time.Hour, "for p in 7777 7778 7779; do guestprog serve $p & done; wait"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	at := func(from *netns.NS, addr string) traffic.Dialer {
		return func() (net.Conn, error) { return from.Dial("tcp", addr) }
	}
	for _, row := range []struct {
		from *netns.NS
		addr string
	}{{e.w.Host, "127.0.0.1:9000"}, {e.w.Peer, netns.HostV4 + ":9001"}, {e.w.Peer, netns.HostV4 + ":9003"}} {
		if err := traffic.Get(at(row.from, row.addr), 100000, 1, 10*time.Second); err != nil {
			t.Errorf("%s: %v", row.addr, err)
		}
	}
	if err := traffic.Refused(at(e.w.Peer, netns.HostV4+":9000")); err != nil {
		t.Errorf("a forward of the loopback address, from outside: %v", err)
	}
	m := regexp.MustCompile(`:(\d+) -> 7777`).FindAllStringSubmatch(e.d.Output(), -1)
	chosen := ""
	for _, x := range m {
		if p := x[1]; p != "9000" && p != fmt.Sprint(forwardPort) {
			chosen = p
		}
	}
	if chosen == "" {
		t.Fatalf("the ready line does not tell the chosen port: %s", e.d.Tail(5))
	}
	if err := traffic.Get(at(e.w.Peer, net.JoinHostPort(netns.HostV4, chosen)), 100000, 1, 10*time.Second); err != nil {
		t.Errorf("chosen port %s: %v", chosen, err)
	}
}

// What cannot work is refused at the start, with a message that names the flag or the thing.
func TestStartErrors(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{noGuest: true})
	busy, err := e.w.Host.Listen("tcp", "127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	file := filepath.Join(e.dir, "file")
	if err := os.WriteFile(file, []byte("keep me"), 0o644); err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(e.dir, "other.sock")
	for _, row := range []struct {
		args, want string
	}{
		{"--socket-path " + sock + " -t 127.0.0.1/7000:80", "7000"},
		{"--socket-path /nonexistent/dir/x.sock", "/nonexistent/dir"},
		{"--socket-path " + file, file},
		{"--socket-path " + e.d.Config.Socket, e.d.Config.Socket}, // another daemon's
		{"--socket-path " + sock + " --address 10.0.0.300", "10.0.0.300"},
		{"--socket-path " + sock + " --mtu 20", "mtu"},
		{"--socket-path " + sock + " -t 80:90:100", "80:90:100"},
		{"--socket-path " + sock + " --nonsense", "nonsense"},
		{"", "socket-path"},
	} {
		argv := append([]string{shared.guestwire, "net"}, strings.Fields(row.args)...)
		out, err := spawn.Run(5*time.Second, spawn.Options{NS: e.w.Host.Name}, argv...)
		if err == nil || errors.Is(err, spawn.ErrTimeout) {
			t.Errorf("%q: started: %v", row.args, err)
			continue
		}
		if !strings.Contains(out, row.want) {
			t.Errorf("%q: the message does not name %q: %s", row.args, row.want, out)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "keep me" {
		t.Errorf("a file that is no socket was removed: %q, %v", b, err)
	}
}

// SIGTERM ends the daemon in order: exit 0, its socket file removed.
func TestOrderlyStop(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{uml: true})
	e.configure(t)
	stats, err := e.d.Stats()
	if err != nil || len(stats) < 10 {
		t.Errorf("statistics: %d values, %v", len(stats), err)
	}
	if err := e.d.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := e.d.Wait(5 * time.Second); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if _, err := os.Stat(e.d.Config.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file stays: %v", err)
	}
}

// guestwire run: the user's own QEMU command line, completed; its exit code passed on.
func TestQEMURun(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{noGuest: true})
	dir := filepath.Join(e.dir, "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g, err := guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.initrds, Dir: dir, Accel: shared.accel, Private: true, NS: e.w.Host.Name,
		Wrap: []string{shared.guestwire, "run", "-t", "18081:7777", "--uds-path", filepath.Join(dir, "vm.vsock"), "--"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	e.g = g
	e.configure(t)
	e.quick(t)
	// It has a vsock device as well.
	if _, err := g.Start(0, fmt.Sprintf("setsid guestprog serve vsock:%d >/dev/null 2>&1 &", guestPort)); err != nil {
		t.Fatal(err)
	}
	d := traffic.Dialer(func() (net.Conn, error) {
		c, _, err := vsock.DialGuest(filepath.Join(dir, "vm.vsock"), guestPort, 10*time.Second)
		return c, err
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) { // until the guest listens
		if err := traffic.Put(d, 1000000, 1, 10*time.Second); err == nil {
			break
		} else if time.Now().After(end) {
			t.Errorf("vsock: %v", err)
			break
		}
	}
	if err := g.PowerOff(); err != nil {
		t.Errorf("the exit of a VM that powered off: %v\n%s", err, g.Console(20))
	}
	out, err := spawn.Run(10*time.Second, spawn.Options{NS: e.w.Host.Name}, shared.guestwire, "run", "--", "qemu-system-x86_64", "-machine", "no-such-machine")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("QEMU's own failure: %v: %s", err, out)
	}
}

// The frontend may be the one that listens: the daemon connects, and connects again.
func TestClientMode(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{noGuest: true})
	sock := filepath.Join(e.dir, "vmm.sock")
	u, err := e.w.Peer.ListenUDP(netns.ServiceV4 + ":9")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	d, err := spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: filepath.Join(e.dir, "client.log")}, shared.guestwire, "net", "--client", "--socket-path", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	for round := range 2 {
		p, err := shared.lab.StartTestPMD(lab.TestPMDConfig{Socket: sock, Device: []string{"mac=" + guest.MAC, "server=1"}, Forward: "txonly",
			Args: []string{"--eth-peer=0,52:55:0a:00:02:02", "--tx-ip=10.0.2.15," + netns.ServiceV4, "--tx-udp=1234,9", "--txpkts=256"},
			Log:  filepath.Join(e.dir, fmt.Sprintf("server-%d.log", round))})
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2048)
		_ = u.SetReadDeadline(time.Now().Add(20 * time.Second))
		for range 1000 {
			if _, err := u.Read(b); err != nil {
				t.Errorf("round %d: %v\n%s\n--- daemon:\n%s", round, err, p.Tail(20), d.Tail(10))
				break
			}
		}
		p.Kill()
		_ = os.Remove(sock)
		// Let what is still on its way pass before the next round counts.
		for {
			_ = u.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := u.Read(b); err != nil {
				break
			}
		}
	}
}

// A supervisor opens the socket and passes it on: listening or already connected, the daemon uses it as descriptor N.
func TestPassedDescriptor(t *testing.T) {
	guestwireOnly(t)
	e := newEnv(t, setup{noGuest: true})
	u, err := e.w.Peer.ListenUDP(netns.ServiceV4 + ":9")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	sock := filepath.Join(e.dir, "passed.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	d, err := spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: filepath.Join(e.dir, "fd.log"), Files: []*os.File{f}}, shared.guestwire, "net", "--fd", "3")
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	if err := d.WaitOutput("ready", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p, err := shared.lab.StartTestPMD(lab.TestPMDConfig{Socket: sock, Device: []string{"mac=" + guest.MAC}, Forward: "txonly",
		Args: []string{"--eth-peer=0,52:55:0a:00:02:02", "--tx-ip=10.0.2.15," + netns.ServiceV4, "--tx-udp=1234,9", "--txpkts=256"},
		Log:  filepath.Join(e.dir, "testpmd.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	_ = u.SetReadDeadline(time.Now().Add(20 * time.Second))
	for range 1000 {
		if _, err := u.Read(make([]byte, 2048)); err != nil {
			t.Fatalf("%v\n%s\n--- daemon:\n%s", err, p.Tail(20), d.Tail(10))
		}
	}
}
