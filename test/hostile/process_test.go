package hostile

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gopacket/gopacket/layers"
)

// built is the real binary, made once for all rows that need it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func guestwire(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "hostile"); built.err == nil {
			c := exec.Command("go", "build", "-o", filepath.Join(built.dir, "guestwire"), "guestwire/cmd/guestwire")
			if out, err := c.CombinedOutput(); err != nil {
				built.err = fmt.Errorf("%w: %s", err, out)
			}
		}
	})
	must(t, built.err)
	return filepath.Join(built.dir, "guestwire")
}

// process is a command whose standard error is read as it comes.
type process struct {
	*exec.Cmd
	t    *testing.T
	out  *os.File // our end of its standard error
	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{} // closed when it has ended
}

// spawn starts a command and waits until it has said `ready on`.
func spawn(t *testing.T, argv ...string) *process {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	p := &process{Cmd: exec.Command(argv[0], argv[1:]...), t: t, out: r, done: make(chan struct{})}
	p.Stderr = w
	must(t, p.Start())
	w.Close()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := r.Read(b)
			p.mu.Lock()
			p.text.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		r.Close()
	})
	p.says("ready on")
	return p
}

func (p *process) says(what string) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		text := p.text.String()
		p.mu.Unlock()
		if strings.Contains(text, what) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("waited 10 s for %q of %v: %s", what, p.Args, text)
		}
	}
}

func (p *process) send(s os.Signal) { must(p.t, p.Process.Signal(s)) }

// ends waits for the end of p, at most d.
func (p *process) ends(d time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(d):
		p.t.Fatalf("%v is still there after %v", p.Args, d)
	}
}

// served is a guest's view of a worker in a process of its own.
func served(t *testing.T, path string) *daemon { return &daemon{t: t, path: path, clock: &clock{}} }

func netArgs(t *testing.T, path string) []string {
	return []string{guestwire(t), "net", "--socket-path", path, "--map-host-loopback", "10.0.2.2"}
}

// resume has a new backend serve the rings where they are.
func (g *guest) resume(d *daemon) {
	g.t.Helper()
	g.leave()
	g.meet(d, features)
	for i, drv := range []int{g.rx.Kick.FD, g.tx.Kick.FD} {
		g.base[i] = g.rings[i].UsedIdx()
		must(g.t, g.startRing(i, drv))
	}
}

// killedWorker kills the worker of a daemon. The daemon starts another at the
// same socket, to which the guest's frontend connects again; the old flows are
// reset, new ones work.
func killedWorker(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "s"), filepath.Join(dir, "guests.yaml")
	must(t, os.WriteFile(file, []byte("guests:\n  one:\n    net: {socket-path: "+path+", map-host-loopback: [10.0.2.2]}\n"), 0o600))
	p := spawn(t, guestwire(t), "daemon", "--config", file)
	d := served(t, path)
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 4001)
	h := srv.accept()
	c.alive(h)
	workers := children(t, p.Process.Pid)
	if len(workers) != 1 {
		t.Fatalf("workers %v, want one", workers)
	}
	must(t, unix.Kill(workers[0], unix.SIGKILL))
	if _, err := h.c.Read(make([]byte, 1)); err == nil { // the kernel ends what was the worker's
		t.Error("the host's end of the flow lives on")
	}
	c.segment("are you there?", func(s *layers.TCP) { s.PSH = true })
	g.resume(d)
	if rst := g.awaitSegment("a reset of the old flow", 4001, isRST); rst.Seq != c.ack {
		t.Errorf("RST with sequence number %d, want %d", rst.Seq, c.ack)
	}
	g.ping()
	g.connect(srv, 4002).alive(srv.accept())
	p.send(syscall.SIGTERM)
	p.ends(10 * time.Second)
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

// children lists the processes whose parent is pid.
func children(t *testing.T, pid int) (list []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		must(t, err)
		for _, s := range strings.Fields(string(b)) {
			var id int
			if _, err := fmt.Sscan(s, &id); err == nil {
				list = append(list, id)
			}
		}
	}
	return list
}

