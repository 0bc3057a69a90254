package bridge

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/relay"
)

func TestParse(t *testing.T) {
	def := func(a Address) Address { a.UID, a.GID = -1, -1; return a }
	for _, tt := range []struct {
		s       string
		want    Address
		carries relay.Kind
		text    string // of String; "": s without its options
	}{
		{"unix-listen:/run/a.sock", Address{Path: "/run/a.sock", Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"unix-listen:@a,type=seqpacket,once", Address{Path: "@a", Type: unix.SOCK_SEQPACKET, Once: true}, relay.Seqpacket, ""},
		{"unix-listen:/a,mode=0660", Address{Path: "/a", Type: unix.SOCK_STREAM, Mode: os.FileMode(0o660)}, relay.Stream, ""},
		{"unix-connect:/a:b,type=dgram,wait=1m30s", Address{Path: "/a:b", Type: unix.SOCK_DGRAM, Wait: 90 * time.Second}, relay.Datagram, ""},
		{"unix-recv:/dev/log", Address{Path: "/dev/log", Type: unix.SOCK_DGRAM}, relay.Datagram, ""},
		{"uds:/run/vm:1.vsock:22,frame", Address{Path: "/run/vm:1.vsock", Port: 22, Type: unix.SOCK_STREAM, Frame: true}, relay.Framed, ""},
		{"vsock-listen:1024", Address{CID: unix.VMADDR_CID_ANY, Port: 1024, Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"vsock-listen:any:5", Address{CID: unix.VMADDR_CID_ANY, Port: 5, Type: unix.SOCK_STREAM}, relay.Stream, "vsock-listen:5"},
		{"vsock-listen:1:1024,buffer=4M", Address{CID: 1, Port: 1024, Type: unix.SOCK_STREAM, Buffer: 4 << 20}, relay.Stream, ""},
		{"vsock-connect:host:4294967294,type=seqpacket,buffer=512K", Address{CID: 2, Port: 4294967294, Type: unix.SOCK_SEQPACKET, Buffer: 512 << 10}, relay.Seqpacket, "vsock-connect:2:4294967294"},
		{"tcp-listen:[::1]:0", Address{HostPort: "[::1]:0", Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"tcp-listen::80", Address{HostPort: ":80", Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"tcp-connect:example.org:443", Address{HostPort: "example.org:443", Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"stdio", Address{Type: unix.SOCK_STREAM}, relay.Stream, ""},
		{"stdio,frame", Address{Type: unix.SOCK_STREAM, Frame: true}, relay.Framed, ""},
		{"exec:cut -d: -f1,2", Address{Command: "cut -d: -f1,2", Type: unix.SOCK_STREAM}, relay.Stream, "exec:cut -d: -f1,2"},
	} {
		t.Run(tt.s, func(t *testing.T) {
			a, err := Parse(tt.s)
			if err != nil {
				t.Fatal(err)
			}
			text := tt.text
			if text == "" {
				text, _, _ = strings.Cut(tt.s, ",")
			}
			if got := a.String(); got != text {
				t.Errorf("is written %q, want %q", got, text)
			}
			if got := a.carries(); got != tt.carries {
				t.Errorf("carries %d, want %d", got, tt.carries)
			}
			a.kind = nil
			if want := def(tt.want); a != want {
				t.Errorf("got %+v, want %+v", a, want)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	for s, want := range map[string][2]int{"7": {7, -1}, "7:8": {7, 8}, ":8": {-1, 8}, "root:root": {0, 0}} {
		a, err := Parse("unix-recv:/a,owner=" + s)
		if s == "root:root" && os.Geteuid() != 0 {
			if err == nil {
				t.Error("gives files to root without being root")
			}
			continue
		}
		if err != nil || a.UID != want[0] || a.GID != want[1] {
			t.Errorf("owner=%s: %d:%d, %v", s, a.UID, a.GID, err)
		}
	}
}

// Every wrong address is answered by what would be right.
func TestWrongAddresses(t *testing.T) {
	for _, tt := range []struct{ s, says string }{
		{"", "unix-listen:PATH"},
		{"unix:/a", "unix-connect:PATH"},
		{"unix-listen:", "unix-listen:PATH"},
		{"unix-listen:/" + strings.Repeat("a", 107), "107"},
		{"uds:/a", "uds:/a\": the guest's port"},
		{"uds:/a:ssh", "4294967294"},
		{"vsock-listen:", "0 to 4294967294"},
		{"vsock-listen:4294967295", "0 to 4294967294"},
		{"vsock-connect:22", "vsock-connect:CID:PORT"},
		{"vsock-connect:vm:22", "use a number, 2 or host"},
		{"vsock-connect:any:22", "any CID"},
		{"tcp-connect:localhost", "127.0.0.1:80"},
		{"tcp-connect:localhost:0", "1 to 65535"},
		{"tcp-connect::80", "host is missing"},
		{"tcp-listen:127.0.0.1:99999", "1 to 65535"},
		{"stdio:x", "nothing may follow"},
		{"exec:", "exec:COMMAND"},
		{"exec: ", "exec:COMMAND"},
		{"unix-listen:/a,fork", "type, frame, once, mode, owner"},
		{"unix-listen:/a,", "type, frame, once, mode, owner"},
		{"unix-connect:/a,b", "cannot be part of a path"},
		{"unix-listen:/a,mode=rw", "0660"},
		{"unix-listen:/a,mode=0", "0660"},
		{"unix-listen:/a,mode=07777", "0660"},
		{"unix-listen:/a,owner=nobody-of-this-name", "no user"},
		{"unix-listen:/a,owner=", "USER:GROUP"},
		{"unix-listen:/a,once=yes", "no value"},
		{"unix-listen:/a,mode", "mode=VALUE"},
		{"unix-listen:/a,type=packet", "stream, seqpacket or dgram"},
		{"unix-listen:/a,type=dgram", "unix-recv:/a"},
		{"unix-listen:/a,type=seqpacket,frame", "frame is for streams"},
		{"vsock-connect:2:1,type=dgram", "no vsock datagrams"},
		{"vsock-connect:2:1,buffer=lots", "4M"},
		{"vsock-connect:2:1,buffer=2000M", "1024M"},
		{"vsock-connect:2:1,buffer=255K", "256K"},
		{"vsock-connect:2:1,wait=5", "500ms"},
		{"vsock-connect:2:1,wait=-5s", "500ms"},
	} {
		if _, err := Parse(tt.s); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q in it", tt.s, err, tt.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"unix-listen:/a,mode=0660", "uds:/a:22", "vsock-connect:2:1,buffer=4M", "exec:a,b", "tcp-listen:[::1]:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		b, err := Parse(a.String())
		if err != nil || b.String() != a.String() {
			t.Errorf("%q is written %q, which is read as %q, %v", s, a.String(), b.String(), err)
		}
	})
}
