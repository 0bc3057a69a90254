package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
)

// asVsock is a UNIX listener whose clients come from a CID.
type asVsock struct {
	net.Listener
	cid, port uint32
}

type vsockConn struct {
	*net.UnixConn
	cid uint32
}

func (l asVsock) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return vsockConn{c.(*net.UnixConn), l.cid}, nil
}

func (l asVsock) Addr() net.Addr         { return &vsock.Addr{ContextID: 3, Port: l.port} }
func (c vsockConn) RemoteAddr() net.Addr { return &vsock.Addr{ContextID: c.cid, Port: 1000} }

// rig is a running Server whose vsock is UNIX sockets in dir, named by port.
type rig struct {
	t      *testing.T
	dir    string
	server *Server
	end    func() error

	mu   sync.Mutex
	next uint32
	log  []string
}

func newRig(t *testing.T, cid uint32) *rig {
	r := &rig{t: t, dir: t.TempDir(), next: 5000}
	l, err := r.listen(cid, proto.Port)
	if err != nil {
		t.Fatal(err)
	}
	r.server, err = New(Config{
		Listener: l, Setup: setup.New(setup.Config{Dir: filepath.Join(r.dir, "run")}), Version: "test",
		Listen: func(port uint32, _ int) (net.Listener, error) { return r.listen(cid, port) },
		Log: func(f string, a ...any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log = append(r.log, fmt.Sprintf(f, a...))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.server.Run(ctx) }()
	r.end = sync.OnceValue(func() error { cancel(); return <-ran })
	t.Cleanup(func() {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) listen(cid, port uint32) (net.Listener, error) {
	if port == 0 {
		r.next++
		port = r.next
	}
	l, err := net.Listen("unix", r.path(port))
	return asVsock{l, cid, port}, err
}

func (r *rig) path(port uint32) string { return filepath.Join(r.dir, fmt.Sprint(port)) }

func (r *rig) dial(port uint32) net.Conn {
	r.t.Helper()
	c, err := net.Dial("unix", r.path(port))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func (r *rig) client() *proto.Conn { return proto.NewConn(r.dial(proto.Port)) }

func (r *rig) logged(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.log, "\n"), part)
}

// Only the host is answered; others learn nothing, not even by how their request
// is refused.
func TestOnlyTheHost(t *testing.T) {
	for cid, answered := range map[uint32]bool{0: false, 1: false, 2: true, 3: false, 4: false, ^uint32(0): false} {
		t.Run(fmt.Sprint(cid), func(t *testing.T) {
			r := newRig(t, cid)
			var pong proto.Pong
			if err := r.client().Call(proto.Ping, proto.Empty{}, &pong); (err == nil) != answered {
				t.Fatalf("%v", err)
			}
			c := r.dial(proto.Port)
			if !answered {
				if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("it was told %q, %v", b, err)
				}
				if !r.logged("which is not the host") {
					t.Error("nobody was told")
				}
			}
		})
	}
	// An address of another family is nobody's CID.
	if fromHost(&net.UnixAddr{Name: "2"}) || fromHost(nil) {
		t.Error("a peer that is not by vsock is the host")
	}
}

func TestRequests(t *testing.T) {
	r := newRig(t, vsock.Host)
	c := r.client()
	var pong proto.Pong
	if err := c.Call(proto.Ping, proto.Empty{}, &pong); err != nil || pong.Version != "test" || time.Since(time.Unix(0, pong.Clock)).Abs() > time.Minute {
		t.Errorf("ping: %v, %+v", err, pong)
	}
	var info proto.GuestInfo
	if err := c.Call(proto.Info, proto.Empty{}, &info); err != nil {
		t.Fatal(err)
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	host, _ := os.Hostname()
	if info.Kernel != strings.TrimSpace(string(release)) || info.Hostname != host || info.CPUs < 1 || info.Memory <= info.Available || info.Available == 0 {
		t.Errorf("info: %+v", info)
	}
	if len(info.Links) == 0 || info.Links[0].Name != "lo" {
		t.Errorf("links: %+v", info.Links)
	}
	for _, q := range []struct {
		kind    proto.Kind
		request any
		want    string
	}{
		{99, proto.Empty{}, "does not know requests of kind 99"},
		{proto.Config, proto.Network{}, "does not know requests of kind 6"},
		{proto.Ping, map[string]int{"payload": 1}, "unknown field"},
		{proto.Time, proto.TimeRequest{Now: -5}, "no time of ours"},
		{proto.Expose, proto.ExposeRequest{Target: "exec:sh"}, "tcp:ADDRESS:PORT or unix:PATH"},
		{proto.Expose, proto.ExposeRequest{Target: "tcp:127.0.0.1"}, "tcp:ADDRESS:PORT"},
		{proto.Expose, proto.ExposeRequest{Port: 7, Stop: true}, "nothing is exposed at port 7"},
		{proto.Setup, proto.SetupRequest{}, "either config or undo"},
		{proto.Setup, proto.SetupRequest{Config: &proto.Network{MTU: 1}}, "mtu: 1 is not within"},
	} {
		var none proto.Empty
		err := c.Call(q.kind, q.request, &none)
		var no *proto.Refusal
		if !errors.As(err, &no) || !strings.Contains(no.Text, q.want) {
			t.Errorf("kind %d %v: %v, want %q", q.kind, q.request, err, q.want)
		}
	}
	var undone proto.Changed
	if err := c.Call(proto.Setup, proto.SetupRequest{Undo: true}, &undone); err != nil || len(undone.Changes) > 0 {
		t.Errorf("undo of nothing: %v, %q", err, undone.Changes)
	}
	if err := c.Call(proto.Ping, proto.Empty{}, &pong); err != nil {
		t.Errorf("refusals have ended the connection: %v", err)
	}
}

// Whatever a client sends, it loses its connection at most, and others are served.
func TestHostileClients(t *testing.T) {
	r := newRig(t, vsock.Host)
	frame, err := proto.Append(nil, proto.Ping, 1, proto.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for name, sent := range map[string]string{
		"huge":       "\xff\xff\xff\xff",
		"version":    strings.Replace(string(frame), "\x01", "\x02", 1),
		"text":       "GET / HTTP/1.1\r\n\r\n",
		"not json":   "\x00\x00\x00\x0a\x01\x01\x00\x00\x00\x00\x00\x01{{",
		"deep":       "\x00\x00\x00\x1c\x01\x01\x00\x00\x00\x00\x00\x01" + strings.Repeat("[", 20),
		"half":       string(frame[:7]),
		"good, then": string(frame) + "\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial(proto.Port)
			if _, err := c.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.UnixConn).CloseWrite()
			if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("not left: %v", err)
			}
			var pong proto.Pong
			if err := r.client().Call(proto.Ping, proto.Empty{}, &pong); err != nil {
				t.Errorf("the next client: %v", err)
			}
		})
	}
}

