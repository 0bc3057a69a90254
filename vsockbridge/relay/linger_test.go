package relay

import (
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// A client that goes on sending after the server has answered and closed still
// reads the whole answer, and then its end.
func TestAnswerOutlivesLateRequest(t *testing.T) {
	g := newRig(t, Config{})
	client, a := tcp(t)
	server, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Stream), Socket(z, Stream))
	answer := pattern(100_000)
	must(unix.Write(server, answer))(t)
	nul := must(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(nul)
	check(t, unix.Dup3(nul, server, unix.O_CLOEXEC)) // closes it
	// Either the pair hears of it by itself, or by what the client sends.
	g.until("the end of the pair", func() bool {
		_, _ = unix.Write(client, []byte("more"))
		return len(g.res) > 0
	})
	for range 3 {
		if _, err := unix.Write(client, pattern(10_000)); err != nil {
			t.Fatalf("late request: %v", err)
		}
		g.calm()
	}
	if n := g.r.lingers.Open(); n != 1 {
		t.Errorf("%d sockets linger", n)
	}
	same(t, g.take(client, len(answer)), answer)
	g.eof(client)
	shut(client, client)
	g.until("the socket closes with its peer", func() bool { return g.r.lingers.Open() == 0 })
}

// What lingers is bounded in number, in bytes and in time, and ends with the
// relay.
func TestLingerBounds(t *testing.T) {
	loop, err := eventloop.New(eventloop.NewClock())
	check(t, err)
	defer loop.Close()
	l := NewLingers(loop)

	local, _ := socks(t, unix.SOCK_STREAM)
	fd := must(unix.Dup(local))(t)
	if l.Close(fd); l.Open() != 0 {
		t.Error("a UNIX socket lingers")
	}
	flood, a := tcp(t)
	if l.Close(a); l.Open() != 1 {
		t.Fatal("a TCP socket does not linger")
	}
	b := pattern(64 << 10)
	for sent := 0; l.Open() == 1; {
		n, _ := unix.Write(flood, b)
		if sent += n; sent > 4*lingerBytes {
			t.Fatal("reads for ever")
		}
		check(t, loop.Turn(0))
	}
	_, a = tcp(t)
	l.Close(a)
	loop.Timers().Advance(loop.Now() + 2*lingerTime)
	if l.Open() != 0 {
		t.Error("lingers for ever")
	}
	for range lingerMost + 1 {
		_, a := tcp(t)
		l.Close(a)
	}
	if l.Open() != lingerMost {
		t.Errorf("%d linger", l.Open())
	}
	before := descriptors(t)
	if l.Stop(); l.Open() != 0 || before-descriptors(t) != lingerMost {
		t.Errorf("Stop closed %d descriptors", before-descriptors(t))
	}
}
