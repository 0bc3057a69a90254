package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The kernel's own suite for its vsock transports, vsock_test, between two sibling guests: everything that a guest's sockets may expect of a device.
func TestVSockConformance(t *testing.T) {
	e := newVenv(t, vsetup{guests: 2})
	for i := range e.g {
		e.sh(t, i, fmt.Sprintf("ip addr add 10.9.0.%d/24 dev eth0 && ip link set eth0 up", i+1))
	}
	e.sh(t, 1, "for i in $(seq 50); do ping -c 1 -W 1 10.9.0.1 >/dev/null && exit 0; done; exit 1")
	names := map[int]string{}
	for line := range strings.Lines(e.sh(t, 0, "vsock_test --mode server --control-port 1 --peer-cid 4 --list; true")) {
		if id, name, ok := strings.Cut(line, "\t"); ok {
			if n, err := strconv.Atoi(id); err == nil {
				names[n] = strings.TrimSpace(name)
			}
		}
	}
	if len(names) < 41 {
		t.Fatalf("vsock_test lists %d tests, want 41", len(names))
	}
	passed := 0
	for id := range len(names) {
		if t.Run(fmt.Sprintf("%02d %s", id, names[id]), func(t *testing.T) { e.vsockTest(t, id) }) {
			passed++
		}
	}
	t.Logf("%d of %d", passed, len(names))
	if vsockPeer() && (passed < 26 || passed > 27) { // what the harness is known to find out about it; test 38 goes either way
		t.Errorf("the peer passes %d, 26 or 27 are known", passed)
	}
}

// vsockTest runs one test of the suite, each with a control connection of its own, so that one that fails does not take the others along.
func (e *venv) vsockTest(t *testing.T, id int) {
	const limit = 30 * time.Second
	port := 10000 + id
	command := func(mode, host string, cid int) string {
		return fmt.Sprintf("vsock_test --mode %s --control-host %s --control-port %d --peer-cid %d --pick %d", mode, host, port, cid, id)
	}
	server, err := e.g[0].Start(limit, command("server", "0.0.0.0", 4))
	if err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, fmt.Sprintf("until grep -q ':%04X 00000000:0000 0A' /proc/net/tcp; do sleep 0.02; done", port))
	out, exit := e.g[1].RunFor(limit, command("client", "10.9.0.1", 3))
	if exit != 0 {
		t.Errorf("client: exit %d: %s", exit, out)
	}
	if out, exit, err := server.Wait(); err != nil || exit != 0 {
		t.Errorf("server: exit %d, %v: %s", exit, err, out)
	} else if !strings.Contains(out, fmt.Sprintf("%d - ", id)) || !strings.Contains(out, "...ok") {
		t.Errorf("the server does not say that test %d was done: %s", id, out)
	}
}
