package xdp

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestLead runs the program in the kernel over single frames.
func TestLead(t *testing.T) {
	const pass, redirect = 2, 4 // linux/bpf.h, enum xdp_action
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to load programs")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	openable(t, err)
	defer unix.Close(fd)
	if err := m.Put(uint32(0), uint32(fd)); err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: lead(9000, m.FD())})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	four, six := flow("10.0.0.1:5", "10.0.0.2:9000"), flow("[fd00::1]:5", "[fd00::2]:9000")
	for _, tc := range []struct {
		name  string
		f     Flow
		spoil func(b []byte) []byte
		want  uint32
	}{
		{"IPv4", four, nil, redirect},
		{"IPv6", six, nil, redirect},
		{"another port", flow("10.0.0.1:9000", "10.0.0.2:9001"), nil, pass},
		{"another port, IPv6", flow("[fd00::1]:9000", "[fd00::2]:9001"), nil, pass},
		{"TCP", four, func(b []byte) []byte { b[23] = 6; return b }, pass},
		{"TCP, IPv6", six, func(b []byte) []byte { b[20] = 6; return b }, pass},
		{"options", four, func(b []byte) []byte { b[14] = 0x46; return b }, pass},
		{"first fragment", four, func(b []byte) []byte { b[20] |= 0x20; return b }, pass},
		{"last fragment", four, func(b []byte) []byte { b[21] = 1; return b }, pass},
		{"do not fragment", four, func(b []byte) []byte { b[20] = 0x40; return b }, redirect},
		{"ARP", four, func(b []byte) []byte { b[12], b[13] = 8, 6; return b }, pass},
		{"too short", four, func(b []byte) []byte { return b[:41] }, pass},
		{"too short, IPv6", six, func(b []byte) []byte { return b[:61] }, pass},
	} {
		tm, err := newTemplate(&tc.f, 32)
		if err != nil {
			t.Fatal(err)
		}
		b := append([]byte(nil), tm.frame...)
		if tc.spoil != nil {
			b = tc.spoil(b)
		}
		got, _, err := p.Test(b)
		if err != nil {
			t.Fatal(err)
		}
		if got != tc.want {
			t.Errorf("%s: verdict %d, want %d", tc.name, got, tc.want)
		}
	}
}
