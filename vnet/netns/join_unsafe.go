package netns

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlFD is where the keeper finds its end of the control socket.
const controlFD = 3

// joiner is what the child needs between fork and exec, made before: there it can
// call the kernel and nothing else.
type joiner struct {
	user, net, control, report int
	path                       *byte
	argv, envp                 []*byte
	caps                       [2]unix.CapUserData
	capHeader                  unix.CapUserHeader
}

// keeperCaps are what the keeper is left with where it is not root in the joined
// user namespace: interfaces and their sysctls, low ports.
var keeperCaps = [...]uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}

// join starts path in the namespaces: a fork of this thread alone, which may
// therefore join a user namespace.
func join(path string, argv []string, user, net, control int) (*os.Process, error) {
	report, err := pipe()
	if err != nil {
		return nil, err
	}
	defer unix.Close(report[0])
	j := &joiner{user: user, net: net, control: control, report: report[1],
		capHeader: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}}
	if j.path, err = syscall.BytePtrFromString(path); err == nil {
		if j.argv, err = syscall.SlicePtrFromStrings(argv); err == nil {
			j.envp, err = syscall.SlicePtrFromStrings(os.Environ())
		}
	}
	if err != nil {
		unix.Close(report[1])
		return nil, err
	}
	for _, c := range keeperCaps {
		j.caps[0].Effective |= 1 << c
	}
	j.caps[0].Permitted, j.caps[0].Inheritable = j.caps[0].Effective, j.caps[0].Effective

	runtime.LockOSThread()
	syscall.ForkLock.Lock()
	pid, errno := fork(j)
	syscall.ForkLock.Unlock()
	runtime.UnlockOSThread()
	unix.Close(report[1])
	if errno != 0 {
		return nil, fmt.Errorf("fork: %w", errno)
	}
	p, err := os.FindProcess(int(pid))
	if err != nil {
		return nil, err
	}
	return p, j.failure(report[0], p)
}

func pipe() (p [2]int, err error) {
	err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	return p, err
}

// steps name what the child does, for its report of a failure.
const (
	stepUser byte = iota + 1
	stepNet
	stepCaps
	stepExec
)

var stepNames = [...]string{stepUser: "join the user namespace", stepNet: "join the network namespace", stepCaps: "keep the capabilities", stepExec: "run the keeper"}

// failure reads the child's report: nothing, once exec has closed it, or the step
// that failed and its errno.
func (j *joiner) failure(report int, p *os.Process) error {
	var b [2]byte
	for {
		n, err := unix.Read(report, b[:])
		if err == unix.EINTR {
			continue
		}
		if n != len(b) {
			return nil
		}
		_, _ = p.Wait()
		return fmt.Errorf("%s: %w", stepNames[b[0]], unix.Errno(b[1]))
	}
}

// fork runs in the parent and, behind clone, in the child. Signals are blocked
// meanwhile: the runtime's handlers have no runtime in the child.
//
//go:noinline
//go:norace
func fork(j *joiner) (pid uintptr, errno unix.Errno) {
	var all, old [2]uint64
	all[0], all[1] = ^uint64(0), ^uint64(0)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
		return pid, errno
	}
	child(j, &old)
	return 0, 0 // not reached
}

// child joins and executes. It must not grow its stack, allocate, or write a
// pointer: there is no runtime here that could help.
//
//go:nosplit
//go:norace
func child(j *joiner, mask *[2]uint64) {
	step := stepUser
	errno := unix.Errno(0)
	if j.user >= 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_SETNS, uintptr(j.user), unix.CLONE_NEWUSER, 0)
	}
	if errno == 0 {
		step = stepNet
		_, _, errno = unix.RawSyscall(unix.SYS_SETNS, uintptr(j.net), unix.CLONE_NEWNET, 0)
	}
	if errno == 0 && j.user >= 0 {
		step = stepCaps
		_, _, errno = unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&j.capHeader)), uintptr(unsafe.Pointer(&j.caps)), 0)
		for i := range keeperCaps {
			if errno == 0 {
				_, _, errno = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, keeperCaps[i], 0, 0, 0)
			}
		}
	}
	if errno == 0 {
		step = stepExec
		if j.control == controlFD {
			_, _, errno = unix.RawSyscall(unix.SYS_FCNTL, controlFD, unix.F_SETFD, 0)
		} else {
			_, _, errno = unix.RawSyscall(unix.SYS_DUP3, uintptr(j.control), controlFD, 0)
		}
	}
	if errno == 0 {
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), 0, 8, 0, 0)
		_, _, errno = unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(j.path)),
			uintptr(unsafe.Pointer(&j.argv[0])), uintptr(unsafe.Pointer(&j.envp[0])))
	}
	report := [2]byte{step, byte(errno)}
	unix.RawSyscall(unix.SYS_WRITE, uintptr(j.report), uintptr(unsafe.Pointer(&report)), 2)
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
