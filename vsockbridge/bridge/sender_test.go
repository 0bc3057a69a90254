package bridge

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// The sender's rules, on a UNIX seqpacket socket in place of a vsock one: whole
// messages in order, however full the socket is; the end behind the last; the
// relay's side is gone when the peer is.
func TestSender(t *testing.T) {
	peer, fd := packets(t)
	o, err := wholeMessages(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(o.In)
	go func() {
		unix.SetNonblock(o.Out, false) // the relay would wait by EPOLLOUT
		for i := range 100 {
			unix.Write(o.Out, bytes.Repeat([]byte{byte(i)}, 20000+i))
		}
		unix.Close(o.Out)
	}()
	buf := make([]byte, 1<<20)
	for i := range 100 {
		n, err := unix.Read(peer, buf)
		if err != nil || !bytes.Equal(buf[:n], bytes.Repeat([]byte{byte(i)}, 20000+i)) {
			t.Fatalf("message %d: %d bytes, %v", i, n, err)
		}
	}
	if n, err := unix.Read(peer, buf); n != 0 || err != nil {
		t.Errorf("behind the last: %d, %v", n, err)
	}
	o.done()
}

func TestSenderWhenPeerGoes(t *testing.T) {
	peer, fd := packets(t)
	o, err := wholeMessages(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(o.In)
	unix.Shutdown(peer, unix.SHUT_RD)
	unix.Write(o.Out, []byte("unwanted"))
	p := []unix.PollFd{{Fd: int32(o.Out)}}
	if n, _ := unix.Poll(p, 20000); n != 1 || p[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("the relay's side is not told: %d, %#x", n, p[0].Revents)
	}
	unix.Close(o.Out)
	o.done()
}

// A message longer than the sender holds ends the connection, rather than being
// passed on in part.
func TestSenderTooLong(t *testing.T) {
	peer, fd := packets(t)
	o, err := wholeMessages(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(o.In)
	for _, s := range []int{o.Out, o.In} {
		if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*messageMax); err != nil {
			t.Skip("needs CAP_NET_ADMIN for such a message: ", err)
		}
	}
	unix.SetNonblock(o.Out, false)
	if n, err := unix.Write(o.Out, make([]byte, messageMax+1)); err != nil {
		t.Fatal(n, err)
	}
	p := []unix.PollFd{{Fd: int32(peer), Events: unix.POLLIN}, {Fd: int32(o.Out)}}
	if n, _ := unix.Poll(p, 20000); n != 1 || p[1].Revents&unix.POLLHUP == 0 {
		t.Errorf("the peer has got something (%#x), the relay's side is told %#x", p[0].Revents, p[1].Revents)
	}
	unix.Close(o.Out)
	o.done()
}

func packets(t *testing.T) (peer, fd int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return fds[0], fds[1]
}