// orphaned: who serves a guest alone goes on when the process that started it is
// killed. The workers of a daemon end with it, which is its stated policy: none
// is left that nobody can reach.
func orphaned(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		p := spawn(t, append([]string{"/bin/sh", "-c", `"$@" & wait`, "sh"}, netArgs(t, path)...)...)
		workers := children(t, p.Process.Pid)
		if len(workers) != 1 {
			t.Fatalf("children %v, want one", workers)
		}
		left, err := unix.PidfdOpen(workers[0], 0)
		must(t, err)
		defer unix.Close(left)
		g := served(t, path).guest()
		g.ping()
		must(t, p.Process.Kill())
		p.ends(10 * time.Second)
		g.ping()
		g.leave()
		served(t, path).healthy()
		must(t, unix.PidfdSendSignal(left, unix.SIGTERM, nil, 0))
		gone(t, left)
	})
	t.Run("of a daemon", func(t *testing.T) {
		dir := t.TempDir()
		path, file := filepath.Join(dir, "s"), filepath.Join(dir, "guests.yaml")
		must(t, os.WriteFile(file, []byte("guests:\n  one:\n    net: {socket-path: "+path+"}\n"), 0o600))
		p := spawn(t, guestwire(t), "daemon", "--config", file)
		workers := children(t, p.Process.Pid)
		if len(workers) != 1 {
			t.Fatalf("workers %v, want one", workers)
		}
		left, err := unix.PidfdOpen(workers[0], 0)
		must(t, err)
		defer unix.Close(left)
		g := served(t, path).guest()
		g.ping()
		must(t, p.Process.Kill())
		gone(t, left)
		closed(t, g.f.FD())
		if _, err := os.Stat(path); err == nil {
			t.Error("the worker has left its socket behind")
		}
	})
}

// gone waits for the end of a process that is not ours.
func gone(t *testing.T, pidfd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 10000); n != 1 {
		t.Fatalf("the process is still there after 10 s: %v", err)
	}
}

// signals: PIPE changes nothing, not even when nobody reads the log any more; HUP
// has a daemon read its file again; TERM in the middle of traffic is an orderly
// end within two seconds, and a second one ends at once.
func signals(t *testing.T) {
	orderly := func(t *testing.T, p *process, path string) {
		t.Helper()
		p.ends(10 * time.Second)
		if !p.ProcessState.Success() {
			t.Errorf("it ended with %v", p.ProcessState)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket is left behind")
		}
	}
	t.Run("PIPE", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		p := spawn(t, netArgs(t, path)...)
		d := served(t, path)
		d.healthy()
		p.out.Close()
		for range 3 { // each is worth a line in the log
			p.send(syscall.SIGPIPE)
			d.healthy()
		}
		p.send(syscall.SIGTERM)
		orderly(t, p, path)
	})
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(unix.SignalName(s)+" in traffic", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			p := spawn(t, netArgs(t, path)...)
			srv := listen(t)
			g := served(t, path).guest()
			g.connect(srv, 4001)
			h := srv.accept()
			go func() { // until it is reset
				for {
					if _, err := h.c.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			}()
			g.awaitSegment("data", 4001, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
			p.send(s)
			orderly(t, p, path)
			closed(t, g.f.FD())
		})
	}
	t.Run("TERM twice", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		p := spawn(t, netArgs(t, path)...)
		g := served(t, path).guest()
		g.ping()
		p.send(syscall.SIGTERM)
		_ = p.Process.Signal(syscall.SIGTERM)
		p.ends(10 * time.Second)
	})
	t.Run("HUP", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "guests.yaml")
		guest := func(name string) string {
			return "  " + name + ":\n    net: {socket-path: " + filepath.Join(dir, name) + "}\n"
		}
		must(t, os.WriteFile(file, []byte("guests:\n"+guest("one")), 0o600))
		p := spawn(t, guestwire(t), "daemon", "--config", file)
		one := served(t, filepath.Join(dir, "one")).guest()
		one.ping()
		must(t, os.WriteFile(file, []byte("guests:\n"+guest("one")+guest("two")), 0o600))
		p.send(syscall.SIGHUP)
		served(t, filepath.Join(dir, "two")).healthy()
		one.ping() // has noticed nothing
		must(t, os.WriteFile(file, []byte("guests: nonsense"), 0o600))
		p.send(syscall.SIGHUP)
		one.ping()
		served(t, filepath.Join(dir, "two")).healthy()
		p.send(syscall.SIGTERM)
		p.ends(10 * time.Second)
	})
}
