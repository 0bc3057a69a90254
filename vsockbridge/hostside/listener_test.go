package hostside

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/eventloop/eventlooptest"
	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/packet"
)

// try makes a Host and gives it back at the end of the test.
func try(t *testing.T, c Config) (*Host, error) {
	t.Helper()
	loop, err := eventloop.New(&eventlooptest.FakeClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loop.Close)
	h, err := New(c, loop)
	if err == nil {
		t.Cleanup(h.Close)
	} else if n := loop.Timers().Len(); n != 0 {
		t.Errorf("%d timers left", n)
	}
	return h, err
}

func listenRule(t *testing.T, s string) Rule {
	t.Helper()
	r, err := ParseListen(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func connectRule(t *testing.T, s string) Rule {
	t.Helper()
	r, err := ParseConnect(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// V13: a listening path that cannot be had is a start that fails and says why.
func TestNewErrors(t *testing.T) {
	dir := t.TempDir()
	at := func(s string) string { return filepath.Join(dir, s) }
	os.WriteFile(at("file"), []byte("precious"), 0o600)
	os.Symlink(at("file"), at("link"))
	os.Mkdir(at("dir"), 0o700)
	os.WriteFile(at("half_seqpacket"), nil, 0o600)
	used, err := unixsock.Listen(at("used"), unixsock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	lookup := func(name string) (netip.Addr, error) {
		if name == "empty.example" {
			return netip.Addr{}, nil
		}
		return netip.Addr{}, errors.New("no such host")
	}
	for _, c := range []struct {
		name            string
		uds             string
		listen, connect []string
		lookup          func(string) (netip.Addr, error)
		want            []string
	}{
		{name: "file", uds: at("file"), want: []string{at("file"), "not a socket"}},
		{name: "symbolic link", uds: at("link"), want: []string{at("link"), "not a socket"}},
		{name: "folder", uds: at("dir"), want: []string{at("dir"), "not a socket"}},
		{name: "no folder", uds: at("no/v"), want: []string{at("no/v"), "folder does not exist"}},
		{name: "used", uds: at("used"), want: []string{at("used"), "another process"}},
		{name: "second path", uds: at("half"), want: []string{at("half_seqpacket"), "not a socket"}},
		{name: "too long", uds: "/" + strings.Repeat("x", 96), want: []string{"97 bytes", "at most 96"}},
		{name: "rule's file", listen: []string{"unix:" + at("file") + "=vsock:1"}, want: []string{at("file"), "not a socket"}},
		{name: "twice", listen: []string{"unix:" + at("a") + "=vsock:1", "unix:" + at("a") + "=vsock:2"}, want: []string{at("a"), "twice"}},
		{name: "as the path", uds: at("b"), listen: []string{"unix:" + at("b_seqpacket") + "=vsock:1"}, want: []string{"twice"}},
		{name: "not ours", listen: []string{"tcp:192.0.2.1:8080=vsock:1"}, want: []string{"tcp:192.0.2.1:8080", "no address of this host"}},
		{name: "two ways", connect: []string{"vsock:1=tcp:127.0.0.1:1", "vsock:1=unix:/x"}, want: []string{"port 1 (stream)", "tcp:127.0.0.1:1", "unix:/x"}},
		{name: "name", connect: []string{"vsock:1=tcp:nowhere.example:1"}, lookup: lookup, want: []string{"tcp:nowhere.example:1", "no such host"}},
		{name: "name without address", connect: []string{"vsock:1=tcp:empty.example:1"}, lookup: lookup, want: []string{"no address"}},
		{name: "name without lookup", listen: []string{"tcp:localhost:0=vsock:1"}, want: []string{"tcp:localhost:0", "write the address"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := openFDs(t)
			cfg := Config{UDSPath: c.uds, Lookup: c.lookup}
			for _, s := range c.listen {
				cfg.Listen = append(cfg.Listen, listenRule(t, s))
			}
			for _, s := range c.connect {
				cfg.Connect = append(cfg.Connect, connectRule(t, s))
			}
			_, err := try(t, cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
			if n := openFDs(t) - before; n != 2 { // the loop's own
				t.Errorf("%d descriptors left", n-2)
			}
		})
	}
	if b, _ := os.ReadFile(at("file")); string(b) != "precious" {
		t.Error("file touched")
	}
	for _, name := range []string{"half", "a", "b", "b_seqpacket"} {
		if exists(at(name)) {
			t.Errorf("%s left behind", name)
		}
	}
}

func TestFilesOfTheSockets(t *testing.T) {
	dir := t.TempDir()
	uds, rule := filepath.Join(dir, "v"), filepath.Join(dir, "r")
	h, err := try(t, Config{UDSPath: uds, File: File{Mode: 0o660}, Listen: []Rule{listenRule(t, "unix:"+rule+",mode=0606=vsock:9")}})
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{uds: 0o660, uds + "_seqpacket": 0o660, rule: 0o606} {
		if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, want %v (%v)", path, st.Mode(), mode, err)
		}
	}
	h.Close()
	h.Close()
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
}

// A rule has no line: whatever the client says is the guest's.
func TestRules(t *testing.T) {
	var path string
	r := newRig(t, func(c *Config) {
		path = filepath.Join(filepath.Dir(c.UDSPath), "r")
		c.Listen = []Rule{
			listenRule(t, "unix:"+path+"=vsock:1024"),
			listenRule(t, "unix:"+path+".seq,type=seqpacket=vsock:1025"),
			listenRule(t, "tcp:127.0.0.1:0=vsock:1026"),
			listenRule(t, "tcp:localhost6:0=vsock:1027"),
		}
		c.Lookup = func(name string) (netip.Addr, error) {
			if name != "localhost6" {
				t.Errorf("asked for %q", name)
			}
			return netip.IPv6Loopback(), nil
		}
	})
	list := r.h.Listening()
	if len(list) != 6 || list[2] != "unix:"+path+" (stream) -> port 1024" || !strings.Contains(list[0], "CONNECT") {
		t.Errorf("%q", list)
	}
	for i, dial := range []func() int{
		func() int { return r.dial(path, unix.SOCK_STREAM) },
		func() int { return r.dial(path+".seq", unix.SOCK_SEQPACKET) },
		func() int { return r.tcp(r.h.listeners[4].where.TCP) },
		func() int { return r.tcp(r.h.listeners[5].where.TCP) },
	} {
		fd := dial()
		r.write(fd, "CONNECT 1\n")
		r.idle()
		a := r.asked(i + 1)
		if want := uint32(1024 + i); a.port != want || (a.typ == packet.SeqPacket) != (i == 1) {
			t.Errorf("asked for %+v, want port %d", a, want)
		}
		server := r.accept(a)
		r.want(server, "CONNECT 1\n", false)
		r.want(fd, "", false)
		if i >= 2 {
			if on, err := unix.GetsockoptInt(server, unix.IPPROTO_TCP, unix.TCP_NODELAY); on == 0 {
				t.Errorf("Nagle is on (%v)", err)
			}
		}
	}
}

// tcp connects over loopback, which is done when connect returns.
func (r *rig) tcp(to netip.AddrPort) int {
	r.Helper()
	domain, sa := Address{Network: TCP, TCP: to}.sockaddr()
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, sa)
	}
	if err != nil {
		r.Fatalf("connect to %v: %v", to, err)
	}
	unix.SetNonblock(fd, true)
	r.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestTCPPortInUse(t *testing.T) {
	h, err := try(t, Config{Listen: []Rule{listenRule(t, "tcp:127.0.0.1:0=vsock:1")}})
	if err != nil {
		t.Fatal(err)
	}
	where := h.listeners[0].where
	_, err = try(t, Config{Listen: []Rule{{Host: where, Type: packet.Stream}}})
	if err == nil || !strings.Contains(err.Error(), where.String()) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v", err)
	}
	// :: is IPv6 alone, and leaves the port of IPv4 to others.
	if h, err = try(t, Config{Listen: []Rule{listenRule(t, "tcp:[::]:0=vsock:1")}}); err != nil {
		t.Fatal(err)
	}
	four := netip.AddrPortFrom(netip.IPv4Unspecified(), h.listeners[0].where.TCP.Port())
	if _, err = try(t, Config{Listen: []Rule{{Host: Address{Network: TCP, TCP: four}, Type: packet.Stream}}}); err != nil {
		t.Errorf("beside [::]: %v", err)
	}
}

// Out of descriptors the clients that wait are told, and nothing spins.
func TestOutOfDescriptors(t *testing.T) {
	r := newRig(t, nil)
	var waiting []int
	const many = acceptsPerTurn + 4
	for range many {
		waiting = append(waiting, r.dial(r.uds, unix.SOCK_STREAM))
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	lowest, err := unix.Dup(waiting[0])
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(lowest)
	limit := func(n uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	limit(uint64(lowest))
	defer limit(old.Cur)
	r.idle()
	if n := r.value("turned_away"); n != acceptsPerTurn {
		t.Errorf("turned away %d before the rest, want %d", n, acceptsPerTurn)
	}
	r.pass(time.Second)
	r.idle()
	limit(old.Cur)
	for _, fd := range waiting {
		r.want(fd, "", true)
	}
	if r.value("turned_away") != many || r.value("clients") != 0 || len(r.log) == 0 || !strings.Contains(r.log[0], "cannot accept") {
		t.Errorf("turned away %d, clients %d, log %q", r.value("turned_away"), r.value("clients"), r.log)
	}
	if r.h.reserve < 0 {
		t.Error("no descriptor in reserve any more")
	}
	r.pass(200 * time.Millisecond)
	fd := r.dial(r.uds, unix.SOCK_STREAM)
	r.write(fd, "CONNECT 5\n")
	r.turn()
	r.asked(1)
}
