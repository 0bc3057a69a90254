package worker

import (
	"bytes"
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
