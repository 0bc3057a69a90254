package platform

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func udpSocket(t *testing.T, reuse bool) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if reuse {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

var loopback = [4]byte{127, 0, 0, 1}

func port(t *testing.T, fd int) int {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return sa.(*unix.SockaddrInet4).Port
}

// A datagram that fits a connected socket goes to it and not to the unconnected one on the same port: translate/udp relies on it for flows that share a
// port with a forward.
func TestUDPConnectedSocketWins(t *testing.T) {
	listener, flow := udpSocket(t, true), udpSocket(t, true)
	if err := unix.Bind(listener, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	at := &unix.SockaddrInet4{Addr: loopback, Port: port(t, listener)}
	peer := udpSocket(t, false)
	if err := unix.Bind(peer, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(flow, at); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(flow, &unix.SockaddrInet4{Addr: loopback, Port: port(t, peer)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(peer, []byte("x"), 0, at); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	waitReadable(t, flow)
	if n, _, err := unix.Recvfrom(flow, b, 0); n != 1 {
		t.Errorf("the connected socket got %d, %v", n, err)
	}
	if n, _, err := unix.Recvfrom(listener, b, 0); err != unix.EAGAIN {
		t.Errorf("the unconnected socket got %d, %v", n, err)
	}
}

// A refusal reaches a connected socket's error queue with the offender's address when IP_RECVERR is on: so does every ICMP error that translate/udp passes on.
func TestUDPErrorQueue(t *testing.T) {
	fd := udpSocket(t, false)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	closed := udpSocket(t, false)
	if err := unix.Bind(closed, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Addr: loopback, Port: port(t, closed)}
	unix.Close(closed)
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte("anyone?")); err != nil {
		t.Fatal(err)
	}
	p := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(p, 2000); n != 1 || p[0].Revents&unix.POLLERR == 0 {
		t.Fatalf("poll: %d, %v, events %#x, want POLLERR", n, err, p[0].Revents)
	}
	b, oob := make([]byte, 100), make([]byte, 200)
	n, oobn, _, _, err := unix.Recvmsg(fd, b, oob, unix.MSG_ERRQUEUE)
	if err != nil || string(b[:n]) != "anyone?" {
		t.Fatalf("the error comes with %q of our datagram, %v", b[:max(n, 0)], err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) == 0 {
		t.Fatalf("no control message: %v", err)
	}
	// struct sock_extended_err: u32 errno, u8 origin, type, code.
	d := msgs[len(msgs)-1].Data
	if len(d) < 16 || unix.Errno(binary.NativeEndian.Uint32(d)) != unix.ECONNREFUSED || d[4] != 2 || d[5] != 3 || d[6] != 3 {
		t.Errorf("extended error % x, want ECONNREFUSED from ICMP 3/3", d)
	}
}

// UDP_SEGMENT cuts one write into datagrams and UDP_GRO joins what arrives, telling the size: one system call for many datagrams either way.
func TestUDPSegmentation(t *testing.T) {
	in, out := udpSocket(t, false), udpSocket(t, false)
	if err := unix.Bind(in, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(in, unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
		t.Skipf("UDP_GRO: %v", err)
	}
	if err := unix.SetsockoptInt(out, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000); err != nil {
		t.Skipf("UDP_SEGMENT: %v", err)
	}
	sent := bytes.Repeat([]byte("0123456789"), 350) // 3,500: three whole and one short
	if err := unix.Sendto(out, sent, 0, &unix.SockaddrInet4{Addr: loopback, Port: port(t, in)}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for len(got) < len(sent) {
		waitReadable(t, in)
		b, oob := make([]byte, 65536), make([]byte, 64)
		n, oobn, _, _, err := unix.Recvmsg(in, b, oob, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n > 1000 {
			msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil || len(msgs) != 1 || msgs[0].Header.Type != unix.UDP_GRO || binary.NativeEndian.Uint16(msgs[0].Data) != 1000 {
				t.Fatalf("%d bytes joined without their size: %v %v", n, msgs, err)
			}
		}
		got = append(got, b[:n]...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("the bytes differ")
	}
}

// Ping sockets answer only to their own identifier, and their numbers are the port: translate/icmp. Skipped where the host forbids them.
func TestPingSocket(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		t.Skipf("no ping sockets here: %v (net.ipv4.ping_group_range)", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Addr: loopback}
	echo := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 7, 'h', 'i'} // the kernel fills checksum and identifier
	if err := unix.Sendto(fd, echo, 0, to); err != nil {
		t.Fatal(err)
	}
	waitReadable(t, fd)
	b := make([]byte, 100)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil || n != len(echo) || b[0] != 0 || !bytes.Equal(b[6:n], echo[6:]) {
		t.Fatalf("% x, %v", b[:max(n, 0)], err)
	}
	if id := int(binary.BigEndian.Uint16(b[4:])); id != port(t, fd) {
		t.Errorf("identifier %d, the socket's port is %d", id, port(t, fd))
	}
}

// A zero-length datagram is a datagram.
func TestUDPZeroLength(t *testing.T) {
	l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out := udpSocket(t, false)
	sa := &unix.SockaddrInet4{Addr: loopback, Port: l.LocalAddr().(*net.UDPAddr).Port}
	if err := unix.Sendto(out, nil, 0, sa); err != nil {
		t.Fatal(err)
	}
	_ = l.SetReadDeadline(time.Now().Add(2 * time.Second))
	if n, _, err := l.ReadFromUDP(make([]byte, 10)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
