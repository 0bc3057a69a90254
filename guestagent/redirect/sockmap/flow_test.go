package sockmap

import (
	"crypto/sha256"
	"hash"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// bench is a Table on a loop that the test turns. A UNIX stream stands for the
// vsock: how the kernel redirects to the two differs only in the last call.
type bench struct {
	t    *testing.T
	loop *eventloop.Loop
	tab  *Table
	res  []relay.Result
}

func newBench(t *testing.T) *bench {
	t.Helper()
	k := open(t)
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, loop: loop, tab: k.NewTable(loop, t.Logf)}
	t.Cleanup(func() { b.tab.Close(); loop.Close() })
	return b
}

// flow starts one, and returns the far ends.
func (b *bench) flow(typ int) (client, server int) {
	b.t.Helper()
	ends := [4]int{}
	for i, typ := range []int{typ, unix.SOCK_STREAM} {
		fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		ends[2*i], ends[2*i+1] = fds[0], fds[1]
	}
	from := relay.Socket(ends[1], relay.Stream)
	if typ == unix.SOCK_DGRAM {
		from = relay.End{In: ends[1], Out: -1, Kind: relay.Datagram}
	}
	if err := b.tab.start(from, relay.Socket(ends[2], relay.Stream), func(r relay.Result) { b.res = append(b.res, r) }); err != nil {
		b.t.Fatal(err)
	}
	return ends[0], ends[3]
}

// until turns the loop until ok, and for twenty seconds at most.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			b.t.Fatalf("%s: it does not come; %+v", what, b.tab.Stats())
		}
		if err := b.loop.Turn(time.Millisecond); err != nil {
			b.t.Fatal(err)
		}
	}
}

// sender writes n random bytes, in pieces of up to max, from a goroutine, and then
// ends; the sum is of what it wrote.
func sender(fd int, n, max int, seed uint64) <-chan hash.Hash {
	done := make(chan hash.Hash, 1)
	_ = unix.SetNonblock(fd, false)
	go func() {
		r, h := rand.New(rand.NewPCG(seed, 1)), sha256.New()
		b := make([]byte, max)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for n > 0 {
			size := min(n, 1+r.IntN(max))
			b[r.IntN(size)]++
			sent, err := unix.Write(fd, b[:size])
			if err != nil {
				break
			}
			h.Write(b[:sent])
			n -= sent
		}
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		done <- h
	}()
	return done
}

// All bytes arrive once and in order, from a sender that never rests until it ends.
func TestFlowExact(t *testing.T) {
	for seed, max := range []int{1, 50, 4096, 65536, 100000, 300000} {
		b := newBench(t)
		client, server := b.flow(unix.SOCK_STREAM)
		n := min(6<<20, 400<<10+max*100)
		sum := sender(client, n, max, uint64(seed))
		got, buf, read, ended := sha256.New(), make([]byte, 1<<20), 0, false
		b.until("the end", func() bool {
			k, err := unix.Read(server, buf)
			if err == nil {
				got.Write(buf[:k])
				read += k
				ended = k == 0
			}
			return ended
		})
		if s := b.tab.Stats(); read != n || string(got.Sum(nil)) != string((<-sum).Sum(nil)) || s.Torn > 0 || s.Promoted != 1 {
			t.Fatalf("writes of up to %d: %d bytes of %d, equal or not; %+v", max, read, n, s)
		}
		unix.Close(server)
		unix.Close(client)
		b.until("the flow's end", func() bool { return len(b.res) == 1 })
		if r := b.res[0]; r.Err != 0 || r.Bytes[0] != uint64(n) {
			t.Errorf("%+v, want %d bytes", r, n)
		}
	}
}

