package sockmap

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// open skips where this kernel cannot, which it says itself.
func open(t *testing.T) *Kernel {
	t.Helper()
	k, err := Open(4)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(k.Close)
	return k
}

// lend takes a slot; one that is not ready is being made.
func lend(t *testing.T, k *Kernel) *slot {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s := k.take(); s != nil {
			return s
		}
	}
	t.Fatal("no slot")
	return nil
}

func pair(t *testing.T, typ int) (mine, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func write(t *testing.T, fd int, s string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(s)); err != nil {
		t.Fatal(err)
	}
}

// read takes as many bytes as want has; the kernel's worker may need a moment.
func read(t *testing.T, fd int, want string) {
	t.Helper()
	_ = unix.SetNonblock(fd, false)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	var got []byte
	for b := make([]byte, 100); len(got) < len(want); {
		n, err := unix.Read(fd, b)
		if err != nil || n == 0 {
			t.Fatalf("%q, then %d, %v", got, n, err)
		}
		got = append(got, b[:n]...)
	}
	if string(got) != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// What arrives goes to the output, behind what lay there before, and is counted; what
// lay there is stuck until as much arrives.
func TestRedirect(t *testing.T) {
	k := open(t)
	for name, typ := range map[string]int{"stream": unix.SOCK_STREAM, "datagrams": unix.SOCK_DGRAM} {
		t.Run(name, func(t *testing.T) {
			client, from := pair(t, typ)
			to, server := pair(t, unix.SOCK_STREAM)
			write(t, client, "before ")
			s := lend(t, k)
			if err := s.insert(from, to); err != nil {
				t.Fatal(err)
			}
			if q, err := lookAt(s.lookIn); err != nil || q.receive != 1 || q.stopped {
				t.Errorf("%+v, %v, want one buffer from before", q, err)
			}
			write(t, client, "after ")
			read(t, server, "before ")
			if q, err := lookAt(s.lookIn); err != nil || q.receive != 1 {
				t.Errorf("%+v, %v, want one buffer that is stuck", q, err)
			}
			write(t, client, "last")
			read(t, server, "after ")
			if n := s.redirected.Load(); n != uint64(len("before after ")) {
				t.Errorf("%d bytes counted", n)
			}
			b := make([]byte, 100)
			if n, err := unix.Read(from, b); err != nil || string(b[:n]) != "last" {
				t.Errorf("stuck is %q, %v", b[:max(n, 0)], err)
			}
			if q, err := lookAt(s.lookIn); err != nil || q.receive != 0 {
				t.Errorf("%+v, %v, want nothing left", q, err)
			}
			if typ == unix.SOCK_DGRAM {
				write(t, client, "") // which would end the output
			}
			write(t, client, "more")
			read(t, server, "more")
			s.remove()
			k.give(s)
		})
	}
}

// A stream's sender has stopped when all that it may have under way lies in the queue.
func TestStopped(t *testing.T) {
	k := open(t)
	client, from := pair(t, unix.SOCK_STREAM)
	to, _ := pair(t, unix.SOCK_STREAM)
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(client, b); err != nil {
			break
		}
	}
	s := lend(t, k)
	if err := s.insert(from, to); err != nil {
		t.Fatal(err)
	}
	if q, err := lookAt(s.lookIn); err != nil || !q.stopped || !q.idle {
		t.Errorf("%+v, %v, want a sender that has stopped", q, err)
	}
	if _, err := unix.Read(from, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if q, err := lookAt(s.lookIn); err != nil || q.stopped || !q.idle {
		t.Errorf("%+v, %v, want a sender that may go on", q, err)
	}
	s.remove()
	k.give(s)
}

// The output's queue says what is not sent yet.
func TestBacklog(t *testing.T) {
	k := open(t)
	client, from := pair(t, unix.SOCK_DGRAM)
	to, server := pair(t, unix.SOCK_STREAM)
	s := lend(t, k)
	if err := s.insert(from, to); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for b := make([]byte, 10000); sent < 4<<20; sent += len(b) { // until nobody takes more
		if _, err := unix.Write(client, b); err != nil {
			break
		}
	}
	if sent >= 4<<20 {
		t.Fatal("the sender is not held back by a reader that does not read")
	}
	q, err := lookAt(s.lookOut)
	if err != nil || q.backlog == 0 {
		t.Errorf("%+v, %v, want buffers that are not sent", q, err)
	}
	_ = unix.SetNonblock(server, false)
	for b := make([]byte, 1<<20); sent > 0; {
		n, err := unix.Read(server, b)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		sent -= n
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the last may be sent and not yet taken out
		if q, err = lookAt(s.lookOut); err == nil && q.backlog == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v, want nothing left", q, err)
		}
	}
	s.remove()
	k.give(s)
}

// Slots are lent up to the limit, and again when they come back.
func TestSlots(t *testing.T) {
	k := open(t)
	var list []*slot
	for range 4 {
		list = append(list, lend(t, k))
	}
	if k.take() != nil {
		t.Fatal("there is one more than the limit")
	}
	for _, s := range list {
		s.redirected.Store(7)
		k.give(s)
	}
	k.wait.Wait()
	if s := k.take(); s == nil || s.redirected.Load() != 0 {
		t.Error("no clean slot comes back")
	} else {
		k.give(s)
	}
}
