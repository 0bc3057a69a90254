package dns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

func TestParseResolvConf(t *testing.T) {
	tests := []struct {
		name, text string
		servers    string
		domains    string
	}{
		{"empty", "", "[]", "[]"},
		{"plain", "nameserver 192.0.2.1\nnameserver 2001:db8::1\nsearch a.example b.example\n", "[192.0.2.1:53 [2001:db8::1]:53]", "[a.example b.example]"},
		{"no newline at the end", "nameserver 192.0.2.1", "[192.0.2.1:53]", "[]"},
		{"CRLF", "nameserver 192.0.2.1\r\nsearch a.example\r\n", "[192.0.2.1:53]", "[a.example]"},
		{"tabs and comments", "# c\n;c\n\tnameserver\t192.0.2.1 # home\noptions ndots:2 edns0\n", "[192.0.2.1:53]", "[]"},
		{"zone", "nameserver fe80::1%eth0", "[[fe80::1%eth0]:53]", "[]"},
		{"mapped", "nameserver ::ffff:192.0.2.1", "[192.0.2.1:53]", "[]"},
		{"garbage", "nameserver\nnameserver x\nnameserver 1.2.3\n\x00\xff nameserver 1.2.3.4\n", "[]", "[]"},
		{"last of domain and search", "search a b\ndomain c.example\n", "[]", "[c.example]"},
		{"last search", "domain c.example\nsearch a. b\n", "[]", "[a b]"},
		{"dot", "search .", "[]", "[]"},
		{"bad names", "search a..b " + strings.Repeat("x", 64) + " ok", "[]", "[ok]"},
		{"many", strings.Repeat("nameserver 192.0.2.1\n", 20), "[" + strings.TrimSpace(strings.Repeat("192.0.2.1:53 ", 8)) + "]", "[]"},
		{"indented keyword of another", "nameservers 192.0.2.1\nxsearch a", "[]", "[]"},
	}
	for _, tt := range tests {
		c := ParseResolvConf([]byte(tt.text))
		if s, d := fmt.Sprint(c.Upstreams()), fmt.Sprint(c.Search()); s != tt.servers || d != tt.domains {
			t.Errorf("%s: %s %s, want %s %s", tt.name, s, d, tt.servers, tt.domains)
		}
	}
}

// miekg/dns reads the same servers from an ordinary file.
func TestParseResolvConfAgrees(t *testing.T) {
	text := "# made by something\ndomain corp.example\nsearch a.example b.example\nnameserver 192.0.2.1\nnameserver 2001:db8::1\noptions timeout:1\n"
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := mdns.ClientConfigFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := ParseResolvConf([]byte(text))
	var servers []string
	for _, s := range got.Servers {
		servers = append(servers, s.Addr().String())
	}
	if fmt.Sprint(servers) != fmt.Sprint(want.Servers) || fmt.Sprint(got.Domains) != fmt.Sprint(want.Search) {
		t.Errorf("%v %v, want %v %v", servers, got.Domains, want.Servers, want.Search)
	}
}

func TestAppendName(t *testing.T) {
	for _, s := range []string{"example.com", "a.b.c.d.", strings.Repeat("x", 63) + ".y", strings.Repeat("a.", 126) + "b", "_x._y.z"} {
		want := make([]byte, 300)
		n, err := mdns.PackDomainName(mdns.Fqdn(s), want, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := AppendName([]byte("head"), s)
		if !ok || string(got) != "head"+string(want[:n]) {
			t.Errorf("%q: % x, want % x", s, got, want[:n])
		}
	}
	for _, s := range []string{"", ".", "..", ".a", "a..b", strings.Repeat("x", 64), strings.Repeat("a.", 127) + "b", strings.Repeat("x", 300)} {
		if got, ok := AppendName([]byte("head"), s); ok || string(got) != "head" {
			t.Errorf("%q: accepted as % x", s, got)
		}
	}
}

func FuzzResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 192.0.2.1\nsearch a.example\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := ParseResolvConf(text)
		if len(c.Servers) > maxUpstreams || len(c.Domains) > maxDomains {
			t.Errorf("%d servers, %d domains", len(c.Servers), len(c.Domains))
		}
		for _, s := range c.Servers {
			if !s.IsValid() {
				t.Errorf("%v", s)
			}
		}
		for _, d := range c.Domains {
			if _, ok := AppendName(nil, d); !ok {
				t.Errorf("%q", d)
			}
		}
	})
}
