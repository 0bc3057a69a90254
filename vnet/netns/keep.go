package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Keep is the second process: it serves the control socket until that is closed,
// and runs the command when told so. It returns the exit status.
func Keep(command []string) int {
	unix.CloseOnExec(controlFD)
	if t, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		fmt.Fprintln(os.Stderr, "guestwire netns-keeper: is started by guestwire netns")
		return 2
	}
	// ^C and ^\ are for the command, which is in our process group. Caught, not
	// ignored: the command must not inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT)
	k := &keeper{command: command}
	for {
		var r request
		fds, err := receive(controlFD, &r)
		closeAll(fds)
		if err != nil {
			break
		}
		k.serve(&r)
	}
	if k.pid != 0 {
		_ = unix.Kill(k.pid, unix.SIGKILL)
	}
	return 0
}

type keeper struct {
	command []string
	pid     int
}

func (k *keeper) serve(r *request) {
	var a answer
	var fds []int
	var err error
	switch r.Op {
	case opSetup:
		var tap int
		if tap, err = k.setup(r.If, &a); err == nil {
			fds = []int{tap}
		}
	case opRun:
		k.run()
		return
	case opSignal:
		if k.pid != 0 {
			_ = unix.Kill(k.pid, syscall.Signal(r.Signal))
		}
		return
	case opSockets:
		fds, err = Here{}.Sockets(r.Domain, r.Type, r.N)
	case opListen:
		var fd int
		if fd, a.Errno = (Here{}).Listen(r.Type, r.Addr); a.Errno == 0 {
			fds = []int{fd}
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	_ = send(controlFD, &a, fds...)
	closeAll(fds)
}

// run starts the command, and ends with it. A command that cannot be run ends us
// as it would end a shell.
func (k *keeper) run() {
	path, err := exec.LookPath(k.command[0])
	if err == nil {
		k.pid, _, err = syscall.StartProcess(path, k.command, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guestwire netns: %v\n", err)
		if errors.Is(err, os.ErrPermission) {
			os.Exit(126)
		}
		os.Exit(127)
	}
	go k.reap()
}

// reap waits for all children, since those whose parents end become ours in a PID
// namespace.
func (k *keeper) reap() {
	for {
		var w syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &w, 0, nil)
		switch {
		case err == syscall.EINTR || err == nil && pid != k.pid:
		case err != nil:
			os.Exit(1)
		case w.Signaled():
			os.Exit(128 + int(w.Signal()))
		case w.Exited():
			os.Exit(w.ExitStatus())
		}
	}
}
