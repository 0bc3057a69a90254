package e2e

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
)

// shared is what all tests of this run use.
var shared struct {
	lab                  *lab.Lab
	dir                  string
	guestwire, guestprog string
	kind                 string // backend.Guestwire or backend.Passt
	initrds              []string
	vsockKind            string // backend.Guestwire or backend.VhostDeviceVSock
	vsockInitrds         []string
	accel                string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("GUESTWIRE_E2E") == "" {
		return m.Run() // each test skips
	}
	if err := setUp(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		return 1
	}
	if os.Getenv("GUESTWIRE_E2E_KEEP") == "" {
		defer os.RemoveAll(shared.dir)
	}
	return m.Run()
}

func setUp() (err error) {
	if shared.lab, err = lab.Prepare(lab.All, os.Stderr); err != nil {
		return err
	}
	if shared.dir = os.Getenv("GUESTWIRE_E2E_KEEP"); shared.dir != "" {
		err = os.MkdirAll(shared.dir, 0o755)
	} else {
		shared.dir, err = os.MkdirTemp("", "guestwire-e2e-")
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(shared.dir, 0o755); err != nil { // passt becomes nobody
		return err
	}
	if shared.kind = os.Getenv("GUESTWIRE_E2E_BACKEND"); shared.kind == "" {
		shared.kind = backend.Guestwire
	}
	if shared.guestprog, err = shared.lab.Build(shared.dir, "./test/harness/guestprog"); err != nil {
		return err
	}
	if shared.vsockKind = os.Getenv("GUESTWIRE_E2E_VSOCK_BACKEND"); shared.vsockKind == "" {
		shared.vsockKind = backend.Guestwire
	}
	if shared.guestwire = os.Getenv("GUESTWIRE_BIN"); shared.guestwire == "" {
		if shared.guestwire, err = shared.lab.Build(shared.dir, "./cmd/guestwire"); err != nil {
			return err
		}
	}
	shared.accel = shared.lab.Accel()
	if shared.initrds, err = shared.lab.Initrds(shared.dir, shared.guestprog, "iperf3"); err != nil {
		return err
	}
	dir := filepath.Join(shared.dir, "vsock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	shared.vsockInitrds, err = shared.lab.Initrds(dir, shared.guestprog, "vsock_test", "vsock_perf", "vsock_diag_test", "socat", "ncat", shared.guestwire)
	return err
}

// env is one backend with its world and, usually, one guest.
type env struct {
	t      *testing.T
	w      *netns.World
	svc    *hostsvc.Services
	d      *backend.Daemon
	g      *guest.Guest
	dir    string
	stream bool
}

// setup is how a test wants its env.
type setup struct {
	uml     bool
	stream  bool
	mtu     int
	hotplug bool
	args    []string // of guestwire
	device  []string // of virtio-net-pci
	tcp     []string
	udp     []string
	profile string // "" fits the guest
	noGuest bool
}

// forwardPort of every address of the host leads to the guest's traffic server, TCP and UDP.
const forwardPort = 18080

func newEnv(t *testing.T, s setup) *env {
	t.Helper()
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	e := &env{t: t, stream: s.stream, dir: filepath.Join(shared.dir, dirName(t.Name()))}
	var err error
	if e.w, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.w.Close)
	if e.svc, err = hostsvc.Start(e.w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.svc.Close)
	args := s.args
	if s.profile == "" && s.uml {
		s.profile = "uml"
	}
	if s.profile != "" && !passt() {
		args = append([]string{"--profile", s.profile}, args...)
	}
	forward := fmt.Sprintf("%d:%d", forwardPort, hostsvc.Port)
	e.d, err = backend.Start(shared.lab, e.w, backend.Config{
		Kind: shared.kind, Binary: shared.guestwire, Stream: s.stream, MTU: s.mtu, Dir: e.dir,
		TCP: append([]string{forward}, s.tcp...), UDP: append([]string{forward}, s.udp...), Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.d.Kill() })
	t.Cleanup(e.report)
	if !s.noGuest {
		e.boot(s)
	}
	return e
}

// dirName makes a short folder name of a test's: socket paths have 107 bytes at most.
func dirName(test string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, test)
	if len(clean) <= 40 {
		return clean
	}
	h := fnv.New32a()
	h.Write([]byte(test))
	return fmt.Sprintf("%s-%08x", clean[:30], h.Sum32())
}

// boot starts the guest; it can be called again after e.g. Stop.
func (e *env) boot(s setup) {
	e.t.Helper()
	start := time.Now()
	var err error
	if s.uml {
		e.g, err = guest.StartUML(guest.UMLConfig{Kernel: shared.lab.UML(), Tree: shared.lab.Tree(), Prog: shared.guestprog, Dir: filepath.Join(e.dir, "guest"),
			Sockets: []string{e.d.Config.Socket}})
	} else {
		c := guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.initrds, Dir: filepath.Join(e.dir, "guest"), Accel: shared.accel, Hotplug: s.hotplug}
		if s.stream {
			c.Net, c.Private = guest.Stream(e.d.Config.Socket, s.device...), true
		} else {
			c.Net = guest.VhostUser(e.d.Config.Socket, s.device...)
		}
		c.Dir = filepath.Join(e.dir, "guest")
		if err = os.MkdirAll(c.Dir, 0o755); err == nil {
			e.g, err = guest.StartQEMU(c)
		}
	}
	if err != nil {
		e.t.Fatalf("boot: %v", err)
	}
	g := e.g
	e.t.Cleanup(g.Stop)
	e.t.Logf("%s guest up after %.1f s", e.g.Name, time.Since(start).Seconds())
}

// report shows what is known when a test has failed.
func (e *env) report() {
	if !e.t.Failed() {
		return
	}
	e.t.Logf("--- end of the daemon's log:\n%s", e.d.Tail(40))
	if e.g != nil {
		e.t.Logf("--- end of the guest's console:\n%s", e.g.Console(25))
	}
}

// sh runs a command in the guest that must succeed.
func (e *env) sh(t *testing.T, command string) string {
	t.Helper()
	return e.shFor(t, guest.CommandTimeout, command)
}

func (e *env) shFor(t *testing.T, limit time.Duration, command string) string {
	t.Helper()
	out, err := e.g.CheckFor(limit, command)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// passt tells whether the peer is being tested, to leave out what it does not promise.
func passt() bool { return shared.kind == backend.Passt }
