package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guests.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func resolveFile(t *testing.T, text string) ([]Guest, error) {
	t.Helper()
	f, err := ReadGuests(writeFile(t, text))
	if err != nil {
		return nil, err
	}
	return f.Resolve(noHost)
}

func TestGuestsFile(t *testing.T) {
	guests, err := resolveFile(t, `
# two guests
guests:
  web:
    net:
      socket-path: /run/web.sock
      tcp-ports: [127.0.0.1/8080:80, 2222:22]
      mtu: 9000
      no-dhcp: true
      dns-host:
        - 192.0.2.1
        - 192.0.2.2:5353
    vsock:
      socket: "/run/web-vsock.sock"
      guest-cid: 3
      groups: a+b
  db:
    vsock: {socket-path: /run/db.sock, guest-cid: 4, uds-path: /run/db}
`)
	if err != nil {
		t.Fatal(err)
	}
	web, db := guests[0], guests[1]
	if web.Name != "web" || db.Name != "db" || db.Net != nil {
		t.Errorf("got guests %q and %q", web.Name, db.Name)
	}
	if n := web.Net; n.SocketPath != "/run/web.sock" || len(n.Forwards) != 2 || n.MTU != 9000 || !n.Off.DHCP || len(n.Upstream) != 2 || n.FD != -1 {
		t.Errorf("net of web: %+v", n)
	}
	if v := web.Vsock; v.SocketPath != "/run/web-vsock.sock" || v.CID != 3 || !slices.Equal(v.Groups, []string{"a", "b"}) {
		t.Errorf("vsock of web: %+v", v)
	}
	if v := db.Vsock; v.CID != 4 || v.TxBuffer != DefaultTxBuffer || v.MaxConns != DefaultMaxConns {
		t.Errorf("vsock of db: %+v", v)
	}
}

