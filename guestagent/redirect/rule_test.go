package redirect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		rule, from, to string
		typ            int
		frame          bool
		path           Path
	}{
		{"unix:/run/a.sock=vsock:2:2375", "unix-listen:/run/a.sock", "vsock-connect:2:2375", unix.SOCK_STREAM, false, Auto},
		{"unix:/run/a=b,mode=0660=vsock:2:1,wait=5s,path=sockmap", "unix-listen:/run/a=b", "vsock-connect:2:1", unix.SOCK_STREAM, false, Sockmap},
		{"unix-dgram:/run/log=vsock:2:1234", "unix-recv:/run/log", "vsock-connect:2:1234", unix.SOCK_STREAM, true, Auto},
		{"unix-dgram:/run/log,mode=0666=vsock:2:1234,raw,path=copy", "unix-recv:/run/log", "vsock-connect:2:1234", unix.SOCK_STREAM, false, Copy},
		{"unix-seqpacket:/run/s=vsock:2:9", "unix-listen:/run/s", "vsock-connect:2:9", unix.SOCK_SEQPACKET, false, Auto},
		{"vsock:22=tcp:127.0.0.1:22", "vsock-listen:22", "tcp-connect:127.0.0.1:22", unix.SOCK_STREAM, false, Auto},
		{"vsock:5000,buffer=4M=unix:/run/app.sock,path=splice", "vsock-listen:5000", "unix-connect:/run/app.sock", unix.SOCK_STREAM, false, Splice},
		{"vsock:5001=unix-dgram:/dev/log", "vsock-listen:5001", "unix-connect:/dev/log", unix.SOCK_DGRAM, false, Auto},
		{"vsock:5002=unix-seqpacket:/run/s", "vsock-listen:5002", "unix-connect:/run/s", unix.SOCK_SEQPACKET, false, Auto},
		{"tcp:127.0.0.1:80=vsock:host:80", "tcp-listen:127.0.0.1:80", "vsock-connect:2:80", unix.SOCK_STREAM, false, Auto},
	} {
		r, err := Parse(tt.rule)
		if err != nil {
			t.Errorf("%s: %v", tt.rule, err)
			continue
		}
		if r.From.String() != tt.from || r.To.String() != tt.to || r.To.Type != tt.typ || r.To.Frame != tt.frame || r.Path != tt.path {
			t.Errorf("%s: %v - %v, type %d, frame %v, %v", tt.rule, &r.From, &r.To, r.To.Type, r.To.Frame, r.Path)
		}
	}
	r, err := Parse("unix-dgram:/run/log,mode=0622=vsock:2:1,raw,wait=3s")
	if err != nil || !r.From.Eager || r.From.Mode != 0o622 || r.To.Wait != 3*time.Second {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = Parse("vsock:5001=unix-dgram:/dev/log"); err != nil || !r.From.Frame {
		t.Errorf("datagrams from vsock are not framed: %+v, %v", r, err)
	}
}

func TestParseErrors(t *testing.T) {
	for rule, part := range map[string]string{
		"":                                "FROM=TO",
		"unix:/run/a.sock":                "FROM=TO",
		"udp:1=vsock:2:1":                 "FROM=TO",
		"unix:/a=unix:/b":                 "must be vsock",
		"vsock:1=vsock:2:1":               "must be vsock",
		"unix:/a=vsock:2":                 "needs a CID and a port",
		"unix:/a=vsock:2:x":               "no vsock port",
		"unix:/a=vsock:2:1,raw":           "raw is for datagrams",
		"unix-dgram:/a=vsock:2:1,raw=yes": "takes no value",
		"unix:/a=vsock:2:1,path=magic":    "path=magic",
		"unix:/a=vsock:2:1,path=messages": "path=messages",
		"unix:/a=vsock:2:1,mode=0600":     "no option \"mode\"",
		"unix:/a,wait=5s=vsock:2:1":       "no option \"wait\"",
		"unix:/a,mode=9=vsock:2:1":        "mode=9",
		"vsock:1=tcp:localhost":           "HOST:PORT",
		"unix:" + strings.Repeat("a", 200) + "=vsock:2:1": "at most 107",
	} {
		if _, err := Parse(rule); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want something with %q", rule, err, part)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n  - unix:/run/docker.sock=vsock:2:2375\n  - vsock:22=tcp:127.0.0.1:22\n")
	list, err := ReadFile(path)
	if err != nil || len(list) != 2 || list[1].Text != "vsock:22=tcp:127.0.0.1:22" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, s := range []string{"rules: [nonsense]\n", "ruler: []\n", "rules: 3\n"} {
		write(s)
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
