package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// `guestwire daemon` serves several guests from one file. When the worker of one is killed, it comes back, and the others do not notice.
func TestDaemon(t *testing.T) {
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs root and the lab: run `make test`")
	}
	w, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	dir := filepath.Join(shared.dir, "daemon")
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"one", "two"} {
		if err := os.MkdirAll(path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := fmt.Sprintf(`guests:
  one:
    net:
      socket-path: %[1]s/one-net.sock
    vsock:
      socket-path: %[1]s/one-vsock.sock
      guest-cid: 3
      uds-path: %[1]s/one.vsock
  two:
    vsock:
      socket-path: %[1]s/two-vsock.sock
      guest-cid: 4
      uds-path: %[1]s/two.vsock
`, dir)
	if err := os.WriteFile(path("guests.yaml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := spawn.Start(spawn.Options{NS: w.Host.Name, Log: path("daemon.log")}, shared.guestwire, "daemon", "--config", path("guests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- end of the daemon's log:\n%s", d.Tail(30))
		}
	})
	if err := d.WaitOutput("ready, 2 workers", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	one, err := guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.vsockInitrds, Dir: path("one"), Accel: shared.accel,
		Net: guest.VhostUser(path("one-net.sock")), VSock: guest.VhostUserVSock(path("one-vsock.sock"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Stop)
	two, err := guest.StartUML(guest.UMLConfig{Kernel: shared.lab.UML(), Tree: shared.lab.Tree(), Prog: shared.guestprog, Dir: path("two"), VSock: path("two-vsock.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.Stop)
	check := func(g *guest.Guest, command string) {
		t.Helper()
		if _, err := g.Check(command); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []*guest.Guest{one, two} {
		check(g, fmt.Sprintf("setsid guestprog serve vsock:%d >/tmp/serve.log 2>&1 & for i in $(seq 100); do grep -q serving /tmp/serve.log && exit 0; sleep 0.1; done; exit 1", guestPort))
	}
	to := func(name string) traffic.Dialer {
		return func() (net.Conn, error) {
			c, _, err := vsock.DialGuest(path(name), guestPort, 10*time.Second)
			return c, err
		}
	}
	for _, name := range []string{"one.vsock", "two.vsock"} {
		if err := traffic.Put(to(name), 1000000, 1, 30*time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(one, "ip link set eth0 up && udhcpc -i eth0 -n -q -t 10 -T 1 && ping -c 1 -W 3 "+backend.Gateway4)

	c, err := to("two.vsock")()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(90 * time.Second))
	echo := func(line string) {
		t.Helper()
		b := make([]byte, len(line))
		_, _ = io.WriteString(c, line)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != line {
			t.Fatalf("the connection to the other guest: %q, %v; want %q", b, err, line)
		}
	}
	if _, err := io.WriteString(c, "echo\n"); err != nil {
		t.Fatal(err)
	}
	echo("before\n")
	worker := listener(t, path("one-net.sock"), d.PID())
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	echo("after\n")
	check(one, "for i in $(seq 60); do ping -c 1 -W 1 "+backend.Gateway4+" >/dev/null && exit 0; sleep 0.5; done; exit 1")
	if now := listener(t, path("one-net.sock"), d.PID()); now == worker {
		t.Errorf("process %d was killed and is still there", worker)
	}
	echo("in the end\n")
	if err := d.Stop(10 * time.Second); err != nil {
		t.Errorf("orderly stop: %v", err)
	}
	for _, s := range []string{"one-net.sock", "one-vsock.sock", "one.vsock", "two-vsock.sock", "two.vsock"} {
		if _, err := os.Lstat(path(s)); err == nil {
			t.Errorf("%s is still there", s)
		}
	}
}

// listener finds the child of parent that has the socket at path open.
func listener(t *testing.T, path string, parent int) int {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", parent))
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for line := range strings.Lines(string(table)) { // proc_net(5): Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) == 8 && f[7] == path {
			inodes["socket:["+f[6]+"]"] = true
		}
	}
	var children string
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) // any thread may be the one that has started it
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		children += string(b) + " "
	}
	for _, word := range strings.Fields(children) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && inodes[to] {
				return pid
			}
		}
	}
	t.Fatalf("no child of %d listens on %s", parent, path)
	return 0
}
