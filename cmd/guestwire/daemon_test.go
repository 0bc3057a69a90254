package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is guestwire too: the daemon that a test starts is a real
// process, with real workers.
const mainEnv = "GUESTWIRE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// daemonProcess is `guestwire daemon` in a process of its own, with a folder for
// its guests' sockets.
type daemonProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	dir   string
	lines chan string // of its standard error
	seen  []string
}

// startDaemon runs a daemon on a file in which DIR stands for its folder.
func startDaemon(t *testing.T, file string) *daemonProcess {
	t.Helper()
	d := &daemonProcess{t: t, dir: t.TempDir(), lines: make(chan string, 1000)}
	d.write(file)
	d.cmd = exec.Command("/proc/self/exe", "daemon", "--config", d.path("guests.yaml"))
	d.cmd.Env = append(os.Environ(), mainEnv+"=1")
	errs, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		for s := bufio.NewScanner(errs); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	return d
}

func (d *daemonProcess) path(name string) string { return filepath.Join(d.dir, name) }

func (d *daemonProcess) write(file string) {
	d.t.Helper()
	if err := os.WriteFile(d.path("guests.yaml"), []byte(strings.ReplaceAll(file, "DIR", d.dir)), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemonProcess) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// wait reads lines until one contains what is wanted.
func (d *daemonProcess) wait(want string) string {
	d.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case l, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the daemon has ended without saying %q:\n%s", want, strings.Join(d.seen, "\n"))
			}
			d.seen = append(d.seen, l)
			if strings.Contains(l, want) {
				return l
			}
		case <-late:
			d.t.Fatalf("the daemon does not say %q:\n%s", want, strings.Join(d.seen, "\n"))
		}
	}
}

// waitAll reads lines until each of wants has come, in any order.
func (d *daemonProcess) waitAll(wants ...string) {
	d.t.Helper()
	for len(wants) > 0 {
		l := d.wait("")
		wants = slices.DeleteFunc(wants, func(w string) bool { return strings.Contains(l, w) })
	}
}

// workers are the daemon's processes by the names of their guests.
func (d *daemonProcess) workers() map[string]int {
	d.t.Helper()
	list := map[string]int{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.cmd.Process.Pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(children)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
			list[args[len(args)-1]], _ = strconv.Atoi(f)
		}
	}
	return list
}

