package worker

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
)

func TestProcAddr(t *testing.T) {
	// As proc_pid_net(5) has them on a little-endian machine.
	for s, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000:0016":                         "0.0.0.0:22",
		"00000000000000000000000001000000:0035": "[::1]:53",
		"B80D0120000000000000000001000000:01BB": "[2001:db8::1]:443",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
	} {
		if got, ok := procAddr(s); !ok || got != netip.MustParseAddrPort(want) {
			t.Errorf("%s: %v, want %s", s, got, want)
		}
	}
	for _, s := range []string{"", "0100007F", "0100007F:", "01:50", "xx00007F:0050", "0100007F:10000"} {
		if got, ok := procAddr(s); ok {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestListening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String()) // has the client's port, and does not listen
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	at := func(a net.Addr, udp bool) bound {
		p := netip.MustParseAddrPort(a.String())
		return bound{udp, p.Addr(), p.Port()}
	}
	got := listening("/proc/self", 1, 0)
	for _, want := range []bound{at(l.Addr(), false), at(u.LocalAddr(), true)} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is not in %v", want, got)
		}
	}
	if slices.Contains(got, at(c.LocalAddr(), false)) {
		t.Error("a client's port listens")
	}
	port := at(u.LocalAddr(), true).port
	if slices.Contains(listening("/proc/self", port, port), at(u.LocalAddr(), true)) {
		t.Error("a port of the kernel's choice is a service")
	}
	if got := listening(filepath.Join(t.TempDir(), "none"), 1, 0); got != nil {
		t.Errorf("nobody's namespace: %v", got)
	}
}
