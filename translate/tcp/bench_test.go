package tcp

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// sink is a Host that takes and gives without end or memory of its own.
type sink struct {
	hostsock.Host     // what is not defined here is not called
	ready         int // bytes that can be read
	wrote, read   int
	noPeek        bool
	short         int // Writev takes at most so much, 0: all
}

func (s *sink) CanPeek() bool { return !s.noPeek }
func (s *sink) Writev(_ hostsock.FD, b [][]byte, _ bool) (int, syscall.Errno) {
	n := length(b)
	if s.short > 0 {
		n = min(n, s.short)
	}
	s.wrote += n
	return n, 0
}
func (s *sink) Peekv(_ hostsock.FD, b [][]byte) (int, syscall.Errno) {
	n := min(length(b), s.ready)
	if n == 0 {
		return 0, syscall.EAGAIN
	}
	s.ready -= n
	s.read += n
	return n, 0
}
func (s *sink) Readv(fd hostsock.FD, b [][]byte) (int, syscall.Errno) { return s.Peekv(fd, b) }
func (s *sink) Discard(_ hostsock.FD, n int) (int, syscall.Errno)     { return n, 0 }
func (s *sink) SetPeekOffset(hostsock.FD, int) syscall.Errno          { return 0 }
func (s *sink) Again(hostsock.FD)                                     {}
func (s *sink) Close(hostsock.FD, bool)                               {}
func (s *sink) SetKeepalive(hostsock.FD) syscall.Errno                { return 0 }
func (s *sink) SocketError(hostsock.FD) syscall.Errno                 { return 0 }
func (s *sink) Watch(hostsock.FD, eventloop.Events, eventloop.Source, uint32) syscall.Errno {
	return 0
}
func (s *sink) Dial(hostsock.Proto, netip.AddrPort, *hostsock.Options) (hostsock.FD, syscall.Errno) {
	return 7, 0
}

// bench is an established connection on a sink, and a packet to change.
type bench struct {
	*rig
	s *sink
	c *conn
	p wire.Packet
	f link.Frame
}

func newBench(t testing.TB, payload int, opts ...option) *bench {
	b := &bench{s: &sink{}}
	b.rig = newRig(t, opts...)
	b.s.noPeek = b.k.NoPeek
	b.e.host, b.e.peeks = b.s, !b.s.noPeek
	b.ep.Discard = true
	d := side4(1)
	b.input(b.frame(d, seg{flags: "S", seq: guestISN, mss: 1460, wscale: 7, sackOK: true, wnd: 65535}))
	k := frameKey(d)
	i, _ := b.flows.Lookup(&k)
	b.c = b.e.conns.At(b.flows.At(i).Slot)
	b.e.Ready(b.c.slot, eventloop.Out)
	b.input(b.frame(d, seg{flags: "A", seq: guestISN + 1, ack: uint32(b.c.max), wnd: 65535}))
	if b.c.state != Established {
		t.Fatal(b.c.state)
	}
	fr := b.frame(d, seg{flags: "PA", seq: guestISN + 1, ack: uint32(b.c.max), wnd: 65535, data: make([]byte, payload)})
	b.f = linktest.Batch(4096, fr)[0]
	if v := wire.Parse(&b.p, &b.f); v != wire.OK {
		t.Fatal(v)
	}
	return b
}

// upload is one frame of the guest with payload, and the batch's end.
func (b *bench) upload(frames int) {
	for range frames {
		b.p.TCP.Seq, b.p.TCP.Ack = b.c.rcvNxt, b.c.una
		b.e.Input(&b.p, &b.f)
	}
	b.e.EndBatch()
}

// download is n bytes for the guest, and its ACK.
func (b *bench) download(n int) {
	b.s.ready = n
	b.e.Ready(b.c.slot, eventloop.In)
	b.p.TCP.Seq, b.p.TCP.Ack = b.c.rcvNxt, b.c.max
	b.e.Input(&b.p, &b.f)
	b.e.EndBatch()
}

