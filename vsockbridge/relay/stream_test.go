package relay

import (
	"testing"

	"golang.org/x/sys/unix"
)

// makers are the kinds of stream ends. in and out are the test's descriptors.
var makers = map[string]func(t *testing.T) (in, out int, e End){
	"unix": func(t *testing.T) (int, int, End) {
		fd, theirs := socks(t, unix.SOCK_STREAM)
		return fd, fd, Socket(theirs, Stream)
	},
	"tcp": func(t *testing.T) (int, int, End) {
		fd, theirs := tcp(t)
		return fd, fd, Socket(theirs, Stream)
	},
	"pipes": func(t *testing.T) (int, int, End) {
		var to, from [2]int
		check(t, unix.Pipe2(to[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
		check(t, unix.Pipe2(from[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
		t.Cleanup(func() { unix.Close(from[0]) }) // to[1] is closed by shut
		return from[0], to[1], End{In: to[0], Out: from[1]}
	},
}

// shut ends the writing side of a test's end.
func shut(in, out int) {
	if in == out {
		unix.Shutdown(out, unix.SHUT_WR)
	} else {
		unix.Close(out)
	}
}

// carry writes all of b to out and reads it from in, turning the loop.
func (g *rig) carry(out, in int, b []byte) {
	g.t.Helper()
	var got []byte
	buf := make([]byte, 1<<20)
	left := b
	g.until("all bytes", func() bool {
		for len(left) > 0 {
			n, err := unix.Write(out, left)
			if err != nil {
				break
			}
			left = left[n:]
		}
		for {
			n, err := unix.Read(in, buf)
			if err != nil || n == 0 {
				break
			}
			got = append(got, buf[:n]...)
		}
		return len(got) >= len(b)
	})
	same(g.t, got, b)
}

// Every stream end joined with every other: bytes both ways, then one direction
// ends, the other goes on, then it ends too. By both methods.
func TestStreams(t *testing.T) {
	for _, c := range []Config{{}, {Copy: true}, {PipeSize: 4096}} {
		for a, makeA := range makers {
			for b, makeB := range makers {
				t.Run(a+" "+b, func(t *testing.T) {
					before := descriptors(t)
					g := newRig(t, c)
					aIn, aOut, endA := makeA(t)
					bIn, bOut, endB := makeB(t)
					g.start(endA, endB)
					up, down := pattern(3<<20+1), pattern(1<<20+7)
					g.carry(aOut, bIn, up)
					g.carry(bOut, aIn, down)
					shut(aIn, aOut)
					g.eof(bIn)
					g.carry(bOut, aIn, down)
					if len(g.res) != 0 {
						t.Fatal("half-closed, and ended")
					}
					shut(bIn, bOut)
					g.eof(aIn)
					res := g.over(0)
					if want := [2]uint64{uint64(len(up)), 2 * uint64(len(down))}; res.Bytes != want {
						t.Errorf("counted %v, want %v", res.Bytes, want)
					}
					g.r.Close()
					g.loop.Close()
					if now := descriptors(t); now != before+2 { // the test's own: aIn and bIn
						t.Errorf("%d descriptors, want %d", now, before)
					}
				})
			}
		}
	}
}

func open(fd int) int {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return 0
	}
	return 1
}

// An answer reaches its client whole although the server closed without having
// read all of the request: closing a TCP socket with unread bytes would be a reset,
// which takes along what is still to be sent.
func TestAnswerToUnreadRequest(t *testing.T) {
	g := newRig(t, Config{})
	client, a := tcp(t)
	server, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Stream), Socket(z, Stream))
	request := pattern(16 << 10)
	g.until("the request is more than the server takes", func() bool {
		must(unix.Write(client, request))(t)
		g.calm()
		return queued(a) > 0
	})
	answer := pattern(600_000)
	left := answer
	g.until("the answer is under way", func() bool {
		if n, err := unix.Write(server, left); err == nil {
			left = left[n:]
		}
		return len(left) == 0
	})
	nul := must(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(nul)
	check(t, unix.Dup3(nul, server, unix.O_CLOEXEC)) // closes it, and the test closes its number
	if res := g.over(0); res.Bytes[1] != uint64(len(answer)) {
		t.Fatalf("%v bytes when it ended", res.Bytes)
	}
	same(t, g.take(client, len(answer)), answer)
	g.eof(client)
}

// What a client sends right before it closes arrives, whoever closes first.
func TestLastBytes(t *testing.T) {
	for name, mk := range makers {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, Config{})
			in, out, e := mk(t)
			fd, theirs := socks(t, unix.SOCK_STREAM)
			g.start(e, Socket(theirs, Stream))
			b := pattern(50000)
			must(unix.Write(out, b))(t)
			shut(in, out)
			same(t, g.take(fd, len(b)), b)
			g.eof(fd)
		})
	}
}

// A target that does not read stops its source, wakes nobody, and loses nothing.
func TestBackPressure(t *testing.T) {
	for _, c := range []Config{{}, {Copy: true}} {
		g := newRig(t, c)
		from, a := socks(t, unix.SOCK_STREAM)
		to, z := socks(t, unix.SOCK_STREAM)
		g.start(Socket(a, Stream), Socket(z, Stream))
		var sent []byte
		chunk := pattern(32 << 10)
		for stuck := 0; stuck < 3; {
			n, err := unix.Write(from, chunk)
			if err == nil {
				sent = append(sent, chunk[:n]...)
				stuck = 0
			} else {
				stuck++
			}
			g.calm()
		}
		if len(sent) > 2<<20 {
			t.Errorf("%d bytes were taken from the source: that is no back-pressure", len(sent))
		}
		if g.r.Stats().Blocked == 0 {
			t.Error("nothing was blocked")
		}
		unix.Close(from)
		t.Logf("%d bytes in flight", len(sent))
		g.calm()
		same(t, g.take(to, len(sent)), sent)
		g.eof(to)
		g.over(0)
	}
}

// With nothing in flight a pair holds neither pipe nor buffer.
func TestIdleHoldsNothing(t *testing.T) {
	for _, c := range []Config{{}, {Copy: true}} {
		g := newRig(t, c)
		for range 8 {
			from, a := socks(t, unix.SOCK_STREAM)
			to, z := socks(t, unix.SOCK_STREAM)
			p := g.start(Socket(a, Stream), Socket(z, Stream))
			g.carry(from, to, pattern(100000))
			g.carry(to, from, pattern(100000))
			g.calm()
			for i := range p.flows {
				if f := &p.flows[i]; f.pipe != noPipe || f.buf != nil {
					t.Errorf("flow %d holds %v and %d bytes", i, f.pipe, len(f.buf))
				}
			}
		}
		if p, b := len(g.r.pool.pipes), len(g.r.pool.buffers); p+b != 1 {
			t.Errorf("8 pairs after each other needed %d pipes and %d buffers", p, b)
		}
	}
}

// A peer that is gone ends the pair, though the other end neither reads, writes
// nor closes.
func TestGoneWhileIdle(t *testing.T) {
	for name, fill := range map[string]bool{"nothing in flight": false, "unread bytes": true} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, Config{})
			from, a := socks(t, unix.SOCK_STREAM)
			to, z := socks(t, unix.SOCK_STREAM)
			g.start(Socket(a, Stream), Socket(z, Stream))
			if fill {
				must(unix.Write(from, pattern(1000)))(t)
			}
			g.calm()
			unix.Close(to)
			g.over(0)
			g.eof(from)
			if _, err := unix.Write(from, []byte("x")); err != unix.EPIPE {
				t.Errorf("write to a pair that is gone: %v", err)
			}
		})
	}
}

