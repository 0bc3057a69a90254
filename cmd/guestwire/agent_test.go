package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/vsock"

	agent "guestwire/guestagent/serve"
	"guestwire/guestagent/setup"
)

// hybrid is the host's end of a vsock device: a UNIX socket whose clients, after
// their CONNECT line, are the agent's.
type hybrid struct {
	net.Listener
	lines chan string
}

type fromHost struct {
	net.Conn
	r *bufio.Reader
}

func (c fromHost) Read(b []byte) (int, error) { return c.r.Read(b) }
func (c fromHost) RemoteAddr() net.Addr       { return &vsock.Addr{ContextID: vsock.Host, Port: 1000} }

func (h hybrid) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(c)
	line, _ := r.ReadString('\n')
	h.lines <- line
	_, err = c.Write([]byte("OK 1234\n"))
	return fromHost{c, r}, err
}

// startAgent runs an agent behind a UNIX socket and returns the path of it.
func startAgent(t *testing.T) (path string, lines chan string) {
	dir := t.TempDir()
	path = filepath.Join(dir, "vm.vsock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	lines = make(chan string, 100)
	s, err := agent.New(agent.Config{
		Listener: hybrid{l, lines}, Setup: setup.New(setup.Config{Dir: filepath.Join(dir, "run")}), Version: "9.9",
		Listen: func(port uint32, _ int) (net.Listener, error) {
			return net.Listen("unix", filepath.Join(dir, strconv.Itoa(int(port))))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path, lines
}

func TestCtlAgent(t *testing.T) {
	path, lines := startAgent(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("mtu: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		output string // part of it
		err    string
	}{
		{"ping", "agent 9.9 answered in ", ""},
		{"info", "link       lo ", ""},
		{"info --json", `"version": "9.9"`, ""},
		{"expose --port 4000 tcp:127.0.0.1:80", "tcp:127.0.0.1:80 is at vsock port 4000\n", ""},
		{"info", "exposed    vsock port 4000: tcp:127.0.0.1:80, 0 connections\n", ""},
		{"expose --stop 4000", "tcp:127.0.0.1:80 is no longer at vsock port 4000; 0 connections go on\n", ""},
		{"expose --stop 4000", "", "the agent: nothing is exposed at port 4000"},
		{"expose nonsense", "", "write tcp:ADDRESS:PORT or unix:PATH"},
		{"expose", "", "write tcp:ADDRESS:PORT or unix:PATH"},
		{"setup --undo", "", ""},
		{"setup", "", "either a file or --undo"},
		{"setup --undo " + bad, "", "either a file or --undo"},
		{"setup " + bad, "", "mtu: 1 is not within"},
		{"setup /no/such/file", "", "no such file"},
		{"time --how slowly", "", "write auto, step or slew"},
		{"ping pong", "", `"pong" is too much`},
		{"pong", "", `no command "pong"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out bytes.Buffer
			app := newApp()
			app.Writer = &out
			err := app.Run(append([]string{"guestwire", "ctl", "agent", "--uds-path", path}, strings.Fields(c.args)...))
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if !strings.Contains(out.String(), c.output) {
				t.Errorf("there is no %q in:\n%s", c.output, &out)
			}
		})
	}
	if line := <-lines; line != "CONNECT 1023\n" {
		t.Errorf("the request is %q", line)
	}
	err := newApp().Run([]string{"guestwire", "ctl", "agent", "--uds-path", path + "-not", "ping"})
	if err == nil || !strings.Contains(err.Error(), "no vsock device at ") {
		t.Errorf("without a device: %v", err)
	}
}

func TestAgentUsage(t *testing.T) {
	for args, want := range map[string]string{
		"agent stup":                          `no command "stup"`,
		"agent setup eth0":                    `"eth0" is too much`,
		"agent setup --undo --follow":         "--undo: excludes",
		"agent setup --follow --from cmdline": "only the host changes",
		"agent serve 1024":                    `"1024" is too much`,
		"agent serve --port 0":                "use 1 to",
		"ctl agents":                          `no command "agents"`,
		"ctl agent ping":                      "uds-path",
	} {
		err := newApp().Run(append([]string{"guestwire"}, strings.Fields(args)...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestSystemd(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		pid, fds string
		err      bool
	}{{"", "", false}, {"1", "1", false}, {own, "", false}, {own, "0", false}, {own, "x", false}, {own, "2", true}} {
		t.Setenv("LISTEN_PID", c.pid)
		t.Setenv("LISTEN_FDS", c.fds)
		if f, err := systemdSocket(); f != nil || (err != nil) != c.err {
			t.Errorf("%+v: %v, %v", c, f, err)
		}
	}
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	notifySystemd("READY=1")
	_ = l.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 100)
	if n, err := l.Read(b); err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("%q, %v", b[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", path+"-gone") // nobody there is no error
	notifySystemd("READY=1")
}
