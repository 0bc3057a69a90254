package setup

import (
	"os"
	"path/filepath"
	"testing"
)

// fakeResolvectl is a program that answers as systemd's does (format of systemd
// 252 to 262) from what it was told before, and notes how it was called.
const fakeResolvectl = `#!/bin/sh
echo "$@" >>$STATE/calls
case $1 in
status) [ -e $STATE/down ] && exit 1; exit 0;;
dns|domain)
	what=$1; link=$2
	if [ $# = 2 ]; then echo "Link 2 ($link): $(cat $STATE/$what 2>/dev/null)"; exit 0; fi
	shift 2; echo "$@" >$STATE/$what;;
esac
`

// resolvedMachine has /etc/resolv.conf as systemd-resolved wants it.
func resolvedMachine(t *testing.T) (m *machine, dir string) {
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "resolvectl"), []byte(fakeResolvectl), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("STATE", dir)
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.Symlink("run/systemd/resolve/stub-resolv.conf", conf); err != nil {
		t.Fatal(err)
	}
	return &machine{c: Config{Dir: dir, ResolvConf: conf}}, dir
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestResolved(t *testing.T) {
	m, dir := resolvedMachine(t)
	want := "nameserver 10.0.2.3\nnameserver fd67::3\nsearch a.example b.example\n"
	if got, err := m.readDNS("eth0"); err != nil || got != "" {
		t.Errorf("at first %q, %v", got, err)
	}
	if err := m.apply("eth0", Change{Key: Key{DNS, ""}, To: want}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "dns")) + content(t, filepath.Join(dir, "domain")); got != "10.0.2.3 fd67::3\na.example b.example\n" {
		t.Errorf("it was told %q", got)
	}
	if got, err := m.readDNS("eth0"); err != nil || got != want {
		t.Errorf("then %q, %v", got, err)
	}
	if err := m.apply("eth0", Change{Key: Key{DNS, ""}, From: want}); err != nil {
		t.Fatal(err)
	}
	if got, err := m.readDNS("eth0"); err != nil || got != "" {
		t.Errorf("undone %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
		t.Error("the file was written as well")
	}
}

// The link is there and systemd-resolved is not: the file that it would have
// written is written.
func TestResolvedNotRunning(t *testing.T) {
	m, dir := resolvedMachine(t)
	if err := os.WriteFile(filepath.Join(dir, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "nameserver 10.0.2.3\n"
	if err := m.apply("eth0", Change{Key: Key{DNS, ""}, To: want}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "run/systemd/resolve/stub-resolv.conf")); got != want {
		t.Errorf("%q", got)
	}
	if got, err := m.readDNS("eth0"); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}

func TestResolvConfTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, make([]byte, maxResolvConf+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&machine{c: Config{ResolvConf: path}}).readDNS("eth0"); err == nil {
		t.Error("it was read")
	}
}
