package hostside

import (
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

func tcp(s string) Address { return Address{Network: TCP, TCP: netip.MustParseAddrPort(s)} }

func TestParseListen(t *testing.T) {
	for s, want := range map[string]Rule{
		"unix:/run/a.sock=vsock:1024":                   {Host: Address{Network: Unix, Path: "/run/a.sock"}, Port: 1024, Type: packet.Stream},
		"unix:a=b=vsock:1024":                           {Host: Address{Network: Unix, Path: "a=b"}, Port: 1024, Type: packet.Stream},
		"unix:@name,type=seqpacket=vsock:0":             {Host: Address{Network: Unix, Path: "@name"}, Type: packet.SeqPacket},
		"unix:/s,mode=0660,owner=7:8,wait=5s=vsock:1":   {Host: Address{Network: Unix, Path: "/s"}, Port: 1, Type: packet.Stream, Wait: 5 * time.Second, File: File{0o660, 7, 8}},
		"unix:/s,owner=:8,type=stream=vsock:4294967294": {Host: Address{Network: Unix, Path: "/s"}, Port: 4294967294, Type: packet.Stream, File: File{0, 0, 8}},
		"tcp:127.0.0.1:80=vsock:80":                     {Host: tcp("127.0.0.1:80"), Port: 80, Type: packet.Stream},
		"tcp:[::1]:80,wait=1h=vsock:80":                 {Host: tcp("[::1]:80"), Port: 80, Type: packet.Stream, Wait: time.Hour},
		"tcp:[::ffff:1.2.3.4]:80=vsock:80":              {Host: tcp("1.2.3.4:80"), Port: 80, Type: packet.Stream},
		"tcp:my-host.example:80=vsock:80":               {Host: Address{Network: TCP, Name: "my-host.example", TCP: netip.AddrPortFrom(netip.Addr{}, 80)}, Port: 80, Type: packet.Stream},
		"vsock:9=vsock:10":                              {Host: Address{Network: Vsock, CID: unix.VMADDR_CID_ANY, Port: 9}, Port: 10, Type: packet.Stream},
		"vsock:1:9,type=seqpacket=vsock:10":             {Host: Address{Network: Vsock, CID: 1, Port: 9}, Port: 10, Type: packet.SeqPacket},
	} {
		if got, err := ParseListen(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", s, got, err, want)
		}
	}
}

func TestParseConnect(t *testing.T) {
	for s, want := range map[string]Rule{
		"vsock:1234=unix:/run/b.sock":              {Host: Address{Network: Unix, Path: "/run/b.sock"}, Port: 1234, Type: packet.Stream},
		"vsock:1234=unix:/run/b=c":                 {Host: Address{Network: Unix, Path: "/run/b=c"}, Port: 1234, Type: packet.Stream},
		"vsock:1234=unix:/b,type=seqpacket":        {Host: Address{Network: Unix, Path: "/b"}, Port: 1234, Type: packet.SeqPacket},
		"vsock:22=tcp:127.0.0.1:22":                {Host: tcp("127.0.0.1:22"), Port: 22, Type: packet.Stream},
		"vsock:9=vsock:2:9":                        {Host: Address{Network: Vsock, CID: 2, Port: 9}, Port: 9, Type: packet.Stream},
		"vsock:9=vsock:4294967294:4294967294":      {Host: Address{Network: Vsock, CID: 4294967294, Port: 4294967294}, Port: 9, Type: packet.Stream},
		"vsock:22=tcp:db:5432,type=stream":         {Host: Address{Network: TCP, Name: "db", TCP: netip.AddrPortFrom(netip.Addr{}, 5432)}, Port: 22, Type: packet.Stream},
		"vsock:53=tcp:[2001:db8::53]:53":           {Host: tcp("[2001:db8::53]:53"), Port: 53, Type: packet.Stream},
		"vsock:0=unix:" + strings.Repeat("x", 107): {Host: Address{Network: Unix, Path: strings.Repeat("x", 107)}, Type: packet.Stream},
	} {
		if got, err := ParseConnect(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", s, got, err, want)
		}
	}
}

// Every error says what would be right.
func TestParseErrors(t *testing.T) {
	for s, want := range map[string]string{
		"":                         "write HOST=vsock:PORT",
		"unix:/run/a.sock":         "write HOST=vsock:PORT",
		"unix:/run/a.sock=1024":    "write HOST=vsock:PORT",
		"unix:/a=vsock:":           "no vsock port",
		"unix:/a=vsock:x":          "no vsock port",
		"unix:/a=vsock:-1":         "no vsock port",
		"unix:/a=vsock:4294967295": "no vsock port",
		"unix:/a=vsock:3:1024":     "without a CID",
		"unix:=vsock:1":            "empty",
		"/run/a.sock=vsock:1":      "write unix:PATH",
		"udp:127.0.0.1:1=vsock:1":  "write unix:PATH",
		"unix:/" + strings.Repeat("x", 107) + "=vsock:1": "at most 107",
		"unix:/a,mode=999=vsock:1":                       "octal",
		"unix:/a,mode=01777=vsock:1":                     "octal",
		"unix:/a,mode=0=vsock:1":                         "octal",
		"unix:/a,owner==vsock:1":                         "USER:GROUP",
		"unix:/a,owner=no-such-user=vsock:1":             "no user",
		"unix:/a,owner=1:no-such-group=vsock:1":          "no group",
		"unix:/a,type=dgram=vsock:1":                     "stream or seqpacket",
		"unix:/a,wait=5=vsock:1":                         "like 5s",
		"unix:/a,wait=-5s=vsock:1":                       "like 5s",
		"unix:/a,wait=61m=vsock:1":                       "up to 1h",
		"unix:/a,colour=red=vsock:1":                     "mode=, owner=, type= and wait=",
		"unix:/a,=vsock:1":                               "", // an empty option list is none
		"unix:/a,,mode=0660=vsock:1":                     "mode=, owner=, type= and wait=",
		"tcp:127.0.0.1:80,mode=0600=vsock:1":             "type= and wait=",
		"tcp:127.0.0.1:80,type=seqpacket=vsock:1":        "TCP has no messages",
		"tcp:80=vsock:1":                                 "lacks its port",
		"tcp::80=vsock:1":                                "neither an address nor a name",
		"tcp:1.2.3.4.5:80=vsock:1":                       "neither an address nor a name",
		"tcp:::1:80=vsock:1":                             "neither an address nor a name",
		"tcp:host:65536=vsock:1":                         "no TCP port",
		"tcp:[fe80::1%eth0]:80=vsock:1":                  "zone",
		"vsock:x:9=vsock:1":                              "no CID",
		"vsock:4294967295:9=vsock:1":                     "no CID",
	} {
		_, err := ParseListen(s)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", s, err, want)
		}
	}
	for s, want := range map[string]string{
		"":                               "write vsock:PORT=HOST",
		"1234=unix:/b":                   "write vsock:PORT=HOST",
		"vsock:1234":                     "write vsock:PORT=HOST",
		"unix:/b=vsock:1234":             "write vsock:PORT=HOST",
		"vsock:3:1234=unix:/b":           "without a CID",
		"vsock:1=vsock:9":                "lacks the CID",
		"vsock:1=unix:/b,wait=5s":        "type= alone",
		"vsock:1=unix:/b,mode=0600":      "type= alone",
		"vsock:1=tcp:h:1,type=seqpacket": "TCP has no messages",
	} {
		if _, err := ParseConnect(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", s, err, want)
		}
	}
}

