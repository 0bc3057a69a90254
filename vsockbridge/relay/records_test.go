package relay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// frames puts every message behind its length, as the documentation has it.
func frames(ms ...[]byte) []byte {
	var b []byte
	for _, m := range ms {
		b = binary.BigEndian.AppendUint32(b, uint32(len(m)))
		b = append(b, m...)
	}
	return b
}

var sizes = [][]byte{pattern(1), {}, pattern(100), pattern(65536), pattern(150000), pattern(3)}

// Messages keep their boundaries between all kinds that have any.
func TestMessages(t *testing.T) {
	for _, k := range []struct {
		name     string
		src, dst Kind
	}{
		{"seqpacket seqpacket", Seqpacket, Seqpacket}, {"datagram datagram", Datagram, Datagram},
		{"datagram seqpacket", Datagram, Seqpacket}, {"seqpacket framed", Seqpacket, Framed},
		{"datagram framed", Datagram, Framed}, {"framed seqpacket", Framed, Seqpacket}, {"framed datagram", Framed, Datagram},
	} {
		t.Run(k.name, func(t *testing.T) {
			g := newRig(t, Config{})
			from, a := socks(t, sockType[k.src])
			to, z := socks(t, sockType[k.dst])
			g.start(Socket(a, k.src), Socket(z, k.dst))
			if k.dst == Framed {
				for _, m := range sizes {
					must(unix.Write(from, m))(t)
					same(t, g.take(to, FrameHeader+len(m)), frames(m))
				}
			} else {
				for _, m := range sizes {
					if k.src == Framed {
						m = frames(m)
					}
					if _, err := unix.Write(from, m); err != nil {
						t.Fatal(err)
					}
					g.calm() // as much as goes
					want := m
					if k.src == Framed {
						want = m[FrameHeader:]
					}
					same(t, g.message(to), want)
				}
			}
			if n := g.r.Stats().Messages; n != uint64(len(sizes)) {
				t.Errorf("%d messages counted", n)
			}
			if k.src == Datagram || k.dst == Datagram {
				return
			}
			shut(from, from)
			g.eof(to)
			shut(to, to)
			g.eof(from)
			g.over(0)
		})
	}
}

var sockType = map[Kind]int{Stream: unix.SOCK_STREAM, Framed: unix.SOCK_STREAM, Seqpacket: unix.SOCK_SEQPACKET, Datagram: unix.SOCK_DGRAM}

// Frames arrive in pieces of any size, and many at once.
func TestFramesInPieces(t *testing.T) {
	for _, piece := range []int{1, 3, 5, 1000, 1 << 20} {
		g := newRig(t, Config{MaxMessage: 5000})
		from, a := socks(t, unix.SOCK_STREAM)
		to, z := socks(t, unix.SOCK_SEQPACKET)
		g.start(Socket(a, Framed), Socket(z, Seqpacket))
		want := [][]byte{pattern(5000), {}, pattern(1), pattern(2500), {}, pattern(4999)}
		for i, b := 0, frames(want...); i < len(b); i += piece {
			must(unix.Write(from, b[i:min(i+piece, len(b))]))(t)
			g.calm()
		}
		shut(from, from)
		for _, m := range want {
			same(t, g.message(to), m)
		}
		g.eof(to)
	}
}

// Many small frames in one read are more than a turn's work: nobody else wakes
// the relay for the rest.
func TestManyFramesAtOnce(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_STREAM)
	g.start(Socket(a, Framed), Socket(z, Stream))
	const n = 10 * turnRounds
	must(unix.Write(from, bytes.Repeat(frames([]byte("ab")), n)))(t)
	same(t, g.take(to, 2*n), bytes.Repeat([]byte("ab"), n))
}

// A plain stream has no boundaries: what one read gives becomes one message, and
// messages become bytes.
func TestMessagesAndPlainStream(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_SEQPACKET)
	g.start(Socket(a, Stream), Socket(z, Seqpacket))
	must(unix.Write(from, []byte("hello")))(t)
	same(t, g.message(to), []byte("hello"))
	for _, m := range []string{"a", "", "bc"} {
		must(unix.Write(to, []byte(m)))(t)
	}
	same(t, g.take(from, 3), []byte("abc"))
	shut(to, to)
	g.eof(from)
}

// A stream that ends towards a datagram socket ends everything: nothing else
// would.
func TestDatagramHasNoEnd(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_DGRAM)
	g.start(Socket(a, Stream), Socket(z, Datagram))
	must(unix.Write(from, []byte("last words")))(t)
	shut(from, from)
	same(t, g.message(to), []byte("last words"))
	g.over(0)
}

// A datagram socket that only receives: the pair ends when its target goes.
func TestOneWay(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_DGRAM)
	to, z := socks(t, unix.SOCK_STREAM)
	g.start(End{In: a, Out: -1, Kind: Datagram}, Socket(z, Framed))
	must(unix.Write(from, []byte("one")))(t)
	same(t, g.take(to, 7), frames([]byte("one")))
	unix.Close(to)
	g.over(unix.EPIPE)
}

