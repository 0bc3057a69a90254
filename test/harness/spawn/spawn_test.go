package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(5*time.Second, Options{Env: []string{"X=y z"}, Stdin: strings.NewReader("in\n")}, "sh", "-c", `read a; echo "$a $X"; echo err >&2`)
	if err != nil || out != "in y z\nerr\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Run(5*time.Second, Options{}, "sh", "-c", "echo reason; exit 3"); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("a failure without its reason: %v", err)
	}
	start := time.Now()
	if _, err := Run(100*time.Millisecond, Options{}, "sleep", "30"); !errors.Is(err, ErrTimeout) || time.Since(start) > 5*time.Second {
		t.Errorf("the time limit: %v after %v", err, time.Since(start))
	}
	if _, err := Run(time.Second, Options{}, "/nonexistent/program"); err == nil {
		t.Error("a program that is not there runs")
	}
}

func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Options{Log: log}, "sh", "-c", `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.WaitOutput("ready", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if n, err := p.FDs(); err != nil || n < 3 {
		t.Errorf("%d descriptors, %v", n, err)
	}
	if rss, err := p.Status("VmRSS"); err != nil || rss < 100 {
		t.Errorf("VmRSS %d KiB, %v", rss, err)
	}
	if _, err := p.CPU(); err != nil {
		t.Error(err)
	}
	if err := p.Stop(5 * time.Second); err != nil || !p.Exited() || !strings.Contains(p.Tail(1), "bye") {
		t.Errorf("orderly stop: %v, %q", err, p.Tail(1))
	}
	if err := p.WaitOutput("never", time.Minute); err == nil {
		t.Error("waiting for the output of a process that has ended succeeds")
	}
	if b, err := os.ReadFile(log); err != nil || !strings.HasPrefix(string(b), "ready\n") {
		t.Errorf("log %q, %v", b, err)
	}
}

// The processor time is really that of the child.
func TestCPU(t *testing.T) {
	p, err := Start(Options{}, "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if used, err := p.CPU(); err != nil {
			t.Fatal(err)
		} else if used >= 100*time.Millisecond {
			return
		} else if time.Now().After(end) {
			t.Fatalf("a busy child used only %v", used)
		}
	}
}
