package agent

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func pair(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	host, guest := net.Pipe()
	t.Cleanup(func() { host.Close(); guest.Close() })
	c := NewClient(host)
	go func() { _ = Serve(guest) }()
	if id, err := c.WaitHello(5 * time.Second); err != nil || len(id) != 36 {
		t.Fatalf("hello: %q, %v", id, err)
	}
	return c, guest
}

func TestRun(t *testing.T) {
	c, guest := pair(t)
	for _, row := range []struct {
		command, output string
		exit            int
	}{
		{"echo a; echo b >&2", "a\nb\n", 0},
		{"printf 'gw1 x\\r\\n\\303'; exit 7", "gw1 x\r\n\xc3", 7},
		{"kill -9 $$", "", 137},
		{"echo before; sleep 20", "before\n", 124},
		{"sleep 20 & echo left behind", "left behind\n", 0},
	} {
		out, exit, err := c.Run(row.command, time.Second)
		if err != nil || out != row.output || exit != row.exit {
			t.Errorf("%q: %q, exit %d, %v", row.command, out, exit, err)
		}
	}
	// A hanging command does not hold up the next, and noise on the line is no answer.
	slow, err := c.Start("sleep 1; echo slow", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(guest, "[ 1.0] kernel says something gw1 {\r\n")
	if out, _, err := c.Run("echo fast", 5*time.Second); out != "fast\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, err := slow.Wait(); out != "slow\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	big, _, err := c.Run("head -c 300000 /dev/zero | tr '\\0' x", 5*time.Second)
	if err != nil || big != strings.Repeat("x", 300000) {
		t.Errorf("%d bytes, %v", len(big), err)
	}
}

func TestLostLine(t *testing.T) {
	c, guest := pair(t)
	j, err := c.Start("sleep 20", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	guest.Close()
	if _, _, err := j.Wait(); err == nil {
		t.Error("a lost line looks like an answer")
	}
}