// A peer that has half-closed first, and goes later, ends the pair as well.
func TestGoneAfterHalfClose(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Stream), Socket(z, Stream))
	shut(to, to)
	g.eof(from)
	g.carry(from, to, pattern(1000))
	unix.Close(to)
	g.over(0)
}

// A peer that is gone while its last bytes wait for the other end: who writes to
// it learns of it before they are read, and they are read in full.
func TestGoneBehindBackPressure(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Stream), Socket(z, Stream))
	sent := 0
	for b := pattern(32 << 10); ; g.calm() {
		n, err := unix.Write(to, b)
		if err != nil {
			break
		}
		sent += n
	}
	unix.Close(to)
	g.calm()
	if _, err := unix.Write(from, []byte("x")); err != unix.EPIPE {
		t.Errorf("write to one who is gone: %v", err)
	}
	g.take(from, sent)
	g.eof(from)
	g.over(0)
}

// A target that shuts its reading side ends that direction alone, and the source
// is told.
func TestTargetStopsReading(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Stream), Socket(z, Stream))
	check(t, unix.Shutdown(to, unix.SHUT_RD))
	must(unix.Write(from, []byte("unwanted")))(t)
	g.calm()
	if _, err := unix.Write(from, []byte("x")); err != unix.EPIPE {
		t.Errorf("write towards one who does not read: %v", err)
	}
	g.carry(to, from, pattern(70000))
	shut(to, to)
	g.eof(from)
	g.over(0)
}

