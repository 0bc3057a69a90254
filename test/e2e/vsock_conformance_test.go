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
	if vsockPeer() {
		return
	}
	t.Run("diag", func(t *testing.T) {
		for i := range e.g { // it wants to be alone
			e.sh(t, i, "p=$(cat /tmp/serve.pid); kill $p; while [ -e /proc/$p/exe ]; do sleep 0.02; done")
			defer e.startServer(i)
		}
		e.kernelTest(t, "vsock_diag_test", 9999, "")
	})
	t.Run("Siblings", e.siblings)
}

// siblings moves bytes between the two guests, both ways, and has one of them reboot: the other is told at once, and finds it again.
func (e *venv) siblings(t *testing.T) {
	for i := range e.g {
		to := fmt.Sprintf("vsock:%d:%d", 4-i, guestPort)
		for _, chunk := range []int{100, 4096, 65536, 1 << 20} {
			n := min(8<<20, chunk*1000)
			e.sh(t, i, fmt.Sprintf("guestprog put %s %d 1 %d && guestprog get %s %d 2 %d", to, n, chunk, to, n, chunk))
		}
		e.sh(t, i, fmt.Sprintf("guestprog half %s 300000 3 from%d && guestprog slow %s 3000000 4 && guestprog parallel %s 100 4096 && guestprog churn %s 100", to, i, to, to, to))
		e.sh(t, i, fmt.Sprintf("guestprog seqpacket %d %d", 4-i, guestPort+1))
		e.sh(t, i, fmt.Sprintf("guestprog refused vsock:%d:9 && guestprog refused vsock:77:%d", 4-i, guestPort))
	}
	job, err := e.g[0].Start(time.Minute, fmt.Sprintf("guestprog ask vsock:4:%d hold reboot", guestPort))
	if err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, fmt.Sprintf("guestprog get vsock:4:%d 1000 1", guestPort)) // the one before is up by then, in all likelihood
	if err := e.g[1].Reboot(); err != nil {
		t.Fatal(err)
	}
	if out, exit, err := job.Wait(); err != nil || exit != 1 || strings.Contains(out, "timed out") {
		t.Errorf("a connection to the sibling that has rebooted: exit %d, %v: %s; want its end", exit, err, out)
	}
	e.startServer(1)
	e.sh(t, 0, fmt.Sprintf("guestprog put vsock:4:%d 1000000 1", guestPort))
	e.sh(t, 1, fmt.Sprintf("guestprog put vsock:3:%d 1000000 1", guestPort))
}

// vsockTest runs one test of the suite, each with a control connection of its own, so that one that fails does not take the others along.
func (e *venv) vsockTest(t *testing.T, id int) {
	if out := e.kernelTest(t, "vsock_test", 10000+id, fmt.Sprintf("--pick %d", id)); !strings.Contains(out, fmt.Sprintf("%d - ", id)) || !strings.Contains(out, "...ok") {
		t.Errorf("the server does not say that test %d was done: %s", id, out)
	}
}

// kernelTest runs one of the kernel's test programs, the server in guest 0 and the client in guest 1, and returns what the server printed.
func (e *venv) kernelTest(t *testing.T, program string, port int, args string) string {
	t.Helper()
	const limit = 30 * time.Second
	command := func(mode, host string, cid int) string {
		return fmt.Sprintf("%s --mode %s --control-host %s --control-port %d --peer-cid %d %s", program, mode, host, port, cid, args)
	}
	server, err := e.g[0].Start(limit, command("server", "0.0.0.0", 4))
	if err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, fmt.Sprintf("until grep -q ':%04X 00000000:0000 0A' /proc/net/tcp; do sleep 0.02; done", port))
	if out, exit := e.g[1].RunFor(limit, command("client", "10.9.0.1", 3)); exit != 0 {
		t.Errorf("client: exit %d: %s", exit, out)
	}
	out, exit, err := server.Wait()
	if err != nil || exit != 0 {
		t.Errorf("server: exit %d, %v: %s", exit, err, out)
	}
	return out
}
