package relay

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// joined returns the far ends of two sockets that a relay joins, and what tells
// how much processor time the relay has used. That is what methods are compared
// by: the rate depends on the benchmark's own ends as much as on the relay.
func joined(b *testing.B, c Config, network string) (from, to net.Conn, cpu func() time.Duration) {
	b.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		b.Fatal(err)
	}
	r := New(c, loop)
	from, a := connected(b, network)
	to, z := connected(b, network)
	if _, err := r.Start(Socket(a, Stream), Socket(z, Stream), nil); err != nil {
		b.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- loop.Run() }()
	b.Cleanup(func() {
		loop.Stop()
		<-ran
		r.Close()
		loop.Close()
		from.Close()
		to.Close()
	})
	return from, to, func() time.Duration {
		var ru unix.Rusage
		done := make(chan struct{})
		for loop.Do(func() { unix.Getrusage(unix.RUSAGE_THREAD, &ru); close(done) }) != nil {
		}
		<-done
		return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
}

// connected returns one end of a connection as a net.Conn, the other as a
// non-blocking descriptor.
func connected(b *testing.B, network string) (net.Conn, int) {
	b.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = b.TempDir() + "/s"
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	raw, err := s.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil || fd < 0 {
		b.Fatal(err)
	}
	return c, fd
}

// BenchmarkStream is how the method for streams was chosen: see doc.go.
func BenchmarkStream(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, c := range []Config{{PipeSize: 64 << 10}, {PipeSize: 256 << 10}, {PipeSize: 1 << 20}, {Copy: true}} {
			for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
				name := fmt.Sprintf("%s/pipe=%d", network, c.PipeSize)
				if c.Copy {
					name = network + "/copy"
				}
				b.Run(fmt.Sprintf("%s/write=%d", name, size), func(b *testing.B) { stream(b, c, network, size) })
			}
		}
	}
}

func stream(b *testing.B, c Config, network string, size int) {
	from, to, cpu := joined(b, c, network)
	b.SetBytes(int64(size))
	before := cpu()
	b.ResetTimer()
	go func() {
		buf := make([]byte, size)
		for range b.N {
			if _, err := from.Write(buf); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<20)
	for left := b.N * size; left > 0; {
		n, err := to.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		left -= n
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N*size/1024), "cpu-ns/KiB")
}

// BenchmarkRoundTrip is one byte there and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, c := range []Config{{}, {Copy: true}} {
			b.Run(fmt.Sprintf("%s/copy=%v", network, c.Copy), func(b *testing.B) {
				from, to, cpu := joined(b, c, network)
				go func() {
					var one [1]byte
					for {
						if _, err := to.Read(one[:]); err != nil {
							return
						}
						if _, err := to.Write(one[:]); err != nil {
							return
						}
					}
				}()
				var one [1]byte
				before := cpu()
				b.ResetTimer()
				for range b.N {
					from.Write(one[:])
					if _, err := from.Read(one[:]); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
