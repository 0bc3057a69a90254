package stream

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// rig is an Endpoint on one end of a socket pair; the test is the peer.
type rig struct {
	t    *testing.T
	loop *eventloop.Loop
	h    *linktest.Handler
	e    *Endpoint
	peer int
}

func newLoop(t testing.TB) *eventloop.Loop {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loop.Close)
	return loop
}

func newRig(t *testing.T) *rig {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, loop: newLoop(t), h: &linktest.Handler{}, peer: fds[1]}
	t.Cleanup(func() { unix.Close(fds[1]) })
	if r.e, err = New(Config{FD: fds[0]}, r.h, r.loop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.e.Close)
	r.turn()
	if len(r.h.Ups) != 1 || !r.h.Ups[0].Fresh || r.h.Ups[0].Caps.MTU != 1500 || r.h.Ups[0].Caps.Csum {
		t.Fatalf("link up: %+v", r.h.Ups)
	}
	return r
}

func (r *rig) turn() {
	r.t.Helper()
	if err := r.loop.Turn(0); err != nil {
		r.t.Fatal(err)
	}
}

// put has the peer write b, with as many turns as that takes.
func (r *rig) put(b []byte) {
	r.t.Helper()
	for len(b) > 0 {
		n, err := unix.Write(r.peer, b)
		if err != nil && err != unix.EAGAIN {
			r.t.Fatal(err)
		}
		b = b[max(n, 0):]
		r.turn()
	}
	r.turn()
}

// get reads what the peer can read now.
func (r *rig) get() (all []byte) {
	r.t.Helper()
	b := make([]byte, 1<<20)
	for {
		n, err := unix.Read(r.peer, b)
		if err != nil || n == 0 {
			return all
		}
		all = append(all, b[:n]...)
	}
}

func framed(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// unframe cuts what the peer has read into frames.
func unframe(t *testing.T, b []byte) (frames [][]byte) {
	t.Helper()
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b))
		if n > len(b)-4 {
			t.Fatalf("frame of %d bytes in %d", n, len(b)-4)
		}
		frames, b = append(frames, b[4:4+n]), b[4+n:]
	}
	return frames
}

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestFromGuest(t *testing.T) {
	lengths := []int{14, 60, 61, 1514, 13, 1, 65549, 15, 9014}
	for i := range 300 {
		lengths = append(lengths, 14+i*7)
	}
	var wire []byte
	var want [][]byte
	short := 0
	for i, n := range lengths {
		f := pattern(n, uint64(i))
		wire = append(wire, framed(f)...)
		if n < 14 {
			short++
		} else {
			want = append(want, f)
		}
	}
	for _, piece := range []int{1 << 20, 100_000, 4096, 1000, 7} {
		r := newRig(t)
		for rest := wire; len(rest) > 0; {
			n := min(piece, len(rest))
			r.put(rest[:n])
			rest = rest[n:]
		}
		if len(r.h.Got) != len(want) {
			t.Fatalf("pieces of %d: %d frames, want %d", piece, len(r.h.Got), len(want))
		}
		for i, f := range r.h.Got {
			if !bytes.Equal(f.Data, want[i]) {
				t.Fatalf("pieces of %d: frame %d differs", piece, i)
			}
		}
		if s := r.e.Stats(); int(s.TxFrames) != len(want) || int(s.Short) != short || s.LostFraming != 0 {
			t.Errorf("stats %+v", s)
		}
	}
}

func TestBatchesAndOneReadPerTurn(t *testing.T) {
	r := newRig(t)
	var wire []byte
	for range 150 {
		wire = append(wire, framed(make([]byte, 100))...)
	}
	if _, err := unix.Write(r.peer, wire); err != nil {
		t.Fatal(err)
	}
	before := r.e.Stats().Reads
	r.turn()
	if n := r.e.Stats().Reads - before; n != 1 {
		t.Errorf("%d reads in a turn", n)
	}
	if len(r.h.Batches) != 3 || r.h.Batches[0] != inBatch || r.h.Batches[2] != 150-2*inBatch {
		t.Errorf("batches %v", r.h.Batches)
	}
}

func TestLostFraming(t *testing.T) {
	for name, length := range map[string]uint32{"zero": 0, "too long": link.MaxFrame + 1, "huge": 1<<32 - 1} {
		t.Run(name, func(t *testing.T) {
			gone := 0
			r := newRig(t)
			r.e.c.Gone = func() { gone++ }
			r.put(append(framed(make([]byte, 20)), binary.BigEndian.AppendUint32(nil, length)...))
			if r.h.Count != 1 || r.h.Downs != 1 || r.e.Connected() || gone != 1 {
				t.Errorf("frames %d, downs %d, connected %v, gone %d", r.h.Count, r.h.Downs, r.e.Connected(), gone)
			}
			if n := r.e.Stats().LostFraming; n != 1 {
				t.Errorf("counted %d", n)
			}
			if link.Send(r.e, make([]byte, 14), nil, link.Offload{}) {
				t.Error("sent without a peer")
			}
		})
	}
}