// The other direction goes on when one has ended, either way.
func TestFlowHalfClose(t *testing.T) {
	b := newBench(t)
	client, server := b.flow(unix.SOCK_STREAM)
	write(t, client, "question")
	_ = unix.Shutdown(client, unix.SHUT_WR)
	got := ""
	b.until("the question and its end", func() bool {
		buf := make([]byte, 100)
		n, err := unix.Read(server, buf)
		got += string(buf[:max(n, 0)])
		return err == nil && n == 0
	})
	write(t, server, "answer")
	_ = unix.Shutdown(server, unix.SHUT_WR)
	b.until("the answer and its end", func() bool {
		buf := make([]byte, 100)
		n, err := unix.Read(client, buf)
		got += string(buf[:max(n, 0)])
		return err == nil && n == 0
	})
	b.until("the flow's end", func() bool { return len(b.res) == 1 })
	if got != "questionanswer" || b.res[0] != (relay.Result{Bytes: [2]uint64{8, 6}}) {
		t.Errorf("%q, %+v", got, b.res[0])
	}
	unix.Close(client)
	unix.Close(server)
}

// Datagrams are the kernel's from the first on; when the output's peer goes the flow
// ends, and the socket takes the next.
func TestFlowDatagrams(t *testing.T) {
	b := newBench(t)
	client, server := b.flow(unix.SOCK_DGRAM)
	b.until("the kernel has it", func() bool { return b.tab.Stats().Promoted == 1 })
	for _, s := range []string{"one ", "", "two ", "three"} {
		write(t, client, s)
	}
	read(t, server, "one two three")
	if s := b.tab.Stats(); s.Lagged != 0 {
		t.Errorf("%+v", s)
	}
	unix.Close(server)
	b.until("the flow's end", func() bool { return len(b.res) == 1 })
	if r := b.res[0]; r.Err != unix.EPIPE || r.Bytes[0] != 13 {
		t.Errorf("%+v", r)
	}
	unix.Close(client)
}

// What lay in the queue before the program came moves on when its sender has stopped,
// and when it rests.
func TestFlowLag(t *testing.T) {
	b := newBench(t)
	client, server := b.flow(unix.SOCK_DGRAM)
	write(t, client, "first ") // it is there before the loop turns: copied
	b.until("the kernel has it", func() bool { return b.tab.Stats().Promoted == 1 })
	read(t, server, "first ")
	f := b.tab.flows
	b.until("nothing lags", func() bool { return f.state == redirecting })
	unix.Close(client)
	unix.Close(server)
	b.until("the flow's end", func() bool { return len(b.res) == 1 })

	// As if a datagram had come between the last read and the maps.
	client, server = b.flow(unix.SOCK_DGRAM)
	f = b.tab.flows
	s := lend(t, b.tab.k)
	write(t, client, "stuck ")
	if err := s.insert(f.unix, f.vsock); err != nil {
		t.Fatal(err)
	}
	f.slot, f.since = s, b.loop.Now()
	f.wait(lagging)
	f.settle()
	b.until("what was stuck", func() bool { return f.state == redirecting })
	read(t, server, "stuck ")
	write(t, client, "next")
	read(t, server, "next")
	if n := b.tab.Stats().Torn; n != 0 {
		t.Errorf("torn %d times", n)
	}
	unix.Close(client)
	unix.Close(server)
}

// While the agent copies it allocates nothing.
func TestFlowAllocates(t *testing.T) {
	b := newBench(t)
	client, server := b.flow(unix.SOCK_STREAM)
	there, back := make([]byte, 1000), make([]byte, 1000)
	n := testing.AllocsPerRun(100, func() {
		for _, way := range [][2]int{{client, server}, {server, client}} {
			if _, err := unix.Write(way[0], there); err != nil {
				t.Fatal(err)
			}
			if err := b.loop.Turn(time.Second); err != nil {
				t.Fatal(err)
			}
			if k, err := unix.Read(way[1], back); k != len(back) {
				t.Fatal(k, err)
			}
		}
	})
	if n != 0 || b.tab.Stats().Promoted != 0 {
		t.Errorf("%v allocations; %+v", n, b.tab.Stats())
	}
	unix.Close(client)
	unix.Close(server)
}
