package worker

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/cmd/config"
	"guestwire/translate/dns"
	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func resolve(t *testing.T, o config.Options) *config.Net {
	t.Helper()
	o.SocketPath, o.FD = filepath.Join(t.TempDir(), "s"), -1
	c, err := config.Resolve(&o, config.ReadHostNet)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A worker starts within the promised 50 ms, runs, tells its counters, stops,
// and leaves neither socket nor descriptor behind.
func TestLife(t *testing.T) {
	for _, o := range []config.Options{{}, {Transport: "stream"}, {TCPPorts: []string{"127.0.0.1/0:80"}}} {
		before := descriptors(t)
		c := resolve(t, o)
		w, err := New([]config.Guest{{Net: c}}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run() }()
		var out bytes.Buffer
		w.PrintStats(&out)
		if !strings.Contains(out.String(), "loop_turns ") || !strings.Contains(out.String(), "net_tx_frames 0\n") {
			t.Errorf("statistics:\n%s", &out)
		}
		if len(o.TCPPorts) > 0 && !strings.Contains(w.Forwards(), "tcp 127.0.0.1:") {
			t.Errorf("forwards: %q", w.Forwards())
		}
		w.Stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Second):
			t.Fatal("still running 2 s after Stop")
		}
		w.Close()
		if _, err := os.Lstat(c.SocketPath); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	}
}

