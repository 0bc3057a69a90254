package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say how a child runs. The zero value is: this namespace, this environment, log into a temporary file.
type Options struct {
	NS    string   // name of a network namespace (ip netns exec), "" for our own
	Env   []string // added to our environment
	Dir   string
	Log   string // file that receives stdout and stderr; appended to
	Stdin io.Reader
	Files []*os.File // become fd 3, 4, ... (not with NS: ip would have to pass them on, which it does)
	Lower bool       // run at lower scheduling priority
}

// Process is one child.
type Process struct {
	Name string
	Log  string
	log  *os.File // keeps a log without a name open
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

var (
	starterOnce sync.Once
	starter     chan func()
)

// onStarter runs f on the thread whose life is the process's, which PR_SET_PDEATHSIG needs.
func onStarter(f func()) {
	starterOnce.Do(func() {
		starter = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range starter {
				f()
			}
		}()
	})
	done := make(chan struct{})
	starter <- func() { defer close(done); f() }
	<-done
}

// Start runs argv as a child.
func Start(o Options, argv ...string) (*Process, error) {
	name := filepath.Base(argv[0])
	if o.Lower {
		argv = append([]string{"nice", "-n", "5"}, argv...)
	}
	if o.NS != "" {
		argv = append([]string{"ip", "netns", "exec", o.NS}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.ExtraFiles = append(os.Environ(), o.Env...), o.Dir, o.Stdin, o.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := openLog(o.Log, name)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	onStarter(func() { err = cmd.Start() })
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, Log: log.Name(), cmd: cmd, done: make(chan struct{})}
	if o.Log != "" {
		log.Close()
	} else { // nobody but us needs the file, which goes when we do
		p.log, p.Log = log, fmt.Sprintf("/proc/self/fd/%d", log.Fd())
		os.Remove(log.Name())
	}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	return p, nil
}

func openLog(path, name string) (*os.File, error) {
	if path == "" {
		return os.CreateTemp("", "guestwire-"+name+"-*.log")
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// PID is the child's process id (ip and nice exec, so it is the program itself).
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends s to the child alone.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited tells whether the child has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ErrTimeout is Wait's answer for a child that is still running.
var ErrTimeout = errors.New("still running at the deadline")

// Wait waits for the end of the child; the error is that of exec.Cmd.Wait.
func (p *Process) Wait(timeout time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(timeout):
		return fmt.Errorf("%s: %w", p.Name, ErrTimeout)
	}
}

// ExitCode is valid after the end of the child.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Stop asks the child to end, and after grace makes it.
func (p *Process) Stop(grace time.Duration) error {
	if p == nil {
		return nil
	}
	if !p.Exited() {
		_ = p.Signal(syscall.SIGTERM)
	}
	err := p.Wait(grace)
	if errors.Is(err, ErrTimeout) {
		p.Kill()
	}
	return err
}

// Kill ends the child and its process group at once.
func (p *Process) Kill() {
	if p == nil || p.Exited() {
		return
	}
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Output is all that the child has printed so far.
func (p *Process) Output() string {
	b, _ := os.ReadFile(p.Log)
	return string(b)
}

// Tail is the last n lines of the output.
func (p *Process) Tail(n int) string { return tail(p.Output(), n) }

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// WaitOutput waits until the output contains text; it fails early when the child ends.
func (p *Process) WaitOutput(text string, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for {
		exited := p.Exited()
		if strings.Contains(p.Output(), text) {
			return nil
		}
		if exited {
			return fmt.Errorf("%s ended (%v) before printing %q:\n%s", p.Name, p.err, text, p.Tail(30))
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not print %q within %v:\n%s", p.Name, text, timeout, p.Tail(30))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Run runs argv to its end and returns what it printed; the error carries the output's end.
func Run(timeout time.Duration, o Options, argv ...string) (string, error) {
	p, err := Start(o, argv...)
	if err != nil {
		return "", err
	}
	err = p.Wait(timeout)
	if errors.Is(err, ErrTimeout) {
		p.Kill()
	}
	out := p.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(out, 10))
	}
	return out, nil
}
