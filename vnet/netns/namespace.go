package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var errClosed = errors.New("the process in the namespace has ended")

// Config says which namespace, and what it gets.
type Config struct {
	Target    Target    // Path "": a new one
	Command   []string  // of a new one, run by Run
	SharePIDs bool      // the new one has no PID namespace of its own
	Interface Interface // to be made

	// Keeper is the command line that runs Keep in the binary Exe; the words of the
	// command follow it.
	Exe    string
	Keeper []string
	// Log takes one line per shortcoming; nil: no log.
	Log func(format string, a ...any)
}

// Namespace is a namespace that has our interface.
type Namespace struct {
	TapFD int    // for vnet/tap; the taker sets -1
	Name  string // of the interface

	control int
	keeper  *os.Process
	target  Target
	ask     sync.Mutex
}

// Enter joins or makes the namespace, and the interface in it.
func Enter(c Config) (n *Namespace, err error) {
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n = &Namespace{TapFD: -1, control: pair[0], target: c.Target}
	argv := append(append([]string{}, c.Keeper...), c.Command...)
	if c.Target.Path == "" {
		n.keeper, err = create(c.Exe, argv, pair[1], !c.SharePIDs)
	} else {
		n.keeper, err = enter(c.Exe, argv, c.Target, pair[1])
	}
	unix.Close(pair[1])
	if err == nil {
		err = n.setup(&c)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func enter(exe string, argv []string, t Target, control int) (*os.Process, error) {
	net, user, err := t.open()
	if err != nil {
		return nil, err
	}
	defer unix.Close(net)
	if user >= 0 {
		defer unix.Close(user)
	}
	p, err := join(exe, argv, user, net, control)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%s: %w: it needs to be root there, or the user who made it", t.Path, err)
	}
	return p, err
}

// create runs the keeper in namespaces of its own.
func create(exe string, argv []string, control int, pids bool) (*os.Process, error) {
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	if pids {
		flags |= unix.CLONE_NEWPID
	}
	f := os.NewFile(uintptr(dup(control)), "control")
	defer f.Close()
	p, err := os.StartProcess(exe, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, f},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		},
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("a new user namespace is refused (%w): see kernel.apparmor_restrict_unprivileged_userns, kernel.unprivileged_userns_clone and user.max_user_namespaces", err)
	}
	return p, err
}

func dup(fd int) int {
	d, _ := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return d
}

func (n *Namespace) setup(c *Config) error {
	a, fds, err := n.call(&request{Op: opSetup, If: &c.Interface})
	if err != nil {
		return err
	}
	for _, w := range a.Warn {
		c.Log("%s", w)
	}
	if len(fds) != 1 {
		closeAll(fds)
		return fmt.Errorf("the namespace gives %d interfaces", len(fds))
	}
	n.TapFD, n.Name = fds[0], a.Name
	return nil
}

// call asks the keeper and waits for its answer.
func (n *Namespace) call(r *request) (a answer, fds []int, err error) {
	n.ask.Lock()
	defer n.ask.Unlock()
	if err = send(n.control, r); err != nil {
		if errors.Is(err, unix.EPIPE) {
			err = errClosed
		}
		return a, nil, err
	}
	if fds, err = receive(n.control, &a); err != nil {
		return a, nil, err
	}
	if a.Err != "" {
		closeAll(fds)
		return a, nil, errors.New(a.Err)
	}
	return a, fds, nil
}

// Run starts the command. Its end is the keeper's: see Wait.
func (n *Namespace) Run() error { return send(n.control, &request{Op: opRun}) }

// Signal sends a signal to the command.
func (n *Namespace) Signal(s syscall.Signal) {
	_ = send(n.control, &request{Op: opSignal, Signal: int(s)})
}

// Wait waits for the end of the command, and returns its exit status.
func (n *Namespace) Wait() (int, error) {
	s, err := n.keeper.Wait()
	if err != nil {
		return 1, err
	}
	w := s.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return w.ExitStatus(), nil
}

// Proc is the folder of /proc that shows the namespace (net/tcp and so on).
func (n *Namespace) Proc() string { return fmt.Sprintf("/proc/%d", n.keeper.Pid) }

// Sockets makes k sockets inside, non-blocking; at most 64.
func (n *Namespace) Sockets(domain, typ, k int) ([]int, error) {
	_, fds, err := n.call(&request{Op: opSockets, Domain: domain, Type: typ, N: min(k, maxFDs)})
	return fds, err
}

// Listen makes a socket inside that is bound to addr and, if a stream, listens; one
// of IPv6 takes no IPv4.
func (n *Namespace) Listen(typ int, addr netip.AddrPort) (int, unix.Errno) {
	a, fds, err := n.call(&request{Op: opListen, Type: typ, Addr: addr})
	switch {
	case err != nil:
		return -1, unix.EPIPE
	case a.Errno != 0 || len(fds) != 1:
		closeAll(fds)
		return -1, a.Errno
	}
	return fds[0], 0
}

// Close lets the keeper go, and with it a command that still runs. The namespace
// loses the interface when the tap is closed.
func (n *Namespace) Close() {
	if n.TapFD >= 0 {
		unix.Close(n.TapFD)
		n.TapFD = -1
	}
	if n.control >= 0 {
		unix.Close(n.control)
		n.control = -1
	}
	if n.keeper != nil {
		_, _ = n.keeper.Wait() // an error: somebody has waited already
	}
}
