package platform

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const soPeekOff = 42 // SO_PEEK_OFF, asm-generic/socket.h

// tcpPair is a connected pair over loopback: a raw descriptor and its peer.
func tcpPair(t *testing.T, network string) (fd int, peer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen(network, map[string]string{"tcp4": freshLoopback() + ":0", "tcp6": "[::1]:0"}[network])
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() { c, _ := l.Accept(); accepted <- c }()
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File() // a duplicate: it lives on its own
	c.Close()
	if err != nil {
		t.Fatal(err)
	}
	p := <-accepted
	if p == nil {
		t.Fatal("not accepted")
	}
	t.Cleanup(func() { f.Close(); p.Close() })
	return int(f.Fd()), p.(*net.TCPConn)
}

// translate/tcp keeps what the guest has not acknowledged in the kernel: it peeks with an offset that moves on by what was peeked, moves it back to send
// again, and takes acknowledged bytes out with MSG_TRUNC, after which the offset counts from the new head.
func TestTCPPeekOffset(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			fd, peer := tcpPair(t, network)
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPeekOff, 0); err != nil {
				t.Skipf("SO_PEEK_OFF: %v (TCP has it from Linux 6.9)", err)
			}
			data := []byte("0123456789abcdefghij")
			if _, err := peer.Write(data); err != nil {
				t.Fatal(err)
			}
			waitReadable(t, fd)
			b := make([]byte, 8)
			peek := func(want string) {
				t.Helper()
				n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
				if err != nil || string(b[:max(n, 0)]) != want {
					t.Fatalf("peeked %q, %v, want %q", b[:max(n, 0)], err, want)
				}
			}
			peek("01234567")
			peek("89abcdef")
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPeekOff, 4); err != nil { // send again from 4
				t.Fatal(err)
			}
			peek("456789ab")
			// Taking 6 bytes out moves the offset back by 6: it stood at 12, now at 6, which is the same byte.
			n, _, err := unix.Recvfrom(fd, make([]byte, 6), unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if err != nil || n != 6 {
				t.Fatalf("MSG_TRUNC took %d, %v", n, err)
			}
			peek("cdefghij")
			if _, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT); err != unix.EAGAIN {
				t.Fatalf("peeking at the end: %v, want EAGAIN", err)
			}
		})
	}
}

// MSG_TRUNC discards without a buffer for the bytes: the iovec's length counts, its memory is not written.
func TestTCPTruncDiscards(t *testing.T) {
	fd, peer := tcpPair(t, "tcp4")
	if _, err := peer.Write(bytes.Repeat([]byte{1}, 1000)); err != nil {
		t.Fatal(err)
	}
	waitReadable(t, fd)
	b := make([]byte, 600)
	if n, _, err := unix.Recvfrom(fd, b, unix.MSG_TRUNC|unix.MSG_DONTWAIT); err != nil || n != 600 || b[0] != 0 {
		t.Fatalf("%d, %v, first byte %d (want untouched 0)", n, err, b[0])
	}
	if n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT); err != nil || n != 400 || b[0] != 1 {
		t.Fatalf("then %d, %v", n, err)
	}
}

// Data that was peeked does not make an edge-triggered descriptor report again; new data does, and so does the end of the stream behind peeked data.
func TestTCPEdgeAfterPeek(t *testing.T) {
	fd, peer := tcpPair(t, "tcp4")
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: 1}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		t.Fatal(err)
	}
	wait := func(limit time.Duration) uint32 {
		var evs [1]unix.EpollEvent
		for end := time.Now().Add(limit); ; {
			n, err := unix.EpollWait(ep, evs[:], int(time.Until(end).Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			if n == 1 {
				return evs[0].Events
			}
			return 0
		}
	}
	b := make([]byte, 100)
	for i := range 2 {
		if _, err := peer.Write([]byte("data")); err != nil {
			t.Fatal(err)
		}
		if wait(2*time.Second)&unix.EPOLLIN == 0 {
			t.Fatalf("write %d: no event", i)
		}
		if _, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT); err != nil {
			t.Fatal(err)
		}
		if got := wait(30 * time.Millisecond); got != 0 {
			t.Fatalf("peeked data reports again: %#x", got)
		}
	}
	_ = peer.CloseWrite()
	if wait(2*time.Second)&unix.EPOLLRDHUP == 0 {
		t.Fatal("no event for the end of the stream behind peeked data")
	}
}

// A writer that fills the socket makes the send buffer grow; one that always stays within the free space does not (design.md, rules of translation).
func TestTCPSendBufferGrows(t *testing.T) {
	fd, peer := tcpPair(t, "tcp4")
	before, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 256<<10)
		for {
			if _, err := peer.Read(b); err != nil {
				return
			}
		}
	}()
	_ = unix.SetNonblock(fd, true)
	chunk := make([]byte, 256<<10)
	short := 0
	for sent, end := 0, time.Now().Add(5*time.Second); sent < 200<<20 && time.Now().Before(end); {
		n, err := unix.Write(fd, chunk)
		if n < len(chunk) {
			short++
			time.Sleep(200 * time.Microsecond)
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		sent += max(n, 0)
	}
	after, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	if short == 0 || after <= before {
		t.Errorf("SO_SNDBUF %d -> %d after %d short writes", before, after, short)
	}
}

// freshLoopback is an address of 127/8 of which the kernel most likely has no metrics: what it remembers of 127.0.0.1 from other connections (reordering above all)
// may make a new one's send buffer as large as it can get.
func freshLoopback() string {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16) | 1, byte(n >> 8), byte(n)&0x7e | 1}).String()
}

func waitReadable(t *testing.T, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 2000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Fatalf("not readable: %v", err)
		}
		return
	}
}
