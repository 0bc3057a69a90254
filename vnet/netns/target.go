package netns

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Target is a namespace that exists.
type Target struct {
	Path string // of its file
	PID  int    // of the process that was named, 0 for none: its end is the namespace's
}

// namedDir is where ip-netns(8) keeps namespaces by name.
const namedDir = "/run/netns"

// Parse reads what a user calls a namespace: PID, path or name.
func Parse(s string) (Target, error) {
	if pid, err := strconv.Atoi(s); err == nil && pid > 0 {
		return Target{Path: fmt.Sprintf("/proc/%d/ns/net", pid), PID: pid}, nil
	}
	if !strings.Contains(s, "/") {
		s = namedDir + "/" + s
	}
	t := Target{Path: s}
	// A namespace of /proc lives, under that name, as long as its process.
	if n, _ := fmt.Sscanf(s, "/proc/%d/ns/net", &t.PID); n != 1 || fmt.Sprintf("/proc/%d/ns/net", t.PID) != s {
		t.PID = 0
	}
	return t, nil
}

func (t Target) String() string {
	if t.PID != 0 {
		return fmt.Sprintf("process %d", t.PID)
	}
	return t.Path
}

// open opens the namespace, and the user namespace that owns it: -1 if that is
// ours.
func (t Target) open() (net, user int, err error) {
	net, err = unix.Open(t.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, t.explain(err)
	}
	if kind, err := unix.IoctlRetInt(net, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		unix.Close(net)
		return -1, -1, fmt.Errorf("%s is no network namespace", t.Path)
	}
	user, err = unix.IoctlRetInt(net, unix.NS_GET_USERNS)
	if err != nil {
		unix.Close(net)
		return -1, -1, fmt.Errorf("%s belongs to a user namespace that is not below ours: %w", t.Path, err)
	}
	if unix.CloseOnExec(user); isOurs(user) {
		unix.Close(user)
		user = -1
	}
	return net, user, nil
}

func (t Target) explain(err error) error {
	switch {
	case t.PID != 0 && errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no process %d", t.PID)
	case t.PID != 0 && errors.Is(err, os.ErrPermission):
		return fmt.Errorf("process %d is not ours to join (it belongs to another user, or has changed its user)", t.PID)
	case errors.Is(err, os.ErrNotExist) && strings.HasPrefix(t.Path, namedDir+"/"):
		return fmt.Errorf("there is no namespace %s (`ip netns` lists them; to run a command in a new namespace write -- before it)",
			strings.TrimPrefix(t.Path, namedDir+"/"))
	}
	return fmt.Errorf("namespace %s: %w", t.Path, err)
}

func isOurs(user int) bool {
	var a, b unix.Stat_t
	return unix.Fstat(user, &a) == nil && unix.Stat("/proc/self/ns/user", &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}
