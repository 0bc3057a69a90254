package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// guestwire run gives the VM a CID and both directions of vsock beside its network card.
func TestQEMURunVSock(t *testing.T) {
	guestwireOnly(t)
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	e := &venv{t: t, dir: filepath.Join(shared.dir, dirName(t.Name())), srv: traffic.NewServer()}
	dir := filepath.Join(e.dir, "guest0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	uds := filepath.Join(e.dir, "vm.vsock")
	e.serve(uds)
	g, err := guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.vsockInitrds, Dir: dir, Accel: shared.accel, Private: true,
		Wrap: []string{shared.guestwire, "run", "--uds-path", uds, "--wait", "10s", "--"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	e.g = []*guest.Guest{g}
	e.startServer(0)
	if s := g.Console(200); !strings.Contains(s, "vsock CID ") || !strings.Contains(s, "clients connect to "+uds) {
		t.Errorf("the ready line says neither the CID nor where clients connect:\n%s", s)
	}
	toGuest := func() (net.Conn, error) {
		c, _, err := vsock.DialGuest(uds, guestPort, 10*time.Second)
		return c, err
	}
	if err := traffic.GetIn(toGuest, 1_000_000, 1, 64<<10, time.Minute); err != nil {
		t.Errorf("host to guest: %v", err)
	}
	t.Log(e.sh(t, 0, fmt.Sprintf("guestprog put %s 3000000 1 && guestprog get %s 3000000 2", toHost, toHost)))
	if err := g.PowerOff(); err != nil {
		t.Errorf("the exit of a VM that powered off: %v\n%s", err, g.Console(20))
	}
}
