package vsockbridge

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// TestAnswerToUnreadRequest: a guest that answers and closes without having read
// everything does not have its answer cut by a reset of the host's TCP
// connection, neither for what is there nor for what comes later.
func TestAnswerToUnreadRequest(t *testing.T) {
	r := newRig(t)
	peer, ours := tcpPair(t)
	defer unix.Close(peer)
	r.host.connect = func() (int, bool) { return ours, false }
	r.post(1)
	g := r.guest(1000, 80)
	g.do(packet.Request, 0)
	g.take(r.reap())
	request := make([]byte, 10_000)
	write(t, peer, request) // the guest has no buffers to read it into
	r.settle()
	answer := bytes.Repeat([]byte("answer "), 4000)
	g.send(answer, 0)
	g.do(packet.Shutdown, packet.ShutdownBoth)
	r.settle()
	write(t, peer, request)
	r.settle()
	write(t, peer, request)
	r.settle()
	if r.d.lingers.Open() != 1 {
		t.Errorf("%d sockets linger", r.d.lingers.Open())
	}
	var got []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Read(peer, buf)
		if err != nil {
			t.Fatalf("after %d bytes of %d: %v", len(got), len(answer), err)
		}
		if n == 0 {
			break
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, answer) {
		t.Errorf("%d bytes of %d", len(got), len(answer))
	}
	unix.Shutdown(peer, unix.SHUT_WR)
	if r.settle(); r.d.lingers.Open() != 0 {
		t.Error("it lingers after its peer has ended")
	}
}

func write(t *testing.T, fd int, b []byte) {
	t.Helper()
	if _, err := unix.Write(fd, b); err != nil {
		t.Fatal(err)
	}
}

// tcpPair is the peer's end, which blocks, and the device's.
func tcpPair(t *testing.T) (peer, ours int) {
	t.Helper()
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 1); err != nil {
		t.Fatal(err)
	}
	sa, _ := unix.Getsockname(l)
	peer, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(peer, sa); err != nil {
		t.Fatal(err)
	}
	ours, _, err = unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return peer, ours
}
