package tcp

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"guestwire/vnet/link/linktest"
)

// script reads a fuzzer's bytes as decisions; an empty script decides 0.
type script struct{ b []byte }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *script) n(n int) int { return int(s.byte()) % n }

func (s *script) u32() uint32 {
	var v [4]byte
	for i := range v {
		v[i] = s.byte()
	}
	return binary.LittleEndian.Uint32(v[:])
}

// near is a number at an interesting distance from x.
func (s *script) near(x uint32) uint32 {
	switch s.n(8) {
	case 0, 1, 2, 3:
		return x
	case 4:
		return x + uint32(s.byte())
	case 5:
		return x - uint32(s.byte())
	case 6:
		return x + s.u32()%200_000
	}
	return s.u32()
}

var flagSets = []string{"A", "PA", "A", "FA", "S", "SA", "R", "RA", "F", "", "SF", "UA", "SFRPAU"}

// guestSegment is a segment of the guest, anything from right to absurd. What is
// right it learns from the engine.
func (s *script) guestSegment(r *rig) linktest.Frame {
	d := side4(uint16(1 + s.n(4)))
	d.remotePort = 80 + uint16(s.n(2))
	if s.n(4) == 0 {
		d = side6(uint16(1 + s.n(2)))
	}
	var x seg
	x.flags = flagSets[s.n(len(flagSets))]
	k := frameKey(d)
	seq, ack := uint32(guestISN), uint32(0)
	if i, ok := r.flows.Lookup(&k); ok {
		c := r.e.conns.At(r.flows.At(i).Slot)
		seq = uint32(c.rcvNxt)
		ack = []uint32{uint32(c.nxt), uint32(c.una), uint32(c.max), uint32(c.una) + uint32(c.inFlight())/2}[s.n(4)]
		for range s.n(3) {
			a := s.near(uint32(c.una))
			x.sack = append(x.sack, [2]uint32{a, s.near(a + 1000)})
		}
	} else if s.n(2) == 0 {
		x.flags = "S"
	}
	x.seq, x.ack = s.near(seq), s.near(ack)
	x.wnd = uint16([]int{65535, 0, 1, 1000, int(s.byte()) << 8}[s.n(5)])
	x.data = pattern([]int{0, 0, 1, 100, 1400, 9000}[s.n(6)], s.byte())
	x.wscale = s.n(20) - 2
	x.mss = []int{0, 1460, 1, 65535}[s.n(4)]
	x.sackOK = s.n(2) == 0
	x.urg = uint16(s.byte())
	return r.frame(d, x)
}

func (s *script) hostAction(r *rig) {
	fds := r.k.FDs()
	if len(fds) == 0 {
		return
	}
	p := r.k.Peer(fds[s.n(len(fds))])
	switch s.n(9) {
	case 0:
		p.Connect(0)
	case 1:
		p.Connect([]syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ETIMEDOUT}[s.n(3)])
	case 2, 3:
		p.Send(pattern(int(s.u32()%100_000), 1))
	case 4:
		p.ReadAll()
	case 5:
		p.SetSendBuffer(int(s.byte()) << s.n(10))
	case 6:
		p.CloseWrite()
	case 7:
		p.Close()
	case 8:
		p.Reset()
	}
}

var failable = []string{"Dial", "Watch", "Writev", "Readv", "Peekv", "SetPeekOffset", "Discard", "Shutdown", "SocketError"}
var errnos = []syscall.Errno{syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE, syscall.ENOBUFS, syscall.EIO, syscall.EMFILE}

// act does one thing.
func (s *script) act(r *rig, fail bool) {
	switch s.n(12) {
	case 0, 1, 2, 3, 4:
		frames := make([]linktest.Frame, 0, 8)
		for range 1 + s.n(6) {
			frames = append(frames, s.guestSegment(r))
		}
		r.input(frames...)
	case 5, 6:
		s.hostAction(r)
	case 7, 8:
		r.k.Pump()
	case 9:
		r.time.Advance(time.Duration(s.u32()%(1<<s.n(24)+1)) * time.Millisecond)
	case 10:
		r.ep.Room = []int{0, 1, 5, linktest.Unlimited, linktest.Unlimited}[s.n(5)]
		r.ep.Short = false
		r.e.Writable()
	case 11:
		if fail {
			// An EAGAIN that is a lie is only told of reads and writes.
			m := failable[s.n(len(failable))]
			e := errnos[s.n(len(errnos))]
			if e == syscall.EAGAIN && (m == "SetPeekOffset" || m == "Discard" || m == "Watch") {
				e = syscall.EIO
			}
			r.k.FailNext(m, e)
		}
	}
}

func play(t *testing.T, b []byte) {
	s := &script{b}
	mode := s.byte()
	opts := []option{with(func(c *Config) {
		c.MaxHalfOpen, c.FlowRate = 4, 1000
		c.BufferMax = 64 * chunkSize
	}), few(6)}
	if mode&1 != 0 {
		opts = append(opts, noPeek)
	}
	if mode&2 != 0 {
		opts = append(opts, noCaps)
	}
	r := newRig(t, opts...)
	r.ep.Discard = true
	r.k.Serve(target4)
	if mode&4 != 0 {
		r.k.Serve(target6)
	}
	for steps := 0; len(s.b) > 0 && steps < 400; steps++ {
		s.act(r, mode&8 != 0)
		r.check()
		if t.Failed() {
			return
		}
	}
	// Whatever happened, it ends: time alone leaves nothing half-open, and a new
	// guest leaves nothing at all.
	r.ep.Room = linktest.Unlimited
	r.e.Writable()
	r.e.ResetAll()
	r.clean()
}

// FuzzTCPMachine plays a script of guest segments, host events, time and faults,
// and checks the engine's books after every step.
func FuzzTCPMachine(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(play)
}

var scripts = flag.Int("scripts", 300, "random scripts of TestScripts")

// TestScripts plays random scripts, those that a fuzzer would start with.
func TestScripts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range *scripts {
		b := make([]byte, 300+rng.IntN(2000))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		if play(t, b); t.Failed() {
			t.Fatalf("script %d: %x", i, b)
		}
	}
}
