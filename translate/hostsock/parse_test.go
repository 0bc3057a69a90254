package hostsock

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func newZones() *zones {
	return &zones{index: func(name string) uint32 {
		if name == "eth0" {
			return 7
		}
		return 0
	}}
}

// Layouts from ip(7), ipv6(7) and struct sockaddr_in(6).
func TestSockaddr(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		v6         bool
		want       []byte
		back       string
	}{
		{"IPv4", "192.0.2.1:513", false, []byte{2, 0, 2, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}, "192.0.2.1:513"},
		{"v4-mapped on IPv4", "[::ffff:192.0.2.1]:513", false, []byte{2, 0, 2, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}, "192.0.2.1:513"},
		{"IPv6", "[2001:db8::1]:80", true, append([]byte{10, 0, 0, 80, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8}, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}...), "[2001:db8::1]:80"},
		{"IPv4 on IPv6", "192.0.2.1:80", true, append([]byte{10, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, []byte{192, 0, 2, 1, 0, 0, 0, 0}...), "192.0.2.1:80"},
		{"zone number", "[fe80::1%3]:80", true, append([]byte{10, 0, 0, 80, 0, 0, 0, 0, 0xfe, 0x80}, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0}...), "[fe80::1%3]:80"},
		{"zone name", "[fe80::1%eth0]:80", true, append([]byte{10, 0, 0, 80, 0, 0, 0, 0, 0xfe, 0x80}, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0}...), "[fe80::1%7]:80"},
	} {
		z := newZones()
		s := sockaddr(bytes.Repeat([]byte{0xee}, len(sockaddr{})))
		n := s.put(netip.MustParseAddrPort(c.addr), c.v6, z)
		want := c.want
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			t.Skip("rows are little-endian")
		}
		if !bytes.Equal(s[:n], want) {
			t.Errorf("%s: %x, want %x", c.name, s[:n], want)
		}
		if got := s.get(n, z).String(); got != c.back {
			t.Errorf("%s: read back as %s, want %s", c.name, got, c.back)
		}
	}
	s := sockaddr{}
	for _, n := range []uint32{0, 2, 15, 16, 28, 200} {
		if got := s.get(n, newZones()); got.IsValid() {
			t.Errorf("length %d: %v", n, got)
		}
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	if got := s.get(16, newZones()); got.IsValid() {
		t.Errorf("short IPv6: %v", got)
	}
}