func TestToGuest(t *testing.T) {
	r := newRig(t)
	var want [][]byte
	add := func(header, used, pad int) {
		s := &r.e.out.slots
		i := len(want)
		h, p := pattern(header, uint64(2*i)), pattern(used, uint64(2*i+1))
		slot := &s[i%4]
		copy(slot.Header, h)
		if used > 0 {
			copy(slot.Payload[0], p)
		}
		slot.Used = used
		want = append(want, append(append(h, p...), make([]byte, pad)...))
	}
	if n := len(r.e.Reserve(54, 1460, 4)); n != 4 {
		t.Fatalf("%d slots", n)
	}
	add(54, 1460, 0)
	add(54, 700, 0) // shorter than reserved in the middle
	add(54, 0, 6)
	add(54, 1459, 0)
	r.e.Commit(4)
	r.e.Reserve(42, 0, 4)
	add(42, 0, 18)
	r.e.Commit(1)
	r.e.Reserve(14, 100, 2)
	r.e.Commit(0)
	if n := r.e.Stats().Writes; n != 0 {
		t.Errorf("%d writes before the end of the turn", n)
	}
	r.turn()
	if n := r.e.Stats().Writes; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	got := unframe(t, r.get())
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("frame %d: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
	if s := r.e.Stats(); s.RxFrames != 5 || s.RxMoved != 2 {
		t.Errorf("stats %+v", s)
	}
}

// TestBackPressure has a peer that does not read: the buffer fills, nothing is
// lost, and Writable comes once there is room.
func TestBackPressure(t *testing.T) {
	r := newRig(t)
	sent := 0
	send := func() bool {
		b := pattern(1500, uint64(sent))
		ok := link.Send(r.e, b[:54], b[54:], link.Offload{})
		if ok {
			sent++
		}
		return ok
	}
	for turns := 0; turns < 20; turns++ {
		for send() {
		}
		r.turn()
	}
	if r.h.Writables > 20 || !r.e.conn.wantOut || r.e.out.to-r.e.out.from < outSize/2 {
		t.Fatalf("%d Writable, waiting %v, %d buffered", r.h.Writables, r.e.conn.wantOut, r.e.out.to-r.e.out.from)
	}
	before := r.loop.Stats().Events
	for range 10 {
		r.turn()
	}
	if n := r.loop.Stats().Events - before; n != 0 {
		t.Errorf("%d events while nothing can be written", n)
	}
	full := sent
	r.h.OnWritable = func() {
		for range 50 {
			send()
		}
	}
	var wire []byte
	for len(wire) < (full+50)*1504 {
		wire = append(wire, r.get()...)
		r.turn()
	}
	if sent < full+50 {
		t.Error("no Writable after the peer has read")
	}
	for i, f := range unframe(t, append(wire, r.get()...)) {
		if !bytes.Equal(f, pattern(1500, uint64(i))) {
			t.Fatalf("frame %d differs", i)
		}
	}
}

// TestBurst fills more than the buffer in one turn while the peer has room: the
// buffer is written on the way, or Writable comes in the next turn.
func TestBurst(t *testing.T) {
	r := newRig(t)
	for range 3 {
		for len(r.e.Reserve(54, 1446, 64)) == 64 {
			for i := range 64 {
				r.e.out.slots[i].Used = 1446
			}
			r.e.Commit(64)
		}
		r.e.Commit(0)
		r.h.Writables = 0
		for i := 0; i < 100 && r.h.Writables == 0; i++ {
			r.turn()
			r.get()
		}
		if r.h.Writables != 1 {
			t.Fatalf("%d Writable after a short reservation", r.h.Writables)
		}
	}
}

func TestPeerLeaves(t *testing.T) {
	r := newRig(t)
	r.put(append(framed(make([]byte, 20)), 0, 0)) // and half a length
	link.Send(r.e, make([]byte, 14), nil, link.Offload{})
	unix.Shutdown(r.peer, unix.SHUT_RDWR)
	for range 3 {
		r.turn()
	}
	if r.h.Downs != 1 || r.e.Connected() {
		t.Errorf("downs %d, connected %v", r.h.Downs, r.e.Connected())
	}
}

// TestPeerReadsNoMore has a peer that closes only its reading half: there is no
// end of file to say so.
func TestPeerReadsNoMore(t *testing.T) {
	r := newRig(t)
	unix.Shutdown(r.peer, unix.SHUT_RD)
	link.Send(r.e, make([]byte, 14), nil, link.Offload{})
	for range 3 {
		r.turn()
	}
	if r.h.Downs != 1 || r.e.Connected() {
		t.Errorf("downs %d, connected %v", r.h.Downs, r.e.Connected())
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.sock")
	loop, h := newLoop(t), &linktest.Handler{}
	var logged int
	open := func() (*Endpoint, error) {
		return New(Config{Path: path, FD: -1, Log: func(string, ...any) { logged++ }}, h, loop)
	}
	stale, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err := unix.Bind(stale, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(stale)
	e, err := open() // over what a dead process left
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := open(); err == nil {
		t.Error("took the socket of a live process")
	}
	dial := func() int {
		t.Helper()
		fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			loop.Turn(0)
		}
		return fd
	}
	one := dial()
	if len(h.Ups) != 1 || !e.Connected() {
		t.Fatalf("%d ups: whoever looked whether we live must not be the peer", len(h.Ups))
	}
	two := dial()
	if n, err := unix.Read(two, make([]byte, 1)); n != 0 || err != nil || len(h.Ups) != 1 || !e.Connected() {
		t.Errorf("second peer: read %d, %v; %d ups", n, err, len(h.Ups))
	}
	unix.Close(one)
	three := dial() // in the same turn as the first peer's end
	if len(h.Ups) != 2 || !h.Ups[1].Fresh || h.Downs != 1 || !e.Connected() {
		t.Errorf("after the first left: %+v, %d downs", h.Ups, h.Downs)
	}
	if s := e.Stats(); s.Refused != 1 || logged == 0 {
		t.Errorf("stats %+v", s)
	}
	unix.Close(two)
	unix.Close(three)
	e.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("socket file after Close: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, []byte("precious"), 0o644)
	for name, c := range map[string]Config{
		"a file is there": {Path: file, FD: -1},
		"no directory":    {Path: filepath.Join(dir, "none", "s"), FD: -1},
		"path and fd":     {Path: file, FD: 0},
		"neither":         {FD: -1},
		"not a socket":    {FD: 0},
		"MTU":             {Path: filepath.Join(dir, "s"), FD: -1, MTU: 67},
		"path too long":   {Path: filepath.Join(dir, string(bytes.Repeat([]byte{'x'}, 200))), FD: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := New(c, &linktest.Handler{}, newLoop(t)); err == nil {
				e.Close()
				t.Error("accepted")
			} else {
				t.Log(err)
			}
		})
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Error("removed a file that is not a socket")
	}
}

func TestClientConnectsAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmm.sock")
	loop, h := newLoop(t), &linktest.Handler{}
	e, err := New(Config{Path: path, FD: -1, Client: true}, h, loop)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ln, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	defer unix.Close(ln)
	unix.Bind(ln, &unix.SockaddrUnix{Name: path})
	unix.Listen(ln, 1)
	for want := 1; want <= 2; want++ {
		deadline := time.Now().Add(3 * time.Second)
		for len(h.Ups) < want && time.Now().Before(deadline) {
			loop.Turn(100 * time.Millisecond)
		}
		fd, _, err := unix.Accept(ln)
		if err != nil || len(h.Ups) != want {
			t.Fatalf("connection %d: %v, %d ups", want, err, len(h.Ups))
		}
		unix.Close(fd)
	}
}

func TestHandlerPanicCostsThePeerOnly(t *testing.T) {
	r := newRig(t)
	r.h.OnFrames = func([]link.Frame) { panic("frame of death") }
	r.put(framed(make([]byte, 20)))
	if r.e.Connected() || r.h.Downs != 1 {
		t.Errorf("connected %v, downs %d", r.e.Connected(), r.h.Downs)
	}
}

func TestNoAllocation(t *testing.T) {
	r := newRig(t)
	r.h.Discard = true
	in := framed(make([]byte, 1514))
	header, payload := make([]byte, 54), make([]byte, 1446)
	sink := make([]byte, 1<<16)
	run := func() {
		unix.Write(r.peer, in)
		link.Send(r.e, header, payload, link.Offload{})
		r.loop.Turn(0)
		unix.Read(r.peer, sink)
	}
	run()
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("%v allocations per turn", n)
	}
}

