package eventloop

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBrisk: a loop whose sleeps are short tells the scheduler only of those that
// are not. (Any of them may be cut short by a signal of the runtime's.)
func TestBrisk(t *testing.T) {
	l := newLoop(t, NewClock())
	p := &probe{}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	add(t, l, fd, In, p, 1)
	event := func(maxWait time.Duration) (n int, took time.Duration) {
		t.Helper()
		p.calls = nil
		start := time.Now()
		if err := l.Turn(maxWait); err != nil {
			t.Fatal(err)
		}
		return len(p.calls), time.Since(start)
	}
	if l.brisk {
		t.Fatal("brisk before it has slept")
	}
	signal(fd)
	if n, _ := event(time.Second); n != 1 || !l.brisk {
		t.Fatalf("%d calls, brisk %v, after a sleep that was short", n, l.brisk)
	}
	if n, _ := event(time.Second); n != 1 || !l.brisk {
		t.Fatalf("%d calls, brisk %v, after a nap with an event", n, l.brisk)
	}
	clearFD(fd)
	for range 100 {
		if n, took := event(time.Second); n != 0 || took > 500*time.Millisecond {
			t.Fatalf("%d calls after %v of a nap without event", n, took)
		}
		if !l.brisk {
			break
		}
	}
	if n, _ := event(20 * time.Millisecond); n != 0 || l.brisk {
		t.Fatalf("%d calls, brisk %v, after 20 ms without event", n, l.brisk)
	}
	l.brisk = true
	if n, _ := event(300 * time.Microsecond); n != 0 || !l.brisk {
		t.Fatalf("%d calls, brisk %v, after a short rest", n, l.brisk)
	}
}