func TestZonesAreBounded(t *testing.T) {
	z := newZones()
	for id := range uint32(1000) {
		if z.name(id) != netip.MustParseAddr("fe80::1").WithZone(z.name(id)).Zone() {
			t.Fatal()
		}
	}
	if len(z.known) > maxZones {
		t.Errorf("%d zones kept", len(z.known))
	}
	if n := testing.AllocsPerRun(10, func() { z.name(3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// extendedErr is struct sock_extended_err as linux/errqueue.h has it.
func extendedErr(errno syscall.Errno, origin, typ, code byte, info uint32, offender string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(errno))
	b = append(b, origin, typ, code, 0)
	b = binary.NativeEndian.AppendUint32(b, info)
	b = binary.NativeEndian.AppendUint32(b, 0)
	if offender != "" {
		var s sockaddr
		a := netip.MustParseAddrPort(offender + ":0")
		n := s.put(a, a.Addr().Is6(), newZones())
		b = append(b, s[:n]...)
	}
	return b
}

func TestExtendedErr(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want SockErr
	}{
		{"fragmentation needed", extendedErr(syscall.EMSGSIZE, 2, 3, 4, 1400, "203.0.113.1"),
			SockErr{Errno: syscall.EMSGSIZE, Type: 3, Code: 4, MTU: 1400, Offender: netip.MustParseAddr("203.0.113.1")}},
		{"time exceeded", extendedErr(syscall.EHOSTUNREACH, 2, 11, 0, 0, "203.0.113.1"),
			SockErr{Errno: syscall.EHOSTUNREACH, Type: 11, Offender: netip.MustParseAddr("203.0.113.1")}},
		{"packet too big", extendedErr(syscall.EMSGSIZE, 3, 2, 0, 1280, "[2001:db8::1]"),
			SockErr{Errno: syscall.EMSGSIZE, V6: true, Type: 2, MTU: 1280, Offender: netip.MustParseAddr("2001:db8::1")}},
		{"local", extendedErr(syscall.EMSGSIZE, 1, 0, 0, 1500, ""),
			SockErr{Errno: syscall.EMSGSIZE, Local: true, MTU: 1500}},
		{"info without meaning", extendedErr(syscall.ECONNREFUSED, 2, 3, 3, 77, ""),
			SockErr{Errno: syscall.ECONNREFUSED, Type: 3, Code: 3}},
		{"short", make([]byte, 15), SockErr{}},
		{"offender cut off", extendedErr(syscall.ECONNREFUSED, 3, 1, 4, 0, "[2001:db8::1]")[:40],
			SockErr{Errno: syscall.ECONNREFUSED, V6: true, Type: 1, Code: 4}},
	} {
		var got SockErr
		got.extended(c.b, newZones())
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestControlRoundTrip(t *testing.T) {
	var h unix.Msghdr
	var buf [ctlSpace]byte
	z := newZones()
	c := control{&h, &buf}
	c.pktinfo(true, netip.MustParseAddr("fe80::9%4"), z)
	c.int32(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 61)
	c.int32(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 0xb8)
	c.int16(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1400)
	// CMSG_SPACE of 20, 4, 4 and 2 bytes.
	if want := unix.CmsgSpace(20) + 2*unix.CmsgSpace(4) + unix.CmsgSpace(2); int(h.Controllen) != want {
		t.Errorf("length %d, want %d", h.Controllen, want)
	}
	// x/sys reads it alike.
	msgs, err := unix.ParseSocketControlMessage(buf[:h.Controllen])
	if err != nil || len(msgs) != 4 || msgs[3].Header.Type != unix.UDP_SEGMENT || binary.NativeEndian.Uint16(msgs[3].Data) != 1400 {
		t.Errorf("%v %v", msgs, err)
	}
	var m Message
	for cs := (cmsgs{buf[:h.Controllen]}); cs.next(); {
		level, typ, data := cs.head()
		m.control(level, typ, data, z)
	}
	if m.Local.Addr() != netip.MustParseAddr("fe80::9%4") || m.TTL != 61 || m.TOS != 0xb8 {
		t.Errorf("%+v", m)
	}
}

// Control messages come from the kernel; a walk over anything else must still
// end, and stay inside.
func FuzzControl(f *testing.F) {
	b := binary.NativeEndian.AppendUint64(nil, 20)
	b = binary.NativeEndian.AppendUint32(b, unix.SOL_IP)
	b = binary.NativeEndian.AppendUint32(b, unix.IP_TTL)
	f.Add(append(b, 64, 0, 0, 0, 0, 0, 0, 0))
	f.Add(binary.NativeEndian.AppendUint64(nil, 16))
	f.Add(binary.NativeEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		z := newZones()
		steps := 0
		for c := (cmsgs{b}); c.next(); steps++ {
			level, typ, data := c.head()
			var m Message
			m.control(level, typ, data, z)
			var s SockErr
			s.extended(data, z)
		}
		if steps > len(b)/cmsgLen {
			t.Fatal("more messages than fit")
		}
	})
}

func TestCutter(t *testing.T) {
	text := []byte("abcdefghij")
	bufs := [][]byte{text[:1], {}, text[1:6], {}, text[6:], {}}
	for size := 1; size <= 11; size++ {
		c := cutter{bufs: bufs}
		var got []byte
		for pieces := 0; !c.empty(); pieces++ {
			iov := make([]unix.Iovec, 10)
			n := c.next(iov, size)
			sum := 0
			for _, v := range iov[:n] {
				sum += int(v.Len)
			}
			if sum != min(size, len(text)-pieces*size) {
				t.Errorf("size %d, piece %d: %d bytes", size, pieces, sum)
			}
			got = append(got, text[pieces*size:pieces*size+sum]...)
		}
		if string(got) != string(text) {
			t.Errorf("size %d: %s", size, got)
		}
	}
	c := cutter{bufs: bufs}
	if c.next(make([]unix.Iovec, 1), 10) != 0 {
		t.Error("a piece that does not fit was cut")
	}
}