// A TCP connection that is reset resets the one that it is joined with: what was
// sent so far must not look like all.
func TestResetIsPassedOn(t *testing.T) {
	g := newRig(t, Config{})
	from, a := tcp(t)
	to, z := tcp(t)
	g.start(Socket(a, Stream), Socket(z, Stream))
	g.carry(from, to, pattern(1000))
	check(t, unix.SetsockoptLinger(from, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	check(t, unix.Close(from))
	g.over(unix.ECONNRESET)
	if _, err := unix.Read(to, make([]byte, 1)); err != unix.ECONNRESET {
		t.Errorf("the other side reads %v, want a reset", err)
	}
	if g.r.Stats().Failed != 1 {
		t.Error("not counted as failed")
	}
}

func TestLimits(t *testing.T) {
	g := newRig(t, Config{MaxPairs: 1})
	_, a := socks(t, unix.SOCK_STREAM)
	_, b := socks(t, unix.SOCK_STREAM)
	p := g.start(Socket(a, Stream), Socket(b, Stream))
	_, c := socks(t, unix.SOCK_STREAM)
	_, d := socks(t, unix.SOCK_STREAM)
	if _, err := g.r.Start(Socket(c, Stream), Socket(d, Stream), nil); err != ErrFull {
		t.Errorf("second pair: %v", err)
	}
	if open(c)+open(d) != 2 {
		t.Error("a refused pair was closed")
	}
	p.Close()
	if len(g.res) != 0 {
		t.Error("Close called back")
	}
	file := must(unix.Open("/proc/self/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(file)
	if _, err := g.r.Start(End{In: file, Out: -1}, Socket(d, Stream), nil); err == nil {
		t.Error("a regular file was taken")
	}
	g.start(Socket(c, Stream), Socket(d, Stream))
}

func TestTransfersAllocateNothing(t *testing.T) {
	b := pattern(3000)
	for name, tt := range map[string]struct {
		c   Config
		typ int
		k   Kind
	}{
		"spliced":  {Config{}, unix.SOCK_STREAM, Stream},
		"copied":   {Config{Copy: true}, unix.SOCK_STREAM, Stream},
		"messages": {Config{}, unix.SOCK_SEQPACKET, Seqpacket},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, tt.c)
			from, a := socks(t, tt.typ)
			to, z := socks(t, tt.typ)
			g.start(Socket(a, tt.k), Socket(z, tt.k))
			buf := make([]byte, 4096)
			n := 0
			allocs := testing.AllocsPerRun(100, func() {
				unix.Write(from, b)
				g.loop.Turn(0)
				m, _ := unix.Read(to, buf)
				n += m
			})
			if allocs != 0 || n != 101*len(b) {
				t.Errorf("%v allocations for each transfer, %d bytes", allocs, n)
			}
		})
	}
}