func TestParseOwner(t *testing.T) {
	if uid, gid, err := ParseOwner("root:root"); os.Geteuid() == 0 && (uid != 0 || gid != 0 || err != nil) {
		t.Errorf("root: %d:%d, %v", uid, gid, err)
	} else if os.Geteuid() != 0 && err == nil {
		t.Error("gives files to root without being root")
	}
	if uid, gid, err := ParseOwner("12:34"); uid != 12 || gid != 34 || err != nil {
		t.Errorf("12:34: %d:%d, %v", uid, gid, err)
	}
}

// What is written in a rule is what it says of itself, and what the kernel gets.
func TestAddresses(t *testing.T) {
	for s, want := range map[string]unix.Sockaddr{
		"unix:/run/a.sock":    &unix.SockaddrUnix{Name: "/run/a.sock"},
		"tcp:192.0.2.1:80":    &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 80},
		"tcp:[2001:db8::1]:8": &unix.SockaddrInet6{Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}, Port: 8},
		"vsock:2:1024":        &unix.SockaddrVM{CID: 2, Port: 1024},
		"vsock:1024":          &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: 1024},
	} {
		a, err := parseAddress(s, true)
		if err != nil || a.String() != s {
			t.Errorf("%s: %v, %v", s, a, err)
		}
		if _, sa := a.sockaddr(); !reflect.DeepEqual(sa, want) {
			t.Errorf("%s: %+v, want %+v", s, sa, want)
		}
	}
	if a, err := parseAddress("tcp:some.host:80", false); err != nil || a.String() != "tcp:some.host:80" {
		t.Errorf("%v, %v", a, err)
	}
}

