package stream

import (
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

func benchRig(b *testing.B) (*Endpoint, *linktest.Handler, int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(fds[1]) })
	loop, h := newLoop(b), &linktest.Handler{Discard: true}
	e, err := New(Config{FD: fds[0]}, h, loop)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	loop.Turn(0)
	return e, h, fds[1]
}

const benchFrames = 64

// BenchmarkFromGuest is 64 frames of 1,514 bytes in one read.
func BenchmarkFromGuest(b *testing.B) {
	e, h, peer := benchRig(b)
	var wire []byte
	for range benchFrames {
		wire = append(wire, framed(make([]byte, 1514))...)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		unix.Write(peer, wire)
		e.loop.Turn(0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(h.Count, 1)), "ns/frame")
}

// BenchmarkToGuest is 64 frames of 1,514 bytes in one write.
func BenchmarkToGuest(b *testing.B) {
	e, _, peer := benchRig(b)
	sink := make([]byte, 1<<20)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		slots := e.Reserve(54, 1460, benchFrames)
		for i := range slots {
			slots[i].Used = 1460
			slots[i].Off = link.Offload{}
		}
		e.Commit(len(slots))
		e.loop.Turn(0)
		unix.Read(peer, sink)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(e.Stats().RxFrames, 1)), "ns/frame")
}
