package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/relay"
)

// stdio is this process's own standard input and output.
type stdio struct{ a Address }

func (s *stdio) where() string { return "stdio" }
func (s *stdio) close()        {}

func (s *stdio) open(context.Context) (opened, error) {
	in, _, err := pollable(0, unix.O_RDONLY) // nobody waits for input that is not wanted any more
	if err != nil {
		return opened{}, fmt.Errorf("standard input: %w", err)
	}
	out, written, err := pollable(1, unix.O_WRONLY)
	if err != nil {
		unix.Close(in)
		return opened{}, fmt.Errorf("standard output: %w", err)
	}
	return opened{End: relay.End{In: in, Out: out, Kind: s.a.carries()}, done: written}, nil
}

// pollable returns a non-blocking descriptor in place of standard input or
// output. Being non-blocking must not show to those who share it with us (the
// shell, for one), so a pipe is opened anew, and what epoll does not take (a file)
// or what others go on using (a terminal) is copied through a pipe; wait, if there
// is one, returns when the copy is complete.
func pollable(std, how int) (fd int, wait func(), err error) {
	own, err := takeOver(std)
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		unix.Close(own)
		return -1, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK: // inetd and systemd give us one that is ours alone
		return own, nil, unix.SetNonblock(own, true)
	case unix.S_IFIFO:
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(own), how|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(own)
			return fd, nil, nil
		}
	}
	return copied(own, how)
}

// takeOver moves a standard descriptor out of the way, so that closing what
// replaces it closes it; its number goes to /dev/null rather than to some socket.
func takeOver(std int) (int, error) {
	own, err := unix.FcntlInt(uintptr(std), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Dup3(null, std, 0)
		unix.Close(null)
	}
	if err != nil {
		unix.Close(own)
	}
	return own, err
}

// copied returns our end of a pipe whose other end a goroutine copies to or from
// fd.
func copied(fd, how int) (end int, wait func(), err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	end, theirs := p[0], p[1]
	if how == unix.O_WRONLY {
		end, theirs = p[1], p[0]
	}
	_ = unix.SetNonblock(end, true)
	from, to := os.NewFile(uintptr(fd), "stdio"), os.NewFile(uintptr(theirs), "pipe")
	if how == unix.O_WRONLY {
		from, to = to, from
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
		from.Close()
		close(done)
	}()
	return end, func() { <-done }, nil
}

// command is a program whose standard input and output are one socket.
type command struct{ a Address }

func (c *command) where() string { return c.a.String() }
func (c *command) close()        {}

// killTime is how long a command may take to end after it was asked to.
const killTime = 5 * time.Second

func (c *command) open(ctx context.Context) (opened, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return opened{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", c.a.Command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts ends with it
	cmd.Cancel = func() error {
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
	cmd.WaitDelay = killTime
	if err := cmd.Start(); err != nil {
		cancel()
		unix.Close(pair[0])
		return opened{}, err
	}
	_ = unix.SetNonblock(pair[0], true)
	done := func() {
		cancel()
		_ = cmd.Wait()
	}
	return opened{End: relay.Socket(pair[0], relay.Stream), done: done}, nil
}
