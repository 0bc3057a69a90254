package e2e

import (
	"testing"
)

// common is what every guest is checked for, in this order: later checks use the addresses that the first one brought.
var common = []struct {
	name string
	run  func(*testing.T, *env)
}{
	{"DHCP", checkDHCP},
	{"IPv6", checkIPv6},
	{"Ping", checkPing},
	{"DNS", checkDNS},
	{"Bulk", checkBulk},
	{"UDP", checkUDP},
	{"Closing", checkClosing},
	{"Forwards", checkForwards},
	{"Parallel", checkParallel},
	{"Traceroute", checkTraceroute},
	{"Loopback", checkLoopback},
}

func runCommon(t *testing.T, e *env) {
	for i, c := range common {
		if !t.Run(c.name, func(t *testing.T) { c.run(t, e) }) && i == 0 {
			t.Fatal("without a lease there is nothing else to check")
		}
		if i == 0 { // the guest's own servers, for the forwards
			if _, err := e.g.Start(0, "setsid guestprog serve 7777 >/tmp/serve.log 2>&1 &"); err != nil {
				t.Fatal(err)
			}
			e.sh(t, "until grep -q :1E61 /proc/net/tcp6; do sleep 0.1; done") // port 7777
		}
	}
}

func TestUMLVhostUser(t *testing.T) {
	e := newEnv(t, setup{uml: true})
	runCommon(t, e)
}

func TestQEMUVhostUser(t *testing.T) {
	e := newEnv(t, setup{})
	runCommon(t, e)
}

func TestQEMUStream(t *testing.T) {
	e := newEnv(t, setup{stream: true})
	runCommon(t, e)
}