// Who asks a worker whose loop has ended gets an answer, too: one who waited for
// ever could pass no signal on any more.
func TestStatisticsOfTheDead(t *testing.T) {
	for name, end := range map[string]func(w *Worker){
		"stopped": func(w *Worker) { w.Stop() },
		"fell over and over": func(w *Worker) {
			for range 2 {
				_ = w.loop.Do(func() { panic("a fault") })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := New([]config.Guest{{Net: resolve(t, config.Options{})}}, quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			end(w)
			_ = w.Run()
			told := make(chan string)
			go func() {
				var out bytes.Buffer
				w.PrintStats(&out)
				told <- out.String()
			}()
			select {
			case s := <-told:
				if !strings.Contains(s, "not to be had") {
					t.Errorf("%q", s)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no answer")
			}
		})
	}
}

// What cannot be opened fails New, and everything opened before is closed.
func TestNewFailsClean(t *testing.T) {
	before := descriptors(t)
	c := resolve(t, config.Options{})
	c.SocketPath = "/no/such/folder/s"
	if _, err := New([]config.Guest{{Net: c}}, quiet()); err == nil || !strings.Contains(err.Error(), c.SocketPath) {
		t.Errorf("got %v, want an error that names the path", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Two siblings and a third guest on one loop: every device is reached, every
// counter says whose it is, and nothing is left behind.
func TestSeveralGuests(t *testing.T) {
	before := descriptors(t)
	dir := t.TempDir()
	var guests []config.Guest
	for i, o := range []config.GuestOptions{
		{Name: "web", Net: &config.Options{}, Vsock: &config.VsockOptions{GuestCID: 3, UDSPath: filepath.Join(dir, "web"), Groups: []string{"a+b"}}},
		{Name: "db", Vsock: &config.VsockOptions{GuestCID: 4, Groups: []string{"b"}}},
		{Name: "lone", Net: &config.Options{Transport: "stream"}},
	} {
		if o.Net != nil {
			o.Net.SocketPath, o.Net.FD = filepath.Join(dir, fmt.Sprint("net", i)), -1
		}
		if o.Vsock != nil {
			o.Vsock.SocketPath, o.Vsock.FD = filepath.Join(dir, fmt.Sprint("vsock", i)), -1
		}
		g, err := o.Resolve(config.ReadHostNet)
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, g)
	}
	w, err := New(guests, quiet())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"net0 (vhost-user)", "vsock0 (vhost-user vsock, CID 3)", "unix:" + dir + "/web", "vsock1", "net2 (stream)"} {
		if !strings.Contains(w.Ready(), s) {
			t.Errorf("the ready line %q does not say %q", w.Ready(), s)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run() }()
	for i := range 2 { // both are vhost-user backends that answer
		f, err := vhostuser.DialFrontend(filepath.Join(dir, fmt.Sprint("vsock", i)))
		if err != nil {
			t.Fatal(err)
		}
		if bits, err := f.GetFeatures(); err != nil || bits&vsockbridge.FSeqPacket == 0 {
			t.Errorf("features of guest %d: %x, %v", i, bits, err)
		}
		f.Close()
	}
	var out bytes.Buffer
	w.PrintStats(&out)
	for _, name := range []string{"loop_turns ", "\nweb.net_tx_frames 0\n", "\nweb.vsock_connections 0\n", "\ndb.vsock_host_clients 0\n", "\nlone.host_"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("the statistics lack %q:\n%s", name, &out)
		}
	}
	w.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.Close()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// One guest that cannot be served keeps the worker from starting, and says which
// guest it is; the devices of the others are closed again.
func TestOneOfSeveralFails(t *testing.T) {
	before := descriptors(t)
	dir := t.TempDir()
	var guests []config.Guest
	for i, path := range []string{filepath.Join(dir, "good"), "/no/such/folder/v"} {
		v, err := config.ResolveVsock(&config.VsockOptions{SocketPath: path, FD: -1, GuestCID: int64(3 + i), UDSPath: filepath.Join(dir, fmt.Sprint("uds", i))})
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, config.Guest{Name: []string{"good", "bad"}[i], Vsock: v})
	}
	if _, err := New(guests, quiet()); err == nil || !strings.Contains(err.Error(), "guest bad") || !strings.Contains(err.Error(), "/no/such/folder/v") {
		t.Errorf("got %v, want an error that names guest and path", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Groups are by name: who shares a name shares the group, and nobody else.
func TestGroups(t *testing.T) {
	w := &Worker{groups: map[string]*vsockbridge.Group{}}
	if a, b := w.group("a"), w.group("b"); a == nil || a == b || w.group("a") != a {
		t.Error("groups are mixed up")
	}
}

// What is withheld is not offered.
func TestWithheldVsock(t *testing.T) {
	all := withheldVsock(&config.VsockWithhold{Seqpacket: true, EventIdx: true, Indirect: true, InOrder: true})
	// virtio 1.3: SEQPACKET is bit 1 (5.10.3), INDIRECT_DESC 28, EVENT_IDX 29, IN_ORDER 35 (6).
	if want := uint64(1<<1 | 1<<28 | 1<<29 | 1<<35); all != want || withheldVsock(&config.VsockWithhold{}) != 0 {
		t.Errorf("got %x, want %x", all, want)
	}
}

func TestResolver(t *testing.T) {
	r := resolver{}
	if !r.set(dns.ParseResolvConf([]byte("nameserver 192.0.2.1\nsearch example.org\n"))) {
		t.Error("the first content is no change")
	}
	if r.set(dns.ParseResolvConf([]byte("# same\nnameserver 192.0.2.1\nsearch example.org\n"))) {
		t.Error("the same content is a change")
	}
	if want := netip.MustParseAddrPort("192.0.2.1:53"); len(r.Upstreams()) != 1 || r.Upstreams()[0] != want {
		t.Errorf("upstreams %v", r.Upstreams())
	}
	if !r.set(dns.ResolvConf{}) || len(r.Upstreams()) != 0 {
		t.Errorf("a file that is gone leaves %v", r.Upstreams())
	}
	fixed := resolver{fixedUp: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:5353")}}
	fixed.set(dns.ParseResolvConf([]byte("nameserver 192.0.2.1\nsearch example.org\n")))
	if fixed.Upstreams()[0].Port() != 5353 || fixed.Search()[0] != "example.org" {
		t.Errorf("--dns-host gives %v %v", fixed.Upstreams(), fixed.Search())
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
