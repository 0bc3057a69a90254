package unixsock

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var types = map[string]int{"stream": unix.SOCK_STREAM, "seqpacket": unix.SOCK_SEQPACKET, "dgram": unix.SOCK_DGRAM}

// foreign makes a socket at path as another process would.
func foreign(t *testing.T, path string, typ int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if typ != unix.SOCK_DGRAM {
		if err := unix.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestModeAndOwner(t *testing.T) {
	old := unix.Umask(0o077) // must not matter
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "s")
	for want, mode := range map[os.FileMode]os.FileMode{0o600: 0, 0o666: 0o666, 0o660: 0o660, 0o200: 0o200} {
		l, err := Listen(path, Options{Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("mode %v, want %v (%v)", st.Mode(), want, err)
		}
		l.Close()
		l.Close()
		if exists(path) {
			t.Error("left behind")
		}
	}
	// Root may give the file to anybody; others only to themselves.
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12345, 54321
	}
	l, err := Listen(path, Options{UID: uid, GID: gid})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || int(st.Uid) != uid || int(st.Gid) != gid {
		t.Errorf("owner %d:%d, want %d:%d (%v)", st.Uid, st.Gid, uid, gid, err)
	}
}

func TestListenAndDial(t *testing.T) {
	dir := t.TempDir()
	for name, typ := range types {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			l, err := Listen(path, Options{Type: typ})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			fd, errno := Dial(path, typ)
			if errno != 0 {
				t.Fatal(errno)
			}
			defer unix.Close(fd)
			for _, fd := range []int{l.FD, fd} {
				fl, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
				if cl, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fl&unix.O_NONBLOCK == 0 || cl&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d: flags %#x, %#x", fd, fl, cl)
				}
			}
		})
	}
	if _, errno := Dial(filepath.Join(dir, "none"), unix.SOCK_STREAM); errno != unix.ENOENT {
		t.Errorf("no file: %v", errno)
	}
	if _, errno := Dial(strings.Repeat("x", 200), unix.SOCK_STREAM); errno != unix.EINVAL {
		t.Errorf("too long: %v", errno)
	}
	fd := foreign(t, filepath.Join(dir, "full"), unix.SOCK_STREAM)
	defer unix.Close(fd)
	for range 10 {
		c, errno := Dial(filepath.Join(dir, "full"), unix.SOCK_STREAM)
		if errno == unix.EAGAIN {
			return
		}
		defer unix.Close(c)
	}
	t.Error("a full backlog does not say so")
}

// V13 of the hostile catalogue: what lies at the path already.
func TestWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, typ := range types {
		unix.Close(foreign(t, at("stale-"+name), typ))
		fd := foreign(t, at("used-"+name), typ)
		defer unix.Close(fd)
	}
	if err := os.WriteFile(at("file"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(at("dir"), 0o700)
	os.Symlink(at("file"), at("link"))
	os.Symlink(at("nothing"), at("dangling"))
	os.Symlink(at("stale-stream"), at("link-to-stale"))
	full := foreign(t, at("full"), unix.SOCK_STREAM)
	defer unix.Close(full)
	for {
		fd, errno := Dial(at("full"), unix.SOCK_STREAM)
		if errno != 0 {
			break
		}
		defer unix.Close(fd)
	}
	before := openFDs(t)
	for _, c := range []struct{ path, err string }{
		{at("used-stream"), "another process listens"},
		{at("used-seqpacket"), "another process listens"},
		{at("used-dgram"), "another process listens"},
		{at("full"), "another process listens"},
		{at("file"), "not a socket"},
		{at("dir"), "not a socket"},
		{at("link"), "not a socket"},
		{at("dangling"), "not a socket"},
		{at("link-to-stale"), "not a socket"},
		{at("no/such"), "folder does not exist"},
		{at("file/x"), "not a directory"},
		{"", "empty"},
		{"/" + strings.Repeat("x", 107), "108 bytes"},
	} {
		l, err := Listen(c.path, Options{})
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: error %v, want %q", c.path, err, c.err)
		}
		if l.FD != -1 {
			t.Errorf("%s: descriptor %d", c.path, l.FD)
		}
	}
	for _, name := range []string{"used-stream", "used-seqpacket", "used-dgram", "full", "file", "dir", "link", "dangling", "link-to-stale", "stale-stream"} {
		if !exists(at(name)) {
			t.Errorf("%s unlinked", name)
		}
	}
	if n := openFDs(t); n != before {
		t.Errorf("%d descriptors open, %d before", n, before)
	}
	for name := range types {
		l, err := Listen(at("stale-"+name), Options{Mode: 0o660})
		if err != nil {
			t.Errorf("stale %s: %v", name, err)
			continue
		}
		l.Close()
	}
}

// V13: no permission for the folder, for the file, to give it away.
func TestPermission(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(filepath.Dir(dir), 0o755)
	closed, open := filepath.Join(dir, "closed"), filepath.Join(dir, "open")
	os.Mkdir(closed, 0o555)
	os.Mkdir(open, 0o777)
	os.Chmod(open, 0o777)
	l, err := Listen(filepath.Join(open, "roots"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	powerless(t, func() {
		if _, err := Listen(filepath.Join(closed, "s"), Options{}); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("folder: error %v", err)
		}
		path := filepath.Join(open, "s")
		if _, err := Listen(path, Options{UID: 1}); err == nil || !strings.Contains(err.Error(), "chown to 1:-1: operation not permitted") || exists(path) {
			t.Errorf("owner: error %v, file left behind: %v", err, exists(path))
		}
		if os.Getuid() != 0 {
			return
		}
		if _, errno := Dial(filepath.Join(open, "roots"), unix.SOCK_STREAM); errno != unix.EACCES {
			t.Errorf("connect: %v", errno)
		}
		if _, err := Listen(filepath.Join(open, "roots"), Options{}); err == nil || !strings.Contains(err.Error(), "cannot be tried: permission denied") {
			t.Errorf("somebody else's: error %v", err)
		}
	})
}

// powerless runs f without root's power over files, which it lacks if we are not
// root. The thread ends with the goroutine.
func powerless(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			unix.SetfsuidRetUid(65534)
		}
		f()
	}()
	<-done
}

func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine")
	l, err := Listen(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	defer unix.Close(foreign(t, path, unix.SOCK_STREAM))
	l.Close()
	if !exists(path) {
		t.Error("unlinked the socket of another")
	}
}

func TestAbstract(t *testing.T) {
	name := "@guestwire-" + strings.ReplaceAll(t.TempDir(), "/", "-")
	l, err := Listen(name, Options{Mode: 0o666, UID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(name, Options{}); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("listens twice: %v", err)
	}
	l.Close()
	if l, err = Listen(name, Options{}); err != nil {
		t.Errorf("still there after Close: %v", err)
	}
	l.Close()
}
