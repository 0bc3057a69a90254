package proto

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"all", `{"link":"eth0","addresses":["10.0.2.15/24","fd67::15/64"],"routes":[{"to":"0.0.0.0/0","via":"10.0.2.2"},{"to":"::/0","via":"fe80::2"},{"to":"10.1.0.0/16"}],
			"mtu":1500,"hostname":"vm-1.example","dns":["10.0.2.3","fe80::1%eth0"],"search":["corp.example","_x.example."],"queues":4,"offloads":{"tso":true,"rx-gro-hw":false},"vsock_buffer":4194304}`, ""},
		{"nothing", `{}`, ""},
		{"MAC as link", `{"link":"52:54:00:12:34:56"}`, ""},
		{"path as link", `{"link":"../x"}`, "link"},
		{"dots as link", `{"link":".."}`, "link"},
		{"no prefix length", `{"addresses":["10.0.2.15"]}`, "10.0.2.15"},
		{"loopback", `{"addresses":["127.0.0.1/8"]}`, "guest can have"},
		{"multicast", `{"addresses":["ff02::1/64"]}`, "guest can have"},
		{"unspecified", `{"addresses":["0.0.0.0/0"]}`, "guest can have"},
		{"mapped", `{"addresses":["::ffff:10.0.0.1/120"]}`, "guest can have"},
		{"twice", `{"addresses":["10.0.2.15/24","10.0.2.15/8"]}`, "twice"},
		{"17 addresses", `{"addresses":[` + strings.Repeat(`"10.0.2.15/24",`, 16) + `"10.0.2.15/24"]}`, "too many"},
		{"other family", `{"routes":[{"to":"::/0","via":"10.0.2.2"}]}`, "cannot be reached"},
		{"bits beyond", `{"routes":[{"to":"10.0.2.15/24"}]}`, "write 10.0.2.0/24"},
		{"to nowhere", `{"routes":[{"via":"10.0.2.2"}]}`, "needs the prefix"},
		{"two defaults", `{"routes":[{"to":"0.0.0.0/0","via":"10.0.2.2"},{"to":"0.0.0.0/0","via":"10.0.2.3"}]}`, "two to"},
		{"small mtu", `{"mtu":67}`, "68 to 65535"},
		{"small mtu for IPv6", `{"mtu":1279,"addresses":["fd67::15/64"]}`, "1280 to 65535"},
		{"large mtu", `{"mtu":65536}`, "mtu"},
		{"hostname of two lines", `{"hostname":"a\nb"}`, "hostname"},
		{"hostname that is an option", `{"hostname":"-h"}`, "hostname"},
		{"long hostname", `{"hostname":"` + strings.Repeat("a.", 32) + `a"}`, "hostname"},
		{"search that adds a line", `{"search":["x\nnameserver 6.6.6.6"]}`, "search"},
		{"search that is an option", `{"search":["--help"]}`, "search"},
		{"resolver with a line in its zone", `{"dns":["fe80::1%a\nb"]}`, "dns"},
		{"no resolver", `{"dns":[""]}`, "dns"},
		{"queues", `{"queues":257}`, "queues"},
		{"offload", `{"offloads":{"a b":true}}`, "offloads"},
		{"buffer", `{"vsock_buffer":100}`, "vsock_buffer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Request([]byte(c.in), &Network{})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Devices differ in what they answer to CONNECT, and a guest without an agent
// answers nothing.
func TestDial(t *testing.T) {
	pong := good(0x81, 0, `{"version":"x"}`)
	for _, c := range []struct{ name, answer, want string }{
		{"line", "OK 1073741824\n" + pong, ""},
		{"short line", "OK 1\n" + pong, ""},
		{"no line", pong, ""},
		{"nobody there", "", ErrNoAgent.Error()},
		{"endless line", "OK " + strings.Repeat("1", 64), "does not end"},
		{"something else", "ONE\n" + pong, "not OK"},
		{"another protocol", "SSH-2.0-x\r\n", ErrFrame.Error()},
		{"line and end", "OK 1\n", "EOF"},
		{"another kind", "OK 1\n" + good(0x82, 0, "{}"), "kind 0x82"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			asked := make(chan string, 1)
			go func() {
				s, err := l.Accept()
				if err != nil {
					return
				}
				b := make([]byte, 100)
				n, _ := s.Read(b)
				asked <- string(b[:n])
				_, _ = s.Write([]byte(c.answer))
				s.Close()
			}()
			conn, err := Dial(path, Port, 5*time.Second)
			if err == nil {
				conn.Close()
			}
			if want := "CONNECT 1023\n" + good(1, 0, "{}"); <-asked != want {
				t.Errorf("the request is not %q", want)
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