func TestManyClients(t *testing.T) {
	r := newRig(t, vsock.Host)
	var pong proto.Pong
	var clients []*proto.Conn
	for range maxClients {
		c := r.client()
		if err := c.Call(proto.Ping, proto.Empty{}, &pong); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	if err := r.client().Call(proto.Ping, proto.Empty{}, &pong); err == nil {
		t.Error("one more than fit was answered")
	}
	clients[0].Close()
	for range 200 { // until that is noticed
		if err := r.client().Call(proto.Ping, proto.Empty{}, &pong); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("a place that is free again is not given")
}

// echo is a service of the guest.
func echo(t *testing.T, network, address string) net.Listener {
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return l
}

func (r *rig) through(port uint32, text string) (string, error) {
	c := r.dial(port).(*net.UnixConn)
	defer c.Close()
	go func() {
		_, _ = c.Write([]byte(text))
		_ = c.CloseWrite()
	}()
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestExpose(t *testing.T) {
	r := newRig(t, vsock.Host)
	c := r.client()
	tcp := echo(t, "tcp", "127.0.0.1:0")
	unixPath := filepath.Join(r.dir, "echo")
	echo(t, "unix", unixPath)
	var a, b proto.Exposed
	if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "tcp:" + tcp.Addr().String()}, &a); err != nil || a.Port != 5001 {
		t.Fatalf("%v, %+v", err, a)
	}
	if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "unix:" + unixPath, Port: 4000}, &b); err != nil || b.Port != 4000 {
		t.Fatalf("%v, %+v", err, b)
	}
	long := strings.Repeat("guestwire ", 100000)
	for _, port := range []uint32{a.Port, b.Port} {
		if got, err := r.through(port, long); err != nil || got != long {
			t.Errorf("port %d: %d of %d bytes came back, %v", port, len(got), len(long), err)
		}
	}
	held := r.dial(b.Port)
	if _, err := held.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(held, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var again proto.Exposed
	if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "unix:/x", Port: 4000}, &again); err == nil || !strings.Contains(err.Error(), "stop that first") {
		t.Errorf("the same port again: %v", err)
	}
	var info proto.GuestInfo
	if err := c.Call(proto.Info, proto.Empty{}, &info); err != nil || len(info.Exposed) != 2 || info.Exposed[0] != (proto.Exposed{Port: 4000, Target: b.Target, Connections: 1}) {
		t.Errorf("%v, %+v", err, info.Exposed)
	}
	if err := c.Call(proto.Expose, proto.ExposeRequest{Port: 4000, Stop: true}, &again); err != nil || again.Connections != 1 {
		t.Errorf("stop: %v, %+v", err, again)
	}
	if _, err := net.Dial("unix", r.path(4000)); err == nil {
		t.Error("a stopped service is still there")
	}
	if _, err := held.Write([]byte("y")); err != nil {
		t.Error("stopping has ended a connection")
	}
	if _, err := io.ReadFull(held, make([]byte, 1)); err != nil {
		t.Error("stopping has ended a connection")
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if n, _ := held.Read(make([]byte, 1)); n != 0 {
		t.Error("a connection has outlived the agent")
	}
}

// Of an exposed service that nobody serves, clients learn by the end of their
// connection; descriptors do not pile up.
func TestExposeNobody(t *testing.T) {
	r := newRig(t, vsock.Host)
	c := r.client()
	var a proto.Exposed
	if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "unix:" + filepath.Join(r.dir, "nobody"), Port: 4000}, &a); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for range 100 {
		conn := r.dial(4000)
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatal("somebody answers")
		}
		conn.Close()
	}
	if after := descriptors(t); after > before+5 {
		t.Errorf("%d descriptors have become %d", before, after)
	}
	for port := uint32(4001); port < 4000+proto.MaxExposed; port++ {
		if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "unix:/x", Port: port}, &a); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Call(proto.Expose, proto.ExposeRequest{Target: "unix:/x"}, &a); err == nil || !strings.Contains(err.Error(), "16 services are exposed already") {
		t.Errorf("the 17th: %v", err)
	}
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
