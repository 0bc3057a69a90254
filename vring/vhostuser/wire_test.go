package vhostuser_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/guestmem"
)

// TestFrontendWire compares what the frontend writes with the layouts of the
// specification, written out by hand for a little-endian machine.
func TestFrontendWire(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("big-endian machine")
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrontendFD(p[0])
	defer f.Close()
	defer unix.Close(p[1])
	r := guestmem.Region{GPA: 0x1_0000_0000, UVA: 0x7f00_0000_0000, Size: 0x20_0000, MmapOffset: 0xc4f000, FD: p[1]}
	const region = "0000000001000000 0000200000000000 0000000000 7f0000 00f0c40000000000"
	for _, c := range []struct {
		name string
		send func() error
		want string
		fds  int
	}{
		{"SET_FEATURES", func() error { return f.SetFeatures(0x140000001) }, "02000000 01000000 08000000 0100004001000000", 0},
		{"SET_OWNER", func() error { return f.SetOwner() }, "03000000 01000000 00000000", 0},
		{"SET_MEM_TABLE", func() error { return f.SetMemTable([]guestmem.Region{r, r}) },
			"05000000 01000000 48000000 02000000 00000000" + region + region, 2},
		{"SET_VRING_NUM", func() error { return f.SetVringNum(3, 1024) }, "08000000 01000000 08000000 03000000 00040000", 0},
		{"SET_VRING_ADDR", func() error {
			return f.SetVringAddr(VringAddr{Index: 1, Flags: 1, Desc: 0x11, Used: 0x22, Avail: 0x33, Log: 0x44})
		}, "09000000 01000000 28000000 01000000 01000000 1100000000000000 2200000000000000 3300000000000000 4400000000000000", 0},
		{"SET_VRING_BASE", func() error { return f.SetVringBase(1, 0xfffe) }, "0a000000 01000000 08000000 01000000 feff0000", 0},
		{"SET_VRING_KICK", func() error { return f.SetVringKick(2, p[1]) }, "0c000000 01000000 08000000 0200000000000000", 1},
		{"SET_VRING_CALL none", func() error { return f.SetVringCall(2, -1) }, "0d000000 01000000 08000000 0201000000000000", 0},
		{"SET_VRING_ENABLE", func() error { return f.SetVringEnable(1, true) }, "12000000 01000000 08000000 01000000 01000000", 0},
		{"SEND_RARP", func() error { return f.SendRARP([6]byte{1, 2, 3, 4, 5, 6}) }, "13000000 01000000 08000000 0102030405060000", 0},
		{"NET_SET_MTU", func() error { return f.NetSetMTU(9000) }, "14000000 01000000 08000000 2823000000000000", 0},
		{"SET_CONFIG", func() error { return f.SetConfig(6, 1, []byte{0xaa, 0xbb}) },
			"19000000 01000000 0e000000 06000000 02000000 01000000 aabb", 0},
		{"ADD_MEM_REG", func() error { return f.AddMemReg(r) }, "25000000 01000000 28000000 0000000000000000" + region, 1},
		{"REM_MEM_REG", func() error { return f.RemMemReg(r) }, "26000000 01000000 28000000 0000000000000000" + region, 0},
		{"SET_STATUS", func() error { return f.SetStatus(0x0f) }, "27000000 01000000 08000000 0f00000000000000", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.send(); err != nil {
				t.Fatal(err)
			}
			buf, oob := make([]byte, 512), make([]byte, 128)
			n, on, _, _, err := unix.Recvmsg(p[1], buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := hex.EncodeToString(buf[:n]), strings.ReplaceAll(c.want, " ", ""); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			fds := 0
			if on > 0 {
				m, _ := unix.ParseSocketControlMessage(oob[:on])
				got, _ := unix.ParseUnixRights(&m[0])
				fds = len(got)
				for _, fd := range got {
					unix.Close(fd)
				}
			}
			if fds != c.fds {
				t.Errorf("%d descriptors, want %d", fds, c.fds)
			}
		})
	}
}

// TestServerWire does the same with the server's replies.
func TestServerWire(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("big-endian machine")
	}
	b := newBench(t)
	b.dev.FeatureBits, b.dev.ProtocolBits, b.dev.NumPairs = FVersion1|NetFCsum, 0, 3
	f := b.dial()
	for _, c := range []struct{ name, send, want string }{
		{"GET_FEATURES", "01000000 01000000 00000000", "01000000 05000000 08000000 0100004401000000"},
		{"GET_PROTOCOL_FEATURES", "0f000000 01000000 00000000", "0f000000 05000000 08000000 2aa0210000000000"},
		{"SET_PROTOCOL_FEATURES, acknowledged as negotiated by itself", "10000000 09000000 08000000 08a0210000000000",
			"10000000 05000000 08000000 0000000000000000"},
		{"SET_OWNER", "03000000 09000000 00000000", "03000000 05000000 08000000 0000000000000000"},
		{"refused", "02000000 09000000 08000000 0200000000000000", "02000000 05000000 08000000 0100000000000000"},
		{"unknown", "16000000 09000000 00000000", "16000000 05000000 08000000 0100000000000000"},
		{"GET_QUEUE_NUM", "11000000 01000000 00000000", "11000000 05000000 08000000 0300000000000000"},
		{"GET_QUEUE_NUM, asked for an acknowledgement too", "11000000 09000000 00000000", "11000000 05000000 08000000 0300000000000000"},
		{"SET_VRING_BASE", "0a000000 09000000 08000000 01000000 efbe0000", "0a000000 05000000 08000000 0000000000000000"},
		{"GET_VRING_BASE", "0b000000 01000000 08000000 01000000 00000000", "0b000000 05000000 08000000 01000000 efbe0000"},
		{"GET_MAX_MEM_SLOTS", "24000000 01000000 00000000", "24000000 05000000 08000000 fd01000000000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := hex.DecodeString(strings.ReplaceAll(c.send, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			f.Raw(p)
			b.turn()
			buf := make([]byte, 512)
			n, err := unix.Read(f.FD(), buf)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := hex.EncodeToString(buf[:n]), strings.ReplaceAll(c.want, " ", ""); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

// The frontend's waits end.
func TestFrontendTimeout(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrontendFD(p[0])
	defer f.Close()
	f.SetTimeout(20 * time.Millisecond)
	if _, err := f.GetFeatures(); err != ErrTimeout {
		t.Errorf("silent backend: %v", err)
	}
	unix.Close(p[1])
	if _, err := f.GetFeatures(); err != ErrClosed {
		t.Errorf("closed backend: %v", err)
	}
}
