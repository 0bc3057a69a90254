package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
)

// vhostEnv is a QEMU guest whose kernel has vhost-net, where guestwire connects namespaces. The guest is the host here: the traffic servers are on its
// loopback, which the namespaces reach at their gateway, and on the address far of a dummy interface.
type vhostEnv struct {
	t *testing.T
	g *guest.Guest
}

const (
	vhostFar  = "198.51.100.9"
	vhostPort = 7700 // of the servers outside the namespaces
)

func newVhost(t *testing.T) *vhostEnv {
	t.Helper()
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	dir := filepath.Join(shared.dir, dirName(t.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.vsockInitrds, Dir: dir, Accel: shared.accel, MemMiB: 1024, Private: true,
		Net: []string{"-device", "virtio-net-pci"}} // connected to nothing
	c.Wrap, c.Binary, c.Extra, c.Env = shared.lab.QEMU()
	g, err := guest.StartQEMU(c)
	if err != nil {
		t.Fatalf("boot: %v", err)
	}
	t.Cleanup(g.Stop)
	e := &vhostEnv{t, g}
	e.sh(t, "modprobe tun; modprobe dummy numdummies=0; ip link add far0 type dummy && ip addr add "+vhostFar+"/24 dev far0 && ip link set far0 up && mkdir -p /run/netns")
	e.start(fmt.Sprintf("guestprog serve %d", vhostPort), "/tmp/serve.log", "serving")
	return e
}

func (e *vhostEnv) sh(t *testing.T, command string) string {
	t.Helper()
	out, err := e.g.CheckFor(2*time.Minute, command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start starts a command that says when it is ready. Its process is in LOG.pid.
func (e *vhostEnv) start(command, log, ready string) {
	e.t.Helper()
	if _, err := e.g.Start(0, fmt.Sprintf("setsid %s >%s 2>&1 & echo $! >%s.pid", command, log, log)); err != nil {
		e.t.Fatal(err)
	}
	e.sh(e.t, fmt.Sprintf("for i in $(seq 200); do grep -q %s %s 2>/dev/null && exit 0; sleep 0.1; done; cat %s; exit 1", guest.Quote(ready), log, log))
}

// namespace makes an empty one, of a process of its own, with traffic servers at 7777.
func (e *vhostEnv) namespace(name string) {
	e.t.Helper()
	e.start("unshare -n sh -c 'ip link set lo up; echo made; exec sleep 10000'", "/tmp/ns-"+name, "made")
	e.sh(e.t, fmt.Sprintf("touch /run/netns/%[1]s; mount --bind /proc/$(cat /tmp/ns-%[1]s.pid)/ns/net /run/netns/%[1]s", name))
	e.start(fmt.Sprintf("nsenter --net=/run/netns/%s guestprog serve 7777", name), "/tmp/ns-"+name+".serve", "serving")
}

// connect has guestwire be the namespace's network card.
func (e *vhostEnv) connect(name, vhost string, args ...string) {
	e.t.Helper()
	e.start(fmt.Sprintf("guestwire netns --config-net --map-host-loopback %s --map-host-loopback %s --vhost-kernel %s %s %s",
		backend.Gateway4, backend.Gateway6, vhost, strings.Join(args, " "), name), "/tmp/gw-"+name, "ready on")
}

// stats is what the daemon of a namespace counts.
func (e *vhostEnv) stats(t *testing.T, name string) string {
	t.Helper()
	return e.sh(t, fmt.Sprintf("f=/tmp/gw-%s; kill -USR1 $(cat $f.pid); for i in $(seq 50); do grep -q ^net_tx_frames $f && break; sleep 0.1; done; sleep 0.2; cat $f; sed -i '/^[a-z_0-9]* [0-9]*$/d' $f", name))
}

// in runs a command in the namespace.
func in(name, command string) string { return "nsenter --net=/run/netns/" + name + " " + command }

// ended waits until the daemon of a namespace has ended by itself.
func (e *vhostEnv) ended(t *testing.T, name string) {
	t.Helper()
	e.sh(t, fmt.Sprintf("f=/tmp/gw-%s; for i in $(seq 100); do kill -0 $(cat $f.pid) 2>/dev/null || exit 0; sleep 0.1; done; cat $f; exit 1", name))
}

// exchanges are those of a traffic server at a place: hashes both ways, half-closes, resets, many at a time, datagrams of all sizes.
func exchanges(at string) []string {
	var list []string
	for _, c := range []string{"get %s 8000000 1", "put %s 8000000 2", "get %s 300000 3 100", "half %s 1000000 4 h", "reset-in %s", "reset-out %s r",
		"parallel %s 50 20000", "udp-sizes %s 0 1 100 1400 1472 1473 9000 60000"} {
		list = append(list, fmt.Sprintf("guestprog "+c, at))
	}
	return list
}

// The kernel's vhost-net moves the frames of namespaces; nothing else differs from a tap that is read and written.
func TestVhostNet(t *testing.T) {
	e := newVhost(t)
	t.Run("without the module", e.without)
	e.sh(t, "modprobe vhost_net")
	t.Run("traffic", e.traffic)
	t.Run("ends", e.ends)
	t.Run("kills", e.kills)
	t.Run("a command", func(t *testing.T) {
		out := e.sh(t, "guestwire netns --map-host-loopback 10.0.2.2 --vhost-kernel fd:9 -- guestprog get 10.0.2.2:7700 1000000 1 9<>/dev/vhost-net")
		if !strings.Contains(out, "hash correct") {
			t.Error(out)
		}
	})
}

// without: `on` says why not, `auto` goes on without it.
func (e *vhostEnv) without(t *testing.T) {
	if out, exit := e.g.Run("guestwire netns --vhost-kernel on -- true"); exit == 0 || !strings.Contains(out, "modprobe vhost_net") {
		t.Errorf("on, without the kernel's module: exit %d: %s", exit, out)
	}
	e.namespace("plain")
	e.connect("plain", "auto")
	e.sh(t, in("plain", exchanges(backend.Gateway4 + ":7700")[0]))
	if s := e.stats(t, "plain"); !strings.Contains(s, "net_vhost_fallback 1") || strings.Contains(s, "net_vhost_kicks") {
		t.Errorf("statistics after the fallback:\n%s", s)
	}
	e.sh(t, "kill $(cat /tmp/gw-plain.pid)")
	e.ended(t, "plain")
}

func (e *vhostEnv) traffic(t *testing.T) {
	for _, mtu := range []int{1500, 65520} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			name := fmt.Sprint("m", mtu)
			e.namespace(name)
			e.connect(name, "auto", "--mtu", fmt.Sprint(mtu), "-t", "18080:7777", "-u", "18080:7777")
			fds := fmt.Sprintf("ls /proc/$(cat /tmp/gw-%s.pid)/fd | wc -l", name)
			before := strings.TrimSpace(e.sh(t, fds))
			for _, a := range []string{backend.Gateway4, "[" + backend.Gateway6 + "]"} {
				for _, c := range exchanges(a + ":7700") {
					e.sh(t, in(name, c))
				}
			}
			for _, c := range exchanges(vhostFar + ":18080") { // of the guest's own address: not the short way of its loopback
				e.sh(t, c)
			}
			s := e.stats(t, name)
			if !strings.Contains(s, "net_vhost_kicks ") || !strings.Contains(s, "net_vhost_broken 0") || !strings.Contains(s, "net_drop_rx_offload 0") {
				t.Errorf("statistics:\n%s", s)
			}
			// The three UDP flows live on for a while.
			e.sh(t, fmt.Sprintf("for i in $(seq 100); do [ $(%s) -le $((%s + 3)) ] && exit 0; sleep 0.1; done; ls -l /proc/$(cat /tmp/gw-%s.pid)/fd; exit 1", fds, before, name))
			e.sh(t, fmt.Sprintf("kill $(cat /tmp/gw-%s.pid)", name))
			e.ended(t, name)
			if out := e.sh(t, in(name, "ip -o link")); strings.Contains(out, "eth0") {
				t.Errorf("the interface is still there:\n%s", out)
			}
		})
	}
}