// C5: every mistake is answered by its place and by what would be right.
func TestWrongFiles(t *testing.T) {
	const web = "guests:\n  web:\n    net:\n      socket-path: /run/web.sock\n"
	const vsock = "    vsock:\n      socket-path: /run/v.sock\n      guest-cid: 3\n      uds-path: /run/v.vsock\n"
	for _, tt := range []struct {
		name, text string
		says       []string
	}{
		{"empty", "", []string{"guests.yaml: is empty"}},
		{"no YAML", "guests: [1\n", []string{":1:9:", "no YAML"}},
		{"key twice", web + "  web: {}\n", []string{":5:3:", "already"}},
		{"two documents", web + "---\na: 1\n", []string{":6:1:", "second document"}},
		{"a list", "- 1\n", []string{":1:1:", "mapping"}},
		{"another top", "guest:\n  a: {}\n", []string{":1:1:", `"guest"`, `did you mean "guests"`}},
		{"no guests", "guests: {}\n", []string{"names no guest"}},
		{"bad name", "guests:\n  a/b: {}\n", []string{":2:3:", "letters"}},
		{"no device", "guests:\n  web: {}\n", []string{":2:3:", "net, vsock"}},
		{"unknown device", web + "    disk: {}\n", []string{":5:5:", `"disk"`, "net, vsock"}},
		{"misspelt key", web + "      tcp-port: 80\n", []string{":5:7:", `"tcp-port"`, `did you mean "tcp-ports"`}},
		{"unknown key", web + "      colour: red\n", []string{":5:7:", `"colour"`, "the keys here are socket-path, client"}},
		{"descriptor", web + "      fd: 3\n", []string{":5:7:", `"fd"`}},
		{"both spellings", web + "      socket: /run/x\n", []string{":5:7:", "line 4"}},
		{"no value", web + "      mtu:\n", []string{":5:", "mtu", "no value"}},
		{"no number", web + "      mtu: big\n", []string{":5:12:", "mtu", `"big"`, "number"}},
		{"no bool", web + "      no-dns: maybe\n", []string{":5:15:", "true or false"}},
		{"list for one", web + "      mtu: [1500]\n", []string{":5:12:", "one value"}},
		{"mapping for one", web + "      mtu: {a: 1}\n", []string{":5:", "plain value"}},
		{"mapping in a list", web + "      tcp-ports: [80: 90]\n", []string{":5:", "plain value"}},
		{"list in a list", web + "      tcp-ports: [[80]]\n", []string{":5:", "plain value"}},
		{"anchor", web + "      mtu: &m 1500\n", []string{":5:7:", "anchors"}},
		{"wrong value", web + "      tcp-ports: 99999\n", []string{":5:7:", "guest web", "99999", "65535"}},
		{"missing socket", "guests:\n  web:\n    net:\n      mtu: 1500\n", []string{":4:7:", "guest web", "write the key socket-path"}},
		{"missing CID", web + "    vsock:\n      socket-path: /run/v\n", []string{":6:7:", "--guest-cid"}},
		{"host's CID", web + strings.Replace(vsock, "3", "2", 1), []string{":7:7:", "--guest-cid", "reserved"}},
		{"negative CID", web + strings.Replace(vsock, "3", "-3", 1), []string{":7:7:", "--guest-cid", "-3"}},
		{"same CID", web + vsock + "  db:\n    vsock:\n      guest-cid: 3\n      groups: x\n      socket-path: /run/db\n", []string{":11:7:", "guest db", "guest web", "line 7", "CID"}},
		{"same socket", web + "  db:\n    net:\n      socket-path: /run/../run/web.sock\n", []string{":7:7:", "guest db", "guest web (line 4)", "/run/web.sock"}},
		{"same socket twice in a guest", web + "    vsock:\n      guest-cid: 3\n      groups: x\n      socket-path: /run/web.sock\n", []string{":8:7:", "this guest's net"}},
		{"same port", web + "      tcp-ports: 8080:80\n  db:\n    net:\n      socket-path: /run/db\n      tcp-ports: [1000, 127.0.0.1/8000-8090]\n", []string{":9:7:", "guest db", "8000-8090", "guest web (line 5)", "port"}},
		{"nobody to meet", web + "    vsock:\n      guest-cid: 3\n      socket-path: /run/v\n", []string{":6:7:", "--uds-path", "--groups"}},
		{"long uds-path", web + vsock + "  db:\n    vsock:\n      guest-cid: 4\n      socket-path: /run/db\n      uds-path: /" + strings.Repeat("x", 100) + "\n", []string{":13:7:", "101 bytes", "96"}},
		{"same uds-path", web + vsock + "  db:\n    vsock:\n      guest-cid: 4\n      socket-path: /run/db\n      uds-path: /run/v.vsock\n", []string{":13:7:", "guest db", "guest web (line 8)", "socket"}},
		{"uds-path in the way of a suffix", web + vsock + "      listen: unix:/run/v.vsock_seqpacket=vsock:1\n", []string{":9:7:", "_seqpacket", "line 8"}},
		{"listen", web + vsock + "      listen: unix:/run/a\n", []string{":9:7:", "--listen", "vsock:1024"}},
		{"connect", web + vsock + "      connect: [vsock:1=unix:/a, unix:/run/a]\n", []string{":9:7:", "--connect", "vsock:PORT"}},
		{"connect twice", web + vsock + "      connect: [vsock:1=unix:/a, vsock:1=tcp:127.0.0.1:1]\n", []string{":9:7:", "unix:/a already"}},
		{"rule and forward", web + "      tcp-ports: 80\n" + vsock + "      listen: tcp:127.0.0.1:80=vsock:80\n", []string{":10:7:", "this guest's net (line 5)", "port"}},
		{"mode", web + vsock + "      uds-mode: 888\n", []string{":9:7:", "octal"}},
		{"owner", web + vsock + "      uds-owner: nobody-of-this-name\n", []string{":9:7:", "no user"}},
		{"wait", web + vsock + "      wait: 5\n", []string{":9:7:", "5s"}},
		{"ok-line", web + vsock + "      ok-line: maybe\n", []string{":9:7:", "always"}},
		{"wait for what", web + "    vsock:\n      guest-cid: 3\n      socket-path: /run/v\n      groups: a\n      wait: 5s\n", []string{":9:7:", "--uds-path"}},
		{"forward-cid", web + vsock + "      forward-cid: 4294967295\n", []string{":9:7:", "--forward-cid", "1 for this host"}},
		{"forward-listen", web + vsock + "      forward-listen: 9001+x\n", []string{":9:7:", "--forward-listen", "9001+9002"}},
		{"forward-listen with a CID", web + vsock + "      forward-listen: 9001+1:2\n", []string{":9:7:", "--forward-listen"}},
		{"forward-listen and listen", web + vsock + "      listen: vsock:9=vsock:1\n      forward-listen: 9\n", []string{"vsock:9", "port of the host"}},
		{"group name", web + vsock + "      groups: a+\n", []string{":9:7:", "--groups", "a+"}},
		{"queue size", web + vsock + "      queue-size: 100\n", []string{":9:7:", "power of two"}},
		{"buffer", web + vsock + "      tx-buffer-size: 1000\n", []string{":9:7:", "65536"}},
		{"buffer beyond 32 bits", web + vsock + "      tx-buffer-size: 4294967297\n", []string{":9:7:", "bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := resolveFile(t, tt.text)
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

// All that is wrong is told at once, in the order of the file.
func TestEveryMistakeIsTold(t *testing.T) {
	_, err := resolveFile(t, "guests:\n  a:\n    net:\n      mtuu: 1\n      mtu: x\n  b:\n    vsok: {}\n")
	if err == nil {
		t.Fatal("no error")
	}
	var at []string
	for _, l := range strings.Split(err.Error(), "\n") {
		_, l, _ = strings.Cut(l, "guests.yaml:")
		line, _, _ := strings.Cut(l, ":")
		at = append(at, line)
	}
	if want := []string{"4", "5", "6", "7"}; !slices.Equal(at, want) {
		t.Errorf("mistakes in lines %v, want %v:\n%v", at, want, err)
	}
}

// Different addresses, protocols and interfaces do not clash, nor do ports of
// the kernel's choice.
func TestNoClash(t *testing.T) {
	if _, err := resolveFile(t, `
guests:
  a: {net: {socket-path: /run/a, tcp-ports: [127.0.0.1/80:8080, 0:22]}}
  b: {net: {socket-path: /run/b, tcp-ports: [127.0.0.2/80:8080, 0:22], udp-ports: 80}}
`); err != nil {
		t.Error(err)
	}
}

// The file is that of vhost-device-vsock's --config (its README).
func TestVMsFile(t *testing.T) {
	f, err := ReadVMs(writeFile(t, `
vms:
    - guest_cid: 3
      socket: /tmp/vhost3.socket
      uds_path: /tmp/vm3.sock
      tx_buffer_size: 65536
      queue_size: 1024
      groups: group1+group2
    - guest_cid: 4
      socket: /tmp/vhost4.socket
      uds_path: /tmp/vm4.sock
      groups: group1
`))
	if err != nil {
		t.Fatal(err)
	}
	guests, err := f.Resolve(noHost)
	if err != nil {
		t.Fatal(err)
	}
	if v := guests[0].Vsock; len(guests) != 2 || v.CID != 3 || v.TxBuffer != 65536 || len(v.Groups) != 2 || v.SocketPath != "/tmp/vhost3.socket" {
		t.Errorf("got %+v", v)
	}
	for text, says := range map[string]string{
		"vms: 1\n":                   ":1:6:",
		"vms:\n  - guest_cd: 3\n":    `did you mean "guest-cid"`,
		"vm:\n  - guest_cid: 3\n":    `did you mean "vms"`,
		"vms:\n  - 7\n":              ":2:5:",
		"vms:\n  - {guest-cid: 3}\n": ":2:6:", // ReadVMs is happy, Resolve is not
	} {
		f, err := ReadVMs(writeFile(t, text))
		if err == nil {
			_, err = f.Resolve(noHost)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

func TestParseVM(t *testing.T) {
	o, err := ParseVM("guest-cid=3,socket=/tmp/vhost3.socket,uds-path=/tmp/vm3.sock,tx-buffer-size=65536,queue-size=1024,groups=group1+group2")
	if err != nil {
		t.Fatal(err)
	}
	if o.GuestCID != 3 || o.SocketPath != "/tmp/vhost3.socket" || o.UDSPath != "/tmp/vm3.sock" || o.QueueSize != 1024 || o.FD != -1 {
		t.Errorf("got %+v", o)
	}
	for text, says := range map[string]string{
		"":                        "key=value",
		"guest-cid":               "key=value",
		"guest-id=3":              `did you mean "guest-cid"`,
		"guest-cid=x":             "number",
		"guest-cid=3,guest-cid=4": "twice",
		"socket=/a,socket-path=/": "twice",
		"fd=3":                    "no key",
	} {
		if _, err := ParseVM(text); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "--vm") {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

func TestProcesses(t *testing.T) {
	guest := func(groups ...string) Guest { return Guest{Vsock: &Vsock{Groups: groups}} }
	for _, tt := range []struct {
		name   string
		guests []Guest
		want   [][]int
	}{
		{"none", nil, nil},
		{"alone", []Guest{{}, guest(), guest("a")}, [][]int{{0}, {1}, {2}}},
		{"a pair", []Guest{guest("a"), {}, guest("a")}, [][]int{{0, 2}, {1}}},
		{"by way of a third", []Guest{guest("a"), guest("b"), guest("c"), guest("a", "b")}, [][]int{{0, 1, 3}, {2}}},
		{"two pairs become one", []Guest{guest("x"), guest("a"), guest("b"), guest("a"), guest("b"), guest("b", "a")}, [][]int{{0}, {1, 2, 3, 4, 5}}},
	} {
		if got := Processes(tt.guests); !slices.EqualFunc(got, tt.want, slices.Equal[[]int]) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Whatever a file says, reading it ends with guests or with errors that stand in
// the file.
func FuzzGuestsFile(f *testing.F) {
	f.Add("guests:\n  web:\n    net: {socket-path: /run/a, tcp-ports: [80, 90]}\n    vsock:\n      guest-cid: 3\n")
	f.Add("guests: {a: {vsock: {fd: 1}}}")
	f.Add("vms:\n- guest_cid: 3\n")
	f.Add("a: &a [*a, <<: !!x {}]\n---\n? - 1\n: |\n  x")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(string) (*File, error){ReadGuests, ReadVMs} {
			file, err := read(path)
			if err != nil {
				continue
			}
			guests, err := file.Resolve(noHost)
			if err == nil && (len(guests) == 0 || Clash(guests) != nil) {
				t.Errorf("resolved to %d guests, clash: %v", len(guests), Clash(guests))
			}
		}
	})
}

// A --vm list either is wrong or gives a guest that can be served.
func FuzzVM(f *testing.F) {
	f.Add("guest-cid=3,socket=/a,uds-path=/b,groups=a+b")
	f.Add("guest-cid=3,socket=/a,listen=unix:/c=vsock:1,connect=vsock:2=tcp:127.0.0.1:3,forward-listen=1+2")
	f.Add("guest-cid=-1,tx-buffer-size=99999999999,queue-size=-8,uds-owner=:x,wait=1h")
	f.Fuzz(func(t *testing.T, list string) {
		guests, err := ResolveVMs([]string{list})
		if err != nil {
			return
		}
		v := guests[0].Vsock
		if v.CID < 3 || v.CID >= 1<<32-1 || v.SocketPath == "" || v.TxBuffer < MinTxBuffer || v.MaxConns < 1 || len(v.Groups) == 0 {
			t.Errorf("%q gives %+v", list, v)
		}
	})
}