func FuzzInput(f *testing.F) {
	f.Add(append(framed(make([]byte, 20)), framed(make([]byte, 5))...), uint8(3))
	f.Add([]byte{0, 0, 0, 0}, uint8(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint8(200))
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8) {
		// The reference reads the whole at once.
		var want [][]byte
		bad := false
		for rest := wire; len(rest) >= 4; {
			n := int(binary.BigEndian.Uint32(rest))
			if bad = n == 0 || n > link.MaxFrame; bad || n > len(rest)-4 {
				break
			}
			if n >= 14 {
				want = append(want, rest[4:4+n])
			}
			rest = rest[4+n:]
		}
		in := &input{buf: make([]byte, inSize)}
		var s Stats
		var got [][]byte
		lostIt := false
		for rest := wire; len(rest) > 0 && !lostIt; {
			n := copy(in.buf[in.to:], rest[:min(int(piece)+1, len(rest))])
			rest = rest[n:]
			in.to += n
			for {
				frames, v := in.batch(&s)
				for i := range frames {
					got = append(got, linktest.Flatten(&frames[i]).Data)
				}
				if len(frames) == 0 {
					lostIt = v == lost
					break
				}
			}
			in.settle()
		}
		if lostIt != bad || len(got) != len(want) {
			t.Fatalf("%d frames, lost %v; want %d, %v", len(got), lostIt, len(want), bad)
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d differs", i)
			}
		}
	})
}
