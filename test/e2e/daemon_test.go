package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// Two siblings behind `guestwire daemon`, one with a network card: traffic by every way, and after the worker was killed the network card comes back by
// itself, the vsock device with a VM that starts anew.
func TestQEMUDaemon(t *testing.T) {
	guestwireOnly(t)
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	e := &venv{t: t, dir: filepath.Join(shared.dir, dirName(t.Name())), srv: traffic.NewServer()}
	for i := range 2 {
		if err := os.MkdirAll(filepath.Join(e.dir, fmt.Sprint("guest", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(e.dir, name) }
	file := fmt.Sprintf("guests:\n  a:\n    net: {socket-path: %s}\n    vsock: {socket-path: %s, guest-cid: 3, uds-path: %s, groups: pair}\n  b:\n    vsock: {socket-path: %s, guest-cid: 4, groups: pair}\n",
		at("a.net"), at("a.vsock"), at("a"), at("b.vsock"))
	if err := os.WriteFile(at("guests.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := spawn.Start(spawn.Options{Log: at("daemon.log")}, shared.guestwire, "daemon", "--config", at("guests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	if err := d.WaitOutput("daemon: ready, 1 workers", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	e.serve(at("a"))
	boot := func(i int, c guest.QEMUConfig) {
		t.Helper()
		c.Kernel, c.Initrds, c.Accel, c.Dir = shared.lab.Vmlinuz(), shared.vsockInitrds, shared.accel, at(fmt.Sprint("guest", i))
		g, err := guest.StartQEMU(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Stop)
		e.g = append(e.g[:i], append([]*guest.Guest{g}, e.g[min(i+1, len(e.g)):]...)...)
		e.startServer(i)
	}
	a := guest.QEMUConfig{Net: guest.VhostUser(at("a.net")), VSock: guest.VhostUserVSock(at("a.vsock"))}
	boot(0, a)
	boot(1, guest.QEMUConfig{VSock: guest.VhostUserVSock(at("b.vsock"))})
	all := func() {
		t.Helper()
		e.sh(t, 0, "ip link set eth0 up; ip addr replace 10.0.2.15/24 dev eth0; for i in $(seq 30); do ping -c1 -W1 10.0.2.2 && exit 0; done; exit 1")
		toGuest := func() (net.Conn, error) {
			c, _, err := vsock.DialGuest(at("a"), guestPort, 10*time.Second)
			return c, err
		}
		if err := traffic.GetIn(toGuest, 1_000_000, 1, 64<<10, time.Minute); err != nil {
			t.Errorf("host to guest: %v", err)
		}
		e.sh(t, 0, fmt.Sprintf("guestprog put %s 3000000 1", toHost))
		t.Log(e.sh(t, 0, fmt.Sprintf("guestprog get vsock:4:%d 3000000 2", guestPort)))
	}
	all()

	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.PID()))
	worker := 0
	for _, c := range children {
		b, _ := os.ReadFile(c)
		for _, p := range strings.Fields(string(b)) {
			worker, _ = strconv.Atoi(p)
		}
	}
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitOutput("signal: killed", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, "for i in $(seq 30); do ping -c1 -W1 10.0.2.2 && exit 0; done; exit 1")
	t.Log("the network card is back")
	for _, g := range e.g {
		g.Stop()
	}
	e.g = nil
	boot(0, a)
	boot(1, guest.QEMUConfig{VSock: guest.VhostUserVSock(at("b.vsock"))})
	all()
	if err := d.Stop(5 * time.Second); err != nil {
		t.Errorf("the daemon ends with %v:\n%s", err, d.Tail(20))
	}
}