// listens reports whether somebody accepts at a socket of the folder.
func (d *daemonProcess) listens(name string) bool {
	network := "unix"
	if strings.HasSuffix(name, "_seqpacket") {
		network = "unixpacket"
	}
	c, err := net.Dial(network, d.path(name))
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (d *daemonProcess) end() error {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	for l := range d.lines {
		d.seen = append(d.seen, l)
	}
	return d.cmd.Wait()
}

const threeGuests = `guests:
  web:
    net: {socket-path: DIR/web-net, tcp-ports: [127.0.0.1/0:80]}
    vsock: {socket-path: DIR/web-vsock, guest-cid: 3, uds-path: DIR/web, groups: cluster}
  db:
    vsock: {socket-path: DIR/db-vsock, guest-cid: 4, groups: cluster}
  lone:
    net: {socket-path: DIR/lone-net}
`

// Many guests: a worker that is killed comes back at the same sockets and takes
// no other along; a changed file changes what it names; a wrong one nothing.
func TestDaemon(t *testing.T) {
	d := startDaemon(t, threeGuests)
	if l := d.wait("daemon: ready"); !strings.HasSuffix(l, "ready, 2 workers") {
		t.Errorf("the ready line is %q", l)
	}
	sockets := []string{"web-net", "web-vsock", "web", "web_seqpacket", "db-vsock", "lone-net"}
	for _, s := range sockets {
		if !d.listens(s) {
			t.Errorf("nobody listens on %s", s)
		}
	}
	before := d.workers()
	pair, lone := before["web+db"], before["lone"]
	if len(before) != 2 || pair == 0 || lone == 0 {
		t.Fatalf("the workers are %v", before)
	}

	if err := syscall.Kill(pair, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.wait("signal: killed")
	d.wait("ready on")
	for _, s := range sockets {
		if !d.listens(s) {
			t.Errorf("nobody listens on %s after a restart", s)
		}
	}
	after := d.workers()
	if after["web+db"] == pair || after["lone"] != lone {
		t.Errorf("the workers were %v and are %v", before, after)
	}

	d.signal(syscall.SIGUSR1)
	d.waitAll("daemon_restarts 1", "web.net_tx_frames 0", "db.vsock_connections 0", "lone.net_tx_frames 0")

	d.write(strings.Replace(threeGuests, "  lone:\n    net: {socket-path: DIR/lone-net}", "  new:\n    net: {socket-path: DIR/new-net}", 1))
	d.signal(syscall.SIGHUP)
	d.wait("daemon: ready, 2 workers")
	now := d.workers()
	if now["web+db"] != after["web+db"] || now["new"] == 0 || now["lone"] != 0 {
		t.Errorf("the workers were %v and are %v", after, now)
	}
	if d.listens("lone-net") || !d.listens("new-net") {
		t.Error("the sockets are not those of the changed file")
	}

	d.write(threeGuests + "    disk: {}\n")
	d.signal(syscall.SIGHUP)
	if l := d.wait("guests.yaml:9:5"); !strings.Contains(l, "disk") {
		t.Errorf("the wrong file is answered by %q", l)
	}
	if same := d.workers(); same["new"] != now["new"] || len(same) != 2 {
		t.Errorf("a wrong file has changed the workers from %v to %v", now, same)
	}

	if err := d.end(); err != nil {
		t.Errorf("the daemon ends with %v", err)
	}
	left, err := os.ReadDir(d.dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	for name, pid := range now {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("worker %s is still there: %v", name, err)
		}
	}
}

// A guest whose worker cannot start does not keep the others from starting.
func TestDaemonServesWhatItCan(t *testing.T) {
	d := startDaemon(t, "guests:\n  good: {net: {socket-path: DIR/good}}\n  bad: {net: {socket-path: DIR/no/such/folder}}\n")
	if l := d.wait("daemon: ready"); !strings.Contains(l, "1 of 2 workers") || !strings.Contains(l, "bad") {
		t.Errorf("the ready line is %q", l)
	}
	if !slices.ContainsFunc(d.seen, func(l string) bool { return strings.Contains(l, "DIR/no/such/folder"[3:]) }) {
		t.Errorf("what is wrong was not said:\n%s", strings.Join(d.seen, "\n"))
	}
	if !d.listens("good") {
		t.Error("nobody listens for the good guest")
	}
	if err := d.end(); err != nil {
		t.Error(err)
	}
}

// Workers end with their daemon, however that ends.
func TestWorkersEndWithTheirDaemon(t *testing.T) {
	d := startDaemon(t, threeGuests)
	d.wait("daemon: ready")
	workers := d.workers()
	d.signal(syscall.SIGKILL)
	late := time.After(20 * time.Second)
	for open := true; open; { // until the last process that holds it has ended
		select {
		case _, open = <-d.lines:
		case <-late:
			for name, pid := range workers {
				t.Errorf("worker %s may still be there", name)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			open = false
		}
	}
	_ = d.cmd.Wait()
	if left, _ := os.ReadDir(d.dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// The example of the documentation is a file that can be used as it stands.
func TestDocumentedFile(t *testing.T) {
	doc, err := os.ReadFile("../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(doc), "```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("docs/daemon.md has no example")
	}
	path := filepath.Join(t.TempDir(), "guests.yaml")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs, err := readJobs(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	if want := []string{"web+db", "build"}; !slices.Equal(names, want) {
		t.Errorf("the workers are %v, want %v", names, want)
	}
}
