package e2e

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// redirector is a `guestwire agent redirect` in a guest.
type redirector struct {
	e        *venv
	log, pid string
}

// redirect starts an agent with rules and waits until it is ready.
func (e *venv) redirect(t *testing.T, name string, rules ...string) *redirector {
	t.Helper()
	return e.redirectAs(t, "", name, rules...)
}

// redirectAs is redirect by a command that starts it.
func (e *venv) redirectAs(t *testing.T, by, name string, rules ...string) *redirector {
	t.Helper()
	r := &redirector{e: e, log: "/tmp/" + name + ".log"}
	r.pid = e.sh(t, 0, fmt.Sprintf("setsid %s guestwire agent redirect '%s' >%s 2>&1 & echo $!; for i in $(seq 200); do grep -q ready %s && exit 0; sleep 0.05; done; cat %s; exit 1",
		by, strings.Join(rules, "' '"), r.log, r.log, r.log))
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := e.g[0].Run("cat " + r.log)
			t.Logf("--- the agent's log:\n%s", out)
		}
		_, _ = e.g[0].Run("kill -9 " + r.pid)
	})
	return r
}

func (r *redirector) stop(t *testing.T, signal string) {
	t.Helper()
	r.e.sh(t, 0, fmt.Sprintf("kill -%s %s; while [ -e /proc/%s ]; do sleep 0.02; done", signal, r.pid, r.pid))
}

// count sums a counter over all rules.
func (r *redirector) count(t *testing.T, name string) (sum int64) {
	t.Helper()
	out := r.e.sh(t, 0, fmt.Sprintf("n=$(grep -c flows_fell_back %[1]s); kill -USR1 %[2]s; for i in $(seq 100); do [ $(grep -c flows_fell_back %[1]s) -gt $n ] && break; sleep 0.02; done; sleep 0.1; tail -n 200 %[1]s",
		r.log, r.pid))
	last := map[string]int64{} // the newest of each rule
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == name {
			last[f[0]], _ = strconv.ParseInt(f[2], 10, 64)
		}
	}
	for _, v := range last {
		sum += v
	}
	return sum
}

// port is a port of the host, whose connections are given to serve.
func (e *venv) port(t *testing.T, port int, serve func(c *net.UnixConn)) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", fmt.Sprintf("%s_%d", e.d.Path(0), port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.UnixConn))
			}()
		}
	}()
	return l
}

// counted is a reader that knows how much has come.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// await waits for a condition that another party brings about.
func await(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