func FuzzRules(f *testing.F) {
	for _, s := range []string{"unix:/run/a.sock,mode=0660,wait=5s=vsock:1024", "tcp:[::1]:80=vsock:80", "vsock:9=vsock:10",
		"vsock:1=unix:/b,type=seqpacket", "vsock:9=vsock:2:9", "vsock:22=tcp:host:22"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for listen, parse := range map[bool]func(string) (Rule, error){true: ParseListen, false: ParseConnect} {
			r, err := parse(s)
			if err != nil {
				if err.Error() == "" || !reflect.DeepEqual(r, Rule{}) {
					t.Errorf("%q: error %q with rule %+v", s, err, r)
				}
				continue
			}
			if r.Type != packet.Stream && r.Type != packet.SeqPacket || r.Port == unix.VMADDR_PORT_ANY || len(r.Host.Path) > 107 || r.Wait > MaxWait {
				t.Errorf("%q: %+v", s, r)
			}
			if again, err := parseAddress(r.Host.String(), listen); err != nil || again != r.Host {
				t.Errorf("%q: %v reads back as %v, %v", s, r.Host, again, err)
			}
		}
	})
}

var connectLine = regexp.MustCompile(`(?i)^[ \t\r\v\f]*CONNECT[ \t\r\v\f]+([0-9]+)[ \t\r\v\f]*\n$`)

// FuzzConnect holds a client that sends data, cut in two, against a regular
// expression, and checks that what is behind the line stays for the guest.
func FuzzConnect(f *testing.F) {
	for _, s := range []string{"CONNECT 7000\nrest", "connect 1\r\n", "CONNECT 4294967295\n", "GET / HTTP/1.1\r\n", "CONNECT 00000000000000000000022\n", "CONNECT \n1\n"} {
		f.Add([]byte(s), byte(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut byte) {
		data = data[:min(len(data), 1000)]
		r := newRig(t, nil)
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		at := min(int(cut), len(data))
		r.write(fd, string(data[:at]))
		r.turn()
		unix.Sendto(fd, data[at:], unix.MSG_NOSIGNAL, nil) // it may be closed by now
		r.turn()
		line := data[:min(len(data), maxLine)]
		end := strings.IndexByte(string(line), '\n')
		switch {
		case end < 0 && len(data) < maxLine:
			r.want(fd, "", false) // waits for more
		case end < 0:
			r.asked(0)
			_, eof := r.read(fd)
			if !eof {
				t.Errorf("%q: not closed", data)
			}
		default:
			m := connectLine.FindSubmatch(line[:end+1])
			port := uint64(unix.VMADDR_PORT_ANY)
			if m != nil {
				port, _ = strconv.ParseUint(string(m[1]), 10, 64)
			}
			if m == nil || port >= unix.VMADDR_PORT_ANY {
				r.asked(0)
				return
			}
			a := r.asked(1)
			if uint64(a.port) != port {
				t.Errorf("%q: port %d", data, a.port)
			}
			server := r.accept(a)
			if got, _ := r.read(server); got != string(data[end+1:]) {
				t.Errorf("%q: the guest gets %q", data, got)
			}
		}
	})
}
