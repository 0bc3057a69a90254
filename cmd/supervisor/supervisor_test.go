package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is its own worker: what it does stands in its job's input.
const workerEnv = "GUESTWIRE_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(actWorker())
	}
	os.Setenv(workerEnv, "1") // for the processes that tests start
	os.Exit(m.Run())
}

// actWorker understands: serve, die CODE, deaf (to SIGTERM), mute (never ready),
// flaky FILE (dies unless FILE is there).
func actWorker() int {
	in := bufio.NewReader(os.Stdin)
	line, _ := in.ReadString('\n')
	what, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch what {
	case "die":
		n, _ := strconv.Atoi(arg)
		return n
	case "flaky":
		if _, err := os.Stat(arg); err != nil {
			return 4
		}
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "mute":
		_, _ = in.ReadByte()
		return 0
	}
	fmt.Println(os.Getpid())
	_, _ = in.ReadByte() // the supervisor has gone
	return 0
}

// rig is a supervisor whose time the test moves and whose log it reads.
type rig struct {
	*Supervisor
	t      *testing.T
	lines  chan string
	timers chan timer
}

type timer struct {
	d    time.Duration
	fire chan time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, lines: make(chan string, 100), timers: make(chan timer, 100)}
	r.Supervisor = New(Config{
		Command: func(j Job) []string { return []string{"/proc/self/exe", "worker", j.Name} },
		Log:     slog.New(&handler{lines: r.lines}),
		After: func(d time.Duration) <-chan time.Time {
			fire := make(chan time.Time, 1)
			r.timers <- timer{d, fire}
			return fire
		},
	})
	t.Cleanup(r.Stop)
	return r
}

// handler is a slog.Handler that hands over lines `NAME: message`.
type handler struct {
	lines chan string
	name  string
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.lines <- h.name + ": " + r.Message
	return nil
}
func (h *handler) WithAttrs(a []slog.Attr) slog.Handler {
	return &handler{h.lines, a[0].Value.String()}
}
func (h *handler) WithGroup(string) slog.Handler { return h }

// next returns the next line of the log, which must begin with what is wanted.
func (r *rig) next(want string) string {
	r.t.Helper()
	select {
	case l := <-r.lines:
		rest, ok := strings.CutPrefix(l, want)
		if !ok {
			r.t.Fatalf("the log says %q, want %q", l, want)
		}
		return rest
	case <-time.After(10 * time.Second):
		r.t.Fatalf("the log says nothing, want %q", want)
	}
	return ""
}

// pid waits until a job is ready and returns its worker.
func (r *rig) pid(name string) int {
	r.t.Helper()
	n, err := strconv.Atoi(r.next(name + ": ready on "))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// fire ends the next wait of length d; others that came before are left alone.
func (r *rig) fire(d time.Duration) {
	r.t.Helper()
	for {
		select {
		case t := <-r.timers:
			if t.d == d {
				t.fire <- time.Time{}
				return
			}
		case <-time.After(10 * time.Second):
			r.t.Fatalf("nobody waits for %v", d)
		}
	}
}

func (r *rig) counter(name string) (value uint64) {
	r.Each(func(n string, v uint64) {
		if n == name {
			value = v
		}
	})
	return value
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("not settled after 10 s")
	}
}

func job(name, input string) Job { return Job{name, []byte(input)} }

func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// A worker that is killed is started again after a pause, and its death is no
// concern of the others.
func TestRestart(t *testing.T) {
	r := newRig(t)
	wait(t, r.Set([]Job{job("a", "serve")}))
	a := r.pid("a")
	wait(t, r.Set([]Job{job("a", "serve"), job("b", "serve")}))
	b := r.pid("b")
	if err := syscall.Kill(a, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.next("a: the worker has ended (signal: killed): next attempt in 100ms")
	if w := r.Waiting(); !slices.Equal(w, []string{"a"}) {
		t.Errorf("waiting: %v", w)
	}
	r.fire(pauseMin)
	if again := r.pid("a"); again == a {
		t.Errorf("process %d serves again", a)
	}
	if err := syscall.Kill(b, 0); err != nil {
		t.Errorf("b has gone too: %v", err)
	}
	if n := r.counter("daemon_restarts"); n != 1 {
		t.Errorf("%d restarts", n)
	}
	r.Stop()
	gone(t, b)
}

// A worker that never starts is tried again at growing intervals, and settles
// all the same; when it comes up it is served like any other.
func TestFailingWorker(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "there")
	wait(t, r.Set([]Job{job("a", "flaky "+file)}))
	for _, d := range []time.Duration{pauseMin, 2 * pauseMin, 4 * pauseMin} {
		r.next(fmt.Sprintf("a: the worker has ended (exit status 4): next attempt in %v", d))
		r.fire(d)
	}
	r.next("a: the worker has ended")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.fire(8 * pauseMin)
	r.pid("a")
	if n := r.counter("daemon_workers_ready"); n != 1 {
		t.Errorf("%d are ready", n)
	}
}