// What is longer than allowed ends a framed stream or a seqpacket socket, whose
// messages all count, and is dropped among datagrams.
func TestTooLong(t *testing.T) {
	for _, tt := range []struct {
		name     string
		src, dst Kind
		send     []byte
		err      unix.Errno
	}{
		{"frame", Framed, Seqpacket, frames(pattern(1001)), unix.EMSGSIZE},
		{"length of 4 GiB", Framed, Seqpacket, []byte{255, 255, 255, 255}, unix.EMSGSIZE},
		{"seqpacket", Seqpacket, Framed, pattern(1001), unix.EMSGSIZE},
		{"datagram", Datagram, Framed, pattern(1001), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, Config{MaxMessage: 1000})
			from, a := socks(t, sockType[tt.src])
			_, z := socks(t, sockType[tt.dst])
			g.start(Socket(a, tt.src), Socket(z, tt.dst))
			must(unix.Write(from, tt.send))(t)
			g.calm()
			if tt.err != 0 {
				g.over(tt.err)
			} else if s := g.r.Stats(); s.TooLong != 1 || s.Open != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// A datagram that the target socket cannot take is dropped, and the next goes on.
func TestDatagramTooLongForTarget(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_DGRAM)
	check(t, unix.SetsockoptInt(z, unix.SOL_SOCKET, unix.SO_SNDBUF, 20000))
	g.start(Socket(a, Framed), Socket(z, Datagram))
	must(unix.Write(from, frames(pattern(100000), []byte("next"))))(t)
	same(t, g.message(to), []byte("next"))
	if n := g.r.Stats().TooLong; n != 1 {
		t.Errorf("%d counted as too long", n)
	}
}

// A message within MaxMessage that exceeds what a socket's send buffer is by
// default (208 KiB) goes through, as far as the host lets buffers grow (416 KiB).
func TestLongMessage(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_STREAM)
	to, z := socks(t, unix.SOCK_SEQPACKET)
	g.start(Socket(a, Framed), Socket(z, Seqpacket))
	want := pattern(400_000)
	left := frames(want, []byte("next"))
	g.until("all is sent", func() bool {
		if n, err := unix.Write(from, left); err == nil {
			left = left[n:]
		}
		return len(left) == 0
	})
	same(t, g.message(to), want)
	same(t, g.message(to), []byte("next"))
}

func TestStreamEndsWithinFrame(t *testing.T) {
	for _, b := range [][]byte{{0}, {0, 0, 0, 2, 'x'}} {
		g := newRig(t, Config{})
		from, a := socks(t, unix.SOCK_STREAM)
		_, z := socks(t, unix.SOCK_SEQPACKET)
		g.start(Socket(a, Framed), Socket(z, Seqpacket))
		must(unix.Write(from, b))(t)
		shut(from, from)
		g.over(unix.EPROTO)
	}
}

// Messages wait for their target one at a time, and stay whole.
func TestMessageBackPressure(t *testing.T) {
	g := newRig(t, Config{})
	from, a := socks(t, unix.SOCK_SEQPACKET)
	to, z := socks(t, unix.SOCK_SEQPACKET)
	g.start(Socket(a, Seqpacket), Socket(z, Seqpacket))
	var sent int
	for stuck := 0; stuck < 3; g.calm() {
		if _, err := unix.Write(from, pattern(1000+sent)); err != nil {
			stuck++
		} else {
			stuck = 0
			sent++
		}
	}
	shut(from, from)
	for i := range sent {
		same(t, g.message(to), pattern(1000+i))
	}
	g.eof(to)
	if g.r.Stats().Blocked == 0 {
		t.Error("nothing was blocked")
	}
}

func TestFrame(t *testing.T) {
	for _, tt := range []struct {
		b         []byte
		n         int
		whole, ok bool
	}{
		{nil, 0, false, true}, {[]byte{0, 0, 0}, 0, false, true}, {[]byte{0, 0, 0, 0}, 0, true, true},
		{[]byte{0, 0, 1, 0}, 256, false, true}, {append([]byte{0, 0, 0, 2}, 'a', 'b', 'c'), 2, true, true},
		{[]byte{0, 0, 1, 1}, 0, false, false}, {[]byte{128, 0, 0, 0}, 0, false, false},
	} {
		if n, whole, ok := Frame(tt.b, 256); n != tt.n || whole != tt.whole || ok != tt.ok {
			t.Errorf("Frame(%v) = %d, %v, %v", tt.b, n, whole, ok)
		}
	}
	var b [FrameHeader]byte
	PutFrame(b[:], 0x01020304)
	if b != [...]byte{1, 2, 3, 4} {
		t.Errorf("PutFrame: %v", b)
	}
}

// FuzzFramed feeds what a hostile peer may send on a framed stream.
func FuzzFramed(f *testing.F) {
	f.Add(frames([]byte("a"), nil, []byte("bcd")), uint8(2))
	f.Add([]byte{255, 255, 255, 255, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		g := newRig(t, Config{MaxMessage: 64})
		from, a := socks(t, unix.SOCK_STREAM)
		to, z := socks(t, unix.SOCK_SEQPACKET)
		g.start(Socket(a, Framed), Socket(z, Seqpacket))
		step, buf, out := int(piece)+1, make([]byte, 128), 0
		for i := 0; i < len(b) && len(g.res) == 0; i += step {
			unix.Write(from, b[i:min(i+step, len(b))])
			g.calm()
			for n, _ := unix.Read(to, buf); n > 0; n, _ = unix.Read(to, buf) {
				out += n
			}
		}
		if out > len(b) || uint64(out) > g.r.Stats().Bytes {
			t.Errorf("%d bytes out of %d", out, len(b))
		}
	})
}
