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
	"guestwire/test/harness/guest"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// Ports of the traffic servers: the guest's, and the host's that the guest reaches.
const (
	guestPort = 7777
	hostPort  = 7700
)

// venv is one vsock device with its guests.
type venv struct {
	t   *testing.T
	d   *backend.VSock
	g   []*guest.Guest
	srv *traffic.Server // what the guests reach at hostPort
	dir string

	brief bool // the kernel has had the whole test, or another has
}

// vsetup is how a test wants its venv.
type vsetup struct {
	uml     bool
	newest  bool // the newest QEMU, not this machine's
	stable  bool // the kernel of Debian's stable release, not the newest
	guests  int  // 1 when 0; siblings otherwise
	hotplug bool // the device sits where it can be unplugged
	args    []string
}

func newVenv(t *testing.T, s vsetup) *venv {
	t.Helper()
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	e := &venv{t: t, dir: filepath.Join(shared.dir, dirName(t.Name())), srv: traffic.NewServer()}
	c := backend.VSockConfig{Kind: shared.vsockKind, Binary: shared.guestwire, Dir: filepath.Join(e.dir, "d"), Args: s.args}
	for i := range max(1, s.guests) {
		c.CIDs = append(c.CIDs, uint32(3+i))
	}
	var err error
	if e.d, err = backend.StartVSock(shared.lab, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.d.Kill() })
	t.Cleanup(e.report)
	for i := range c.CIDs {
		e.serve(e.d.Path(i))
	}
	for i := range c.CIDs {
		e.boot(s, i)
	}
	return e
}

// serve has the host's traffic server answer the guest behind path.
func (e *venv) serve(path string) net.Listener {
	e.t.Helper()
	l, err := net.Listen("unix", fmt.Sprintf("%s_%d", path, hostPort))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { l.Close() })
	go e.srv.Serve(l)
	return l
}

// boot starts guest i, with its own traffic server.
func (e *venv) boot(s vsetup, i int) {
	e.t.Helper()
	start := time.Now()
	dir := filepath.Join(e.dir, fmt.Sprint("guest", i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		e.t.Fatal(err)
	}
	var g *guest.Guest
	var err error
	if s.uml {
		g, err = guest.StartUML(guest.UMLConfig{Kernel: shared.lab.UML(), Tree: shared.lab.Tree(), Prog: shared.guestprog, Dir: dir, VSock: e.d.Socket(i), Add: []string{shared.guestwire}})
	} else {
		g, err = guest.StartQEMU(e.qemu(s, i, dir))
	}
	if err != nil {
		e.t.Fatalf("boot: %v", err)
	}
	e.t.Cleanup(g.Stop)
	if i < len(e.g) {
		e.g[i] = g
	} else {
		e.g = append(e.g, g)
	}
	e.startServer(i)
	e.t.Logf("%s guest %d up after %.1f s", g.Name, i, time.Since(start).Seconds())
}

func (e *venv) qemu(s vsetup, i int, dir string) guest.QEMUConfig {
	c := guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.vsockInitrds, Dir: dir, Accel: shared.accel, VSock: guest.VhostUserVSock(e.d.Socket(i))}
	if s.stable {
		k := shared.lab.Stable()
		c.Kernel, c.Initrds = k.Vmlinuz(), k.Rebase(c.Initrds)
	}
	if s.newest || i == 1 { // of two siblings each has its own
		c.Wrap, c.Binary, c.Extra, c.Env = shared.lab.QEMU()
	}
	if s.hotplug {
		c.VSock = guest.VhostUserVSock(e.d.Socket(i), "bus=slot0")
		c.VSock = append([]string{"-device", "pcie-root-port,id=slot0"}, c.VSock...)
	}
	if s.guests == 2 { // a wire between the two, for the control connection of vsock_test
		c.Net = guest.LinkTo(filepath.Join(e.dir, "wire"), i == 0, fmt.Sprintf("52:54:00:12:34:%02x", 0x10+i))
	}
	return c
}

func (e *venv) startServer(i int) {
	e.t.Helper()
	if _, err := e.g[i].Start(0, fmt.Sprintf("setsid guestprog serve vsock:%d >/tmp/serve.log 2>&1 & echo $! >/tmp/serve.pid", guestPort)); err != nil {
		e.t.Fatal(err)
	}
	e.sh(e.t, i, "for i in $(seq 100); do grep -q serving /tmp/serve.log && exit 0; sleep 0.1; done; cat /tmp/serve.log; exit 1")
}

// toGuest opens connections to the traffic server of guest i.
func (e *venv) toGuest(i int) traffic.Dialer {
	return func() (net.Conn, error) {
		c, _, err := vsock.DialGuest(e.d.Path(i), guestPort, 10*time.Second)
		return c, err
	}
}

// toHost is the host's traffic server as a guest writes its address.
var toHost = fmt.Sprintf("vsock:%d:%d", vsock.Host, hostPort)

func (e *venv) sh(t *testing.T, i int, command string) string {
	t.Helper()
	return e.shFor(t, i, guest.CommandTimeout, command)
}

func (e *venv) shFor(t *testing.T, i int, limit time.Duration, command string) string {
	t.Helper()
	out, err := e.g[i].CheckFor(limit, command)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// report shows what is known when a test has failed.
func (e *venv) report() {
	if !e.t.Failed() {
		return
	}
	e.t.Logf("--- end of the daemon's log:\n%s", e.d.Tail(40))
	for i, g := range e.g {
		e.t.Logf("--- end of the console of guest %d:\n%s", i, g.Console(25))
	}
}

// peer tells whether the peer is being tested, to leave out what it does not promise.
func vsockPeer() bool { return shared.vsockKind == backend.VhostDeviceVSock }