// ends: the daemon ends with the interface, and with the namespace.
func (e *vhostEnv) ends(t *testing.T) {
	e.namespace("short")
	e.connect("short", "on")
	e.sh(t, in("short", "ip link del eth0"))
	e.ended(t, "short")
	e.connect("short", "on")
	e.sh(t, in("short", exchanges(backend.Gateway4 + ":7700")[0]))
	e.sh(t, "umount /run/netns/short; rm /run/netns/short; kill $(cat /tmp/ns-short.pid); killall -q sleep")
	e.ended(t, "short")
}

// kills: whatever the moment, the kernel lets go of everything, and the next daemon works.
func (e *vhostEnv) kills(t *testing.T) {
	e.namespace("kill")
	for i := range 8 {
		e.connect("kill", "on")
		for _, what := range []string{"get", "put"} {
			if _, err := e.g.Start(0, in("kill", fmt.Sprintf("guestprog %s %s:7700 400000000 1 >/dev/null 2>&1", what, backend.Gateway4))); err != nil {
				t.Fatal(err)
			}
		}
		e.sh(t, fmt.Sprintf("sleep 0.%d; kill -9 $(cat /tmp/gw-kill.pid)", 1+i))
		e.ended(t, "kill")
		e.sh(t, "for i in $(seq 100); do "+in("kill", "ip -o link")+" | grep -q eth0 || exit 0; sleep 0.1; done; exit 1")
	}
	e.connect("kill", "on")
	for _, c := range exchanges(backend.Gateway4 + ":7700") {
		e.sh(t, in("kill", c))
	}
	if out := e.sh(t, "dmesg | grep -E 'BUG:|WARNING|Call Trace|Oops' || true"); strings.TrimSpace(out) != "" {
		t.Errorf("the kernel says:\n%s", out)
	}
}
