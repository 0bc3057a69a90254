package hostside

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/packet"
)

func (r *rig) serve(path string, typ int) int {
	r.Helper()
	l, err := unixsock.Listen(path, unixsock.Options{Type: typ})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(l.Close)
	return l.FD
}

// from has the guest connect, which must succeed at once, and returns both ends.
func (r *rig) from(port uint32, t packet.Type, listener int) (device, server int) {
	r.Helper()
	fd, connecting, errno := r.h.Dial(3, port, t)
	if errno != 0 || connecting {
		r.Fatalf("port %d: connecting %v, %v; log %q", port, connecting, errno, r.log)
	}
	r.Cleanup(func() { unix.Close(fd) })
	peer, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		r.Fatalf("port %d: connected elsewhere: %v", port, err)
	}
	r.Cleanup(func() { unix.Close(peer) })
	return fd, peer
}

func TestDialPath(t *testing.T) {
	r := newRig(t, nil)
	stream := r.serve(r.uds+"_1234", unix.SOCK_STREAM)
	seq := r.serve(r.uds+"_4294967294", unix.SOCK_SEQPACKET)
	fd, peer := r.from(1234, packet.Stream, stream)
	r.write(fd, "hello")
	r.want(peer, "hello", false)
	fd, peer = r.from(4294967294, packet.SeqPacket, seq)
	r.write(fd, "one")
	r.write(fd, "two")
	b := make([]byte, 10)
	if n, err := unix.Read(peer, b); n != 3 || err != nil {
		t.Errorf("message of %d bytes, %v", n, err)
	}
	for _, f := range []int{fd, peer} {
		if fl, _ := unix.FcntlInt(uintptr(f), unix.F_GETFL, 0); fl&unix.O_NONBLOCK == 0 {
			t.Error("blocking socket")
		}
	}
	if r.value("dials") != 2 || r.value("dial_errors") != 0 {
		t.Errorf("dials %d, errors %d", r.value("dials"), r.value("dial_errors"))
	}
}

// V13: what lies at PATH_<port> and does not serve.
func TestDialFails(t *testing.T) {
	r := newRig(t, nil)
	at := func(s string) string { return r.uds + "_" + s }
	r.serve(at("1"), unix.SOCK_STREAM)
	r.serve(at("2"), unix.SOCK_SEQPACKET)
	os.WriteFile(at("3"), nil, 0o600)
	os.Mkdir(at("4"), 0o700)
	os.Symlink(at("1"), at("5")) // to a socket that serves
	os.Symlink(at("nothing"), at("6"))
	stale, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	unix.Bind(stale, &unix.SockaddrUnix{Name: at("7")})
	unix.Close(stale)
	full, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	defer unix.Close(full)
	unix.Bind(full, &unix.SockaddrUnix{Name: at("8")})
	unix.Listen(full, 0)
	for {
		fd, errno := unixsock.Dial(at("8"), unix.SOCK_STREAM)
		if errno != 0 {
			break
		}
		defer unix.Close(fd)
	}
	before := openFDs(t)
	for _, c := range []struct {
		port  uint32
		typ   packet.Type
		errno unix.Errno
		log   string
	}{
		{1, packet.SeqPacket, unix.EPROTOTYPE, "another type"},
		{2, packet.Stream, unix.EPROTOTYPE, "another type"},
		{3, packet.Stream, unix.ENOTSOCK, "not a socket"},
		{4, packet.Stream, unix.ENOTSOCK, "not a socket"},
		{5, packet.Stream, unix.ELOOP, "symbolic link"},
		{6, packet.Stream, unix.ELOOP, "symbolic link"},
		{7, packet.Stream, unix.ECONNREFUSED, "nobody listens"},
		{8, packet.Stream, unix.EAGAIN, "backlog is full"},
		{9, packet.Stream, unix.ENOENT, "no such socket"},
	} {
		r.log = nil
		fd, connecting, errno := r.h.Dial(3, c.port, c.typ)
		if fd != -1 || connecting || errno != c.errno {
			t.Errorf("port %d: %d, %v, %v; want %v", c.port, fd, connecting, errno, c.errno)
		}
		if len(r.log) != 1 || !strings.Contains(r.log[0], c.log) || !strings.Contains(r.log[0], "guest 3: ") {
			t.Errorf("port %d: log %q, want %q", c.port, r.log, c.log)
		}
	}
	if n := openFDs(t); n != before || r.value("dial_errors") != 9 {
		t.Errorf("%d descriptors, %d before; %d errors", n, before, r.value("dial_errors"))
	}
	// No path at all.
	h, err := try(t, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if fd, _, errno := h.Dial(3, 1, packet.Stream); fd != -1 || errno != unix.ECONNREFUSED {
		t.Errorf("without a path: %d, %v", fd, errno)
	}
}

// A rule goes before the path, for its type of socket alone, and follows links.
func TestDialRules(t *testing.T) {
	var dir string
	r := newRig(t, func(c *Config) {
		dir = filepath.Dir(c.UDSPath)
		c.Connect = []Rule{
			connectRule(t, "vsock:1=unix:"+dir+"/rule"),
			connectRule(t, "vsock:2=unix:"+dir+"/link"),
			connectRule(t, "vsock:1=unix:"+dir+"/seq,type=seqpacket"),
		}
	})
	path := r.serve(r.uds+"_3", unix.SOCK_STREAM)
	rule := r.serve(dir+"/rule", unix.SOCK_STREAM)
	seq := r.serve(dir+"/seq", unix.SOCK_SEQPACKET)
	r.serve(r.uds+"_1", unix.SOCK_STREAM)
	os.Symlink(dir+"/rule", dir+"/link")
	r.from(1, packet.Stream, rule)
	r.from(2, packet.Stream, rule)
	r.from(1, packet.SeqPacket, seq)
	r.from(3, packet.Stream, path)
}

func TestDialTCP(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		domain, sa := Address{Network: TCP, TCP: netip.AddrPortFrom(netip.MustParseAddr(loopback), 0)}.sockaddr()
		l, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(l, sa)
		}
		if err != nil {
			t.Fatal(err)
		}
		at := bound(l, Address{Network: TCP, TCP: netip.AddrPortFrom(netip.MustParseAddr(loopback), 0)})
		r := newRig(t, func(c *Config) { c.Connect = []Rule{{Host: at, Port: 80, Type: packet.Stream}} })
		wait := func() unix.Errno { // as the device does
			fd, connecting, errno := r.h.Dial(3, 80, packet.Stream)
			if errno != 0 {
				return errno
			}
			defer unix.Close(fd)
			if connecting {
				if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 5000); err != nil {
					t.Fatal(err)
				}
			}
			if on, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); on == 0 {
				t.Error("Nagle is on")
			}
			e, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			return unix.Errno(e)
		}
		if e := wait(); e != unix.ECONNREFUSED {
			t.Errorf("%s, nobody listens: %v", loopback, e)
		}
		unix.Listen(l, 1)
		if e := wait(); e != 0 {
			t.Errorf("%s: %v", loopback, e)
		}
		unix.Close(l)
	}
	// What fails at once: no TCP to everybody.
	r := newRig(t, func(c *Config) { c.Connect = []Rule{connectRule(t, "vsock:80=tcp:255.255.255.255:80")} })
	before := openFDs(t)
	if fd, _, errno := r.h.Dial(3, 80, packet.Stream); fd != -1 || errno == 0 || openFDs(t) != before {
		t.Errorf("broadcast: %d, %v; %d descriptors, %d before", fd, errno, openFDs(t), before)
	}
}
