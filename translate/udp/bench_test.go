package udp

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// nullHost takes everything and returns what it is told to, without allocating.
type nullHost struct {
	hostsock.Host
	fds   hostsock.FD
	sends int
	give  []hostsock.Message // of one Recv: N, SegSize and Addr
}

func (h *nullHost) Dial(hostsock.Proto, netip.AddrPort, *hostsock.Options) (hostsock.FD, syscall.Errno) {
	h.fds++
	return h.fds, 0
}
func (h *nullHost) Watch(hostsock.FD, eventloop.Events, eventloop.Source, uint32) syscall.Errno {
	return 0
}
func (h *nullHost) Again(hostsock.FD)       {}
func (h *nullHost) Close(hostsock.FD, bool) {}

func (h *nullHost) Send(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	h.sends++
	return len(m), 0
}

func (h *nullHost) Recv(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	n := 0
	for n < len(h.give) {
		m[n].N, m[n].SegSize, m[n].Addr = h.give[n].N, h.give[n].SegSize, h.give[n].Addr
		n++
	}
	h.give = nil
	if n == 0 {
		return 0, syscall.EAGAIN
	}
	return n, 0
}

func (h *nullHost) Errors(hostsock.FD, []byte) (hostsock.SockErr, syscall.Errno) {
	return hostsock.SockErr{}, syscall.EAGAIN
}

type bench struct {
	e    *Engine
	h    *nullHost
	ep   *linktest.Endpoint
	pkts []wire.Packet
	fs   []*link.Frame
}

func newBench(t testing.TB, caps link.Caps, flows, size int) *bench {
	b := &bench{h: &nullHost{}, ep: linktest.NewEndpoint(t, caps)}
	b.ep.Discard = true
	w := eventloop.NewWheel(0)
	port := &guest.Port{
		EP: b.ep, Caps: b.ep.Caps(), Up: true, MAC: guestMAC, OurMAC: ourMAC,
		Addr4: guest4, Addr6: guest6, Gateway4: gate4, Gateway6: gate6, Timers: w,
	}
	b.e = New(Config{}, Deps{Port: port, Host: b.h, Timers: w, Flows: flow.NewTable(1<<16, [16]byte{1}), Policy: world{}})
	for i := range flows {
		f := dgram{dst: remote4, sport: 40000, dport: uint16(1000 + i), data: pattern(size)}.frame(t)
		f.Off = link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 6}
		var p wire.Packet
		if v := wire.Parse(&p, f); v != wire.OK {
			t.Fatal(v)
		}
		b.fs, b.pkts = append(b.fs, f), append(b.pkts, p)
	}
	return b
}

// turn is one batch of 256 frames, round robin over the flows.
func (b *bench) turn(at int) {
	for i := range 256 {
		k := (at + i) % len(b.fs)
		b.e.Input(&b.pkts[k], b.fs[k])
	}
	b.e.EndBatch()
}

func TestNoAlloc(t *testing.T) {
	for name, caps := range capsList {
		for _, flows := range []int{1, 100, 1000} {
			b := newBench(t, caps, flows, 1000)
			for i := range 20 {
				b.turn(i * 256)
			}
			if n := testing.AllocsPerRun(50, func() { b.turn(0) }); n != 0 {
				t.Errorf("%s, %d flows, guest to host: %v allocations", name, flows, n)
			}
			give := []hostsock.Message{{N: 60000, SegSize: 1400}, {N: 1000}, {N: 5000}, {N: 0}}
			slot := b.e.lastConn.Index
			recv := func() {
				b.h.give = give
				b.e.Ready(slot, eventloop.In)
			}
			recv()
			if n := testing.AllocsPerRun(50, recv); n != 0 {
				t.Errorf("%s, host to guest: %v allocations", name, n)
			}
		}
	}
}

// BenchmarkOutbound is our own share of a datagram's way to the host, parsing
// and system calls left out.
func BenchmarkOutbound(b *testing.B) {
	for _, flows := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			r := newBench(b, link.Caps{}, flows, 64)
			for i := range 20 {
				r.turn(i * 256)
			}
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				r.turn(at)
				at += 256
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/datagram")
		})
	}
}

// BenchmarkInbound is our own share of the way to the guest, copy included.
func BenchmarkInbound(b *testing.B) {
	for name, caps := range capsList {
		b.Run(name, func(b *testing.B) {
			r := newBench(b, caps, 1, 64)
			r.turn(0)
			give := []hostsock.Message{{N: 46 * 1400, SegSize: 1400}}
			b.SetBytes(46 * 1400)
			b.ReportAllocs()
			for b.Loop() {
				r.h.give = give
				r.e.Ready(r.e.lastConn.Index, eventloop.In)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/46, "ns/datagram")
		})
	}
}
