package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"guestwire/test/harness/traffic"
)

// redirect starts `guestwire agent redirect` in the guest and waits until it is ready; it returns how to read a counter.
func (e *venv) redirect(t *testing.T, name string, rules ...string) {
	t.Helper()
	log := "/tmp/" + name + ".log"
	args := ""
	for _, r := range rules {
		args += " '" + r + "'"
	}
	e.sh(t, 0, fmt.Sprintf("setsid guestwire agent redirect%s >%s 2>&1 & echo $! >/tmp/%s.pid; for i in $(seq 200); do grep -q ready %s && exit 0; sleep 0.05; done; cat %s; exit 1", args, log, name, log, log))
}

func (e *venv) redirectStats(t *testing.T, name string) string {
	t.Helper()
	return e.sh(t, 0, fmt.Sprintf("kill -USR1 $(cat /tmp/%s.pid); sleep 0.5; cat /tmp/%s.log", name, name))
}

// sink counts and sums what comes to a port of the host.
func (e *venv) sink(t *testing.T, port int) chan string {
	t.Helper()
	l, err := net.Listen("unix", fmt.Sprintf("%s_%d", e.d.Path(0), port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	sums := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				sum, err := traffic.Sum(c)
				sums <- fmt.Sprint(sum, err)
			}()
		}
	}()
	return sums
}

func TestRedirectFirst(t *testing.T) {
	e := newVenv(t, vsetup{})
	sums := e.sink(t, 1234)
	e.redirect(t, "one", "unix:/tmp/s.sock=vsock:2:7700,path=sockmap", "unix-dgram:/tmp/d.sock=vsock:2:1234,raw")
	for _, chunk := range []int{4096, 65536} {
		for i := range 3 {
			t.Log(e.sh(t, 0, fmt.Sprintf("guestprog put unix:/tmp/s.sock 50000000 %d %d", i, chunk)))
		}
	}
	t.Log(e.redirectStats(t, "one"))
	t.Log(e.sh(t, 0, "guestprog get unix:/tmp/s.sock 10000000 1"))
	t.Log(e.sh(t, 0, "guestprog half unix:/tmp/s.sock 10000000 1 key"))
	start := time.Now()
	t.Log(e.sh(t, 0, "guestprog dgrams /tmp/d.sock 50000000 5 65536"))
	t.Log(time.Since(start))
	time.Sleep(time.Second)
	t.Log(e.redirectStats(t, "one"))
	e.sh(t, 0, "kill $(cat /tmp/one.pid)")
	t.Log(<-sums)
	t.Log(traffic.SumOf(5, 50000000))
}