// A worker that ends by itself without an error is started again as well.
func TestOrderlyEndIsNotWanted(t *testing.T) {
	r := newRig(t)
	r.Set([]Job{job("a", "die 0")})
	r.next("a: the worker has ended (without being asked to)")
}

func TestNoBinary(t *testing.T) {
	r := newRig(t)
	r.config.Command = func(Job) []string { return []string{"/no/such/binary", "x"} }
	wait(t, r.Set([]Job{job("a", "serve")}))
	r.next("a: the worker has ended (fork/exec /no/such/binary: no such file or directory)")
}

// Who does not get ready in time, or does not stop when asked to, is killed.
func TestHangingWorker(t *testing.T) {
	r := newRig(t)
	r.Set([]Job{job("a", "mute")})
	r.fire(readyTime)
	r.next("a: the worker has ended (not ready after 30s)")

	r.Set([]Job{job("b", "deaf")})
	b := r.pid("b")
	done := make(chan struct{})
	go func() { r.Stop(); close(done) }()
	r.fire(stopTime)
	r.next("b: the worker is still there 5s after SIGTERM: killed")
	wait(t, done)
	gone(t, b)
}

// Stop does not wait for a pause, nor for a worker that is still starting.
func TestStopAtAnyTime(t *testing.T) {
	r := newRig(t)
	r.Set([]Job{job("a", "die 1")})
	r.next("a: the worker has ended")
	r.Stop()
	r.Set([]Job{job("b", "mute")})
	r.Stop()
	if n := r.counter("daemon_workers"); n != 0 {
		t.Errorf("%d workers left", n)
	}
}

// Set touches only what has changed: one stays, one goes, one changes, one comes.
func TestSet(t *testing.T) {
	r := newRig(t)
	wait(t, r.Set([]Job{job("stays", "serve")}))
	stays := r.pid("stays")
	wait(t, r.Set([]Job{job("stays", "serve"), job("goes", "serve")}))
	goes := r.pid("goes")
	wait(t, r.Set([]Job{job("goes", "serve"), job("stays", "serve"), job("changes", "serve 1")}))
	changes := r.pid("changes")

	settled := r.Set([]Job{job("changes", "serve 2"), job("stays", "serve")})
	gone(t, goes)
	gone(t, changes)
	wait(t, settled)
	if now := r.pid("changes"); now == changes {
		t.Error("what changed was not started anew")
	}
	if err := syscall.Kill(stays, 0); err != nil {
		t.Errorf("what did not change has gone: %v", err)
	}
	if n := r.counter("daemon_workers"); n != 2 {
		t.Errorf("%d workers, want 2", n)
	}
}

// A worker sees the end of its input when its supervisor is no more: here, when
// the supervisor's end of the pipe is closed.
func TestLifeline(t *testing.T) {
	p, err := start([]string{"/proc/self/exe", "worker"}, []byte("serve"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.ready
	p.input.Close()
	wait(t, p.ended)
	if p.err != nil {
		t.Error(p.err)
	}
}

// Nothing is left behind: no descriptor, no process.
func TestDescriptors(t *testing.T) {
	r := newRig(t)
	count := func() int {
		l, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	wait(t, r.Set([]Job{job("a", "serve")})) // whatever the runtime opens at first
	r.pid("a")
	r.Stop()
	before := count()
	for range 5 {
		wait(t, r.Set([]Job{job("a", "serve"), job("b", "die 1")}))
		r.Stop()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	for i, tt := range []struct{ served, want time.Duration }{
		{0, 100 * time.Millisecond}, {0, 200 * time.Millisecond}, {time.Second, 400 * time.Millisecond},
		{healthy, 100 * time.Millisecond}, {healthy - 1, 200 * time.Millisecond}, {0, 400 * time.Millisecond},
		{0, 800 * time.Millisecond}, {0, 1600 * time.Millisecond}, {0, 3200 * time.Millisecond},
		{0, 6400 * time.Millisecond}, {0, 10 * time.Second}, {0, 10 * time.Second}, {time.Hour, 100 * time.Millisecond},
	} {
		if got := b.next(tt.served); got != tt.want {
			t.Errorf("step %d: %v, want %v", i, got, tt.want)
		}
	}
}
