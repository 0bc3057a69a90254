package vhostuser_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/vhostuser/vhostusertest"
)

func serve(t *testing.T, c ServerConfig) (*Server, error) {
	t.Helper()
	l, err := eventloop.New(&eventlooptest.FakeClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	s, err := NewServer(l, vhostusertest.New(2), c)
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

// listenAt makes a listening socket, as another process would.
func listenAt(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 8); err != nil {
		t.Fatal(err)
	}
	return fd
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func TestSocketFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }

	t.Run("mode, and removed at the end", func(t *testing.T) {
		for want, c := range map[os.FileMode]os.FileMode{0o600: 0, 0o666: 0o666, 0o660: 0o660} {
			s, err := serve(t, ServerConfig{Path: at("own"), FD: -1, Mode: c})
			if err != nil {
				t.Fatal(err)
			}
			st, err := os.Lstat(at("own"))
			if err != nil || st.Mode().Perm() != want {
				t.Errorf("mode %v, want %v (%v)", st.Mode(), want, err)
			}
			s.Close()
			if exists(at("own")) {
				t.Errorf("left behind")
			}
		}
	})
	t.Run("stale", func(t *testing.T) {
		unix.Close(listenAt(t, at("stale")))
		s, err := serve(t, ServerConfig{Path: at("stale"), FD: -1})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	})
	t.Run("in use", func(t *testing.T) {
		fd := listenAt(t, at("used"))
		defer unix.Close(fd)
		_, err := serve(t, ServerConfig{Path: at("used"), FD: -1})
		if err == nil || !strings.Contains(err.Error(), "another process listens") {
			t.Errorf("error %v", err)
		}
		if !exists(at("used")) {
			t.Errorf("unlinked the socket of another")
		}
	})
	t.Run("something else", func(t *testing.T) {
		if err := os.WriteFile(at("file"), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Symlink(at("file"), at("link"))
		os.Mkdir(at("dir"), 0o700)
		for _, name := range []string{"file", "link", "dir"} {
			if _, err := serve(t, ServerConfig{Path: at(name), FD: -1}); err == nil || !strings.Contains(err.Error(), "not a socket") {
				t.Errorf("%s: error %v", name, err)
			}
			if !exists(at(name)) {
				t.Errorf("%s unlinked", name)
			}
		}
	})
	t.Run("no such directory, path too long", func(t *testing.T) {
		for _, path := range []string{at("no/such/dir"), "/" + strings.Repeat("x", 108)} {
			if _, err := serve(t, ServerConfig{Path: path, FD: -1}); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("taken over meanwhile", func(t *testing.T) {
		s, err := serve(t, ServerConfig{Path: at("mine"), FD: -1})
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(at("mine"))
		defer unix.Close(listenAt(t, at("mine")))
		s.Close()
		if !exists(at("mine")) {
			t.Errorf("unlinked the socket of another")
		}
	})
	t.Run("abstract", func(t *testing.T) {
		name := "@guestwire-test-" + filepath.Base(dir) + t.Name()
		s, err := serve(t, ServerConfig{Path: name, FD: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serve(t, ServerConfig{Path: name, FD: -1}); err == nil {
			t.Errorf("listens twice")
		}
		s.Close()
	})
	t.Run("failed start leaves nothing open", func(t *testing.T) {
		fd := listenAt(t, at("busy"))
		defer unix.Close(fd)
		l, err := eventloop.New(&eventlooptest.FakeClock{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		keepsFDs(t, func() {
			for _, path := range []string{at("busy"), at("file"), at("no/such")} {
				if _, err := NewServer(l, vhostusertest.New(2), ServerConfig{Path: path, FD: -1}); err == nil {
					t.Errorf("%s: no error", path)
				}
			}
		})
		if n := l.Timers().Len(); n != 0 {
			t.Errorf("%d timers left", n)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	dir := openFile(t, "/", unix.O_RDONLY)
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(udp)
	for name, c := range map[string]ServerConfig{
		"nothing":          {FD: -1},
		"both":             {Path: filepath.Join(t.TempDir(), "s"), FD: 3},
		"not a socket":     {FD: dir},
		"not a unix one":   {FD: udp},
		"client, too long": {Path: "/" + strings.Repeat("x", 108), FD: -1, Client: true},
	} {
		if _, err := serve(t, c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReconnect(t *testing.T) {
	b := newBench(t)
	v := newVM(t)
	keepsFDs(t, func() {
		for range 20 {
			f := b.start(v)
			b.do(func() error { return f.SetBackendReqFD() })
			f.Close()
			b.turn()
		}
	})
	st := b.srv.State().Counters
	if st.Connections != 20 || st.LastClose != "closed by the frontend" {
		t.Errorf("%+v", st)
	}
}

func TestConnectedFD(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := 0
	b := newBench(t, func(c *ServerConfig) { c.Path, c.FD, c.Gone = "", p[0], func() { gone++ } })
	b.f = NewFrontendFD(p[1])
	b.do(func() error { _, _, err := b.f.Negotiate(ringBits, allProtocol); return err })
	if gone != 0 {
		t.Errorf("gone already")
	}
	b.f.Close()
	b.turn()
	if gone != 1 || b.srv.State().Connected {
		t.Errorf("gone %d times", gone)
	}
	b.srv.Close()
	b.turn()
	if gone != 1 {
		t.Errorf("gone again at Close")
	}
}

// A worker stops when its only frontend has gone, from within the call.
func TestClosedFromGone(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b *bench
	b = newBench(t, func(c *ServerConfig) { c.Path, c.FD, c.Gone = "", p[0], func() { b.srv.Close() } })
	unix.Write(p[1], Message(MsgGetFeatures, 4, nil)) // hostile: a reply
	b.turn()
	unix.Close(p[1])
	b.turn()
	if n := b.loop.Timers().Len(); n != 0 {
		t.Errorf("%d timers left", n)
	}
}

func TestListeningFD(t *testing.T) {
	path := filepath.Join(t.TempDir(), "theirs")
	fd := listenAt(t, path)
	b := newBench(t, func(c *ServerConfig) { c.Path, c.FD = "", fd })
	b.path = path
	for range 2 {
		b.session().Close()
		b.turn()
	}
	b.srv.Close()
	if !exists(path) {
		t.Errorf("unlinked a socket that somebody else made")
	}
}

func TestClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frontend")
	b := newBench(t, func(c *ServerConfig) { c.Path, c.Client = path, true })
	keepsFDs(t, func() { b.pass(3 * time.Second) })
	if n := len(b.log); n != 1 {
		t.Errorf("%d lines about waiting: %q", n, b.log)
	}
	l := listenAt(t, path)
	defer unix.Close(l)
	accept := func() *Frontend {
		t.Helper()
		b.pass(2 * time.Second)
		unix.SetNonblock(l, true)
		fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatalf("not connected: %v", err)
		}
		return NewFrontendFD(fd)
	}
	for range 3 {
		b.f = accept()
		b.do(func() error { _, _, err := b.f.Negotiate(ringBits, allProtocol); return err })
		b.f.Close()
		b.turn()
	}
	b.srv.Close()
	if !exists(path) {
		t.Errorf("unlinked the frontend's socket")
	}
	if n := b.loop.Timers().Len(); n != 0 {
		t.Errorf("%d timers left", n)
	}
}

// Without free descriptors the listener must not wake the loop again and again.
func TestOutOfDescriptors(t *testing.T) {
	b := newBench(t)
	f, err := DialFrontend(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	dup, err := unix.Dup(f.FD()) // the lowest free number
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(dup)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(dup), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	b.turn()
	b.pass(time.Second)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if !strings.Contains(strings.Join(b.log, "\n"), "cannot accept") {
		t.Errorf("log: %q", b.log)
	}
	if b.srv.State().Connected {
		t.Fatal("connected without a descriptor")
	}
	b.pass(200 * time.Millisecond)
	b.do(func() error { _, err := f.GetFeatures(); return err })
}