// The data path does not allocate.
func TestNoAllocation(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []option
		size int
		f    func(b *bench)
	}{
		{"upload 64K", nil, 60000, func(b *bench) { b.upload(4) }},
		{"upload 1400", nil, 1400, func(b *bench) { b.upload(16) }},
		{"upload staged", nil, 30000, func(b *bench) {
			b.s.short = 10000
			b.upload(1)
			b.s.short = 0
			b.e.Ready(b.c.slot, eventloop.Out)
		}},
		{"out of order", nil, 1400, func(b *bench) {
			b.p.TCP.Seq, b.p.TCP.Ack = b.c.rcvNxt+1400, b.c.una
			b.e.Input(&b.p, &b.f)
			b.e.EndBatch()
			b.upload(1)
		}},
		{"download 64K", nil, 0, func(b *bench) { b.download(60000) }},
		{"download small", nil, 0, func(b *bench) { b.download(100) }},
		{"download plain", []option{noCaps}, 0, func(b *bench) { b.download(60000) }},
		{"download copy", []option{noPeek}, 0, func(b *bench) { b.download(60000) }},
		{"lost", nil, 0, func(b *bench) {
			b.s.ready = 60000
			b.e.Ready(b.c.slot, eventloop.In)
			b.s.ready = 60000
			b.time.Advance(time.Second)
			b.p.TCP.Seq, b.p.TCP.Ack = b.c.rcvNxt, b.c.max
			b.s.ready = 0
			b.e.Input(&b.p, &b.f)
			b.e.EndBatch()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.size, tt.opts...)
			for range 50 {
				tt.f(b)
			}
			if n := testing.AllocsPerRun(100, func() { tt.f(b) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
			if b.c.state != Established {
				t.Errorf("state %v", b.c.state)
			}
		})
	}
}

// An idle connection costs less than a KiB of memory, with its flow and timer.
func TestIdleMemory(t *testing.T) {
	const n = 10_000
	var before, after runtime.MemStats
	s := &sink{}
	r := newRig(t, with(func(c *Config) { c.FlowRate, c.MaxHalfOpen = n, n }))
	r.e.host, r.e.peeks, r.ep.Discard = s, true, true
	b := newBench(t, 0)
	runtime.GC()
	runtime.ReadMemStats(&before)
	var p wire.Packet
	for i := range n {
		p = b.p
		p.SrcPort, p.TCP.Flags, p.TCP.Seq, p.TCP.WScale = uint16(1+i), wire.SYN, 1, 7
		r.e.Input(&p, &b.f)
		k := flow.Key{Guest: p.Src, Remote: p.Dst, GuestPort: p.SrcPort, RemotePort: p.DstPort, Proto: 6}
		fl, _ := r.flows.Lookup(&k)
		c := r.e.conns.At(r.flows.At(fl).Slot)
		r.e.Ready(c.slot, eventloop.Out)
		p.TCP.Flags, p.TCP.Seq, p.TCP.Ack = wire.ACK, 2, c.max
		r.e.Input(&p, &b.f)
		r.e.EndBatch()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if r.e.Stats().Established != n {
		t.Fatalf("%d established", r.e.Stats().Established)
	}
	if per := int(after.HeapAlloc-before.HeapAlloc) / n; per > 1024 {
		t.Errorf("%d bytes per idle connection", per)
	} else {
		t.Logf("%d bytes per idle connection", per)
	}
	runtime.KeepAlive(r)
}

// BenchmarkGuestToHost64K is a super-frame of the guest and its ACK.
func BenchmarkGuestToHost64K(b *testing.B) {
	x := newBench(b, 64240)
	b.SetBytes(64240)
	b.ReportAllocs()
	for b.Loop() {
		x.upload(1)
	}
}

// BenchmarkGuestToHost1448 is one of 32 frames of MTU size in a batch.
func BenchmarkGuestToHost1448(b *testing.B) {
	x := newBench(b, 1448)
	x.c.allow = 1 << 20
	x.upload(1)
	b.SetBytes(1448)
	b.ReportAllocs()
	for n := 0; n < b.N; n += 32 {
		x.upload(32)
	}
}

// BenchmarkHostToGuest64K is 64 KiB in one super-frame, and the guest's ACK.
func BenchmarkHostToGuest64K(b *testing.B) {
	x := newBench(b, 0)
	b.SetBytes(64240)
	b.ReportAllocs()
	for b.Loop() {
		x.download(64240)
	}
}

// BenchmarkHostToGuest1448 is 64 KiB in frames of MTU size with software
// checksums, and the guest's ACK.
func BenchmarkHostToGuest1448(b *testing.B) {
	x := newBench(b, 0, noCaps)
	b.SetBytes(64240)
	b.ReportAllocs()
	for b.Loop() {
		x.download(64240)
	}
}

// BenchmarkRequestResponse is a small segment each way.
func BenchmarkRequestResponse(b *testing.B) {
	x := newBench(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		x.download(100)
	}
}
