package hostsock_test

import (
	"syscall"
	"testing"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

type idle struct{}

func (idle) Ready(uint32, eventloop.Events) {}

func TestNoAllocations(t *testing.T) {
	k, l := newKernel(t)
	a, b := pair(t, k)
	k.Watch(b, eventloop.In|eventloop.Edge, idle{}, 0)
	data := make([]byte, 10_000)
	out := [][]byte{data[:100], data[100:9000]}
	in := scattered(16, 640)
	check := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	got := func(n int, e syscall.Errno) {
		if n == 0 || e != 0 {
			t.Fatal(n, e)
		}
	}
	check("stream", func() {
		got(k.Writev(a, out, true))
		got(k.Writev(a, out, false))
		if l.Turn(0) != nil {
			t.Fatal("turn")
		}
		k.SetPeekOffset(b, 0)
		got(k.Peekv(b, in))
		k.Info(a)
		got(k.Discard(b, 4000))
		for n := 18000 - 4000; n > 0; {
			m, e := k.Readv(b, in)
			got(m, e)
			n -= m
		}
		k.SocketError(a)
		k.LocalAddr(a)
		k.Rewatch(b, eventloop.In|eventloop.Edge)
		k.Again(b)
	})
	for _, addr := range []string{"127.0.0.1", "::1"} {
		ip := lo4
		if addr == "::1" {
			ip = lo6
		}
		s, to := listen(t, k, hostsock.UDP, at(ip), nil)
		c := dial(t, k, hostsock.UDP, to)
		rm := make([]hostsock.Message, 8)
		for i := range rm {
			rm[i].Bufs = [][]byte{make([]byte, 65535)}
		}
		sm := []hostsock.Message{{Bufs: out}, {Bufs: out, SegSize: 1000}, {Bufs: out, TTL: 3, TOS: 4}}
		back := make([]hostsock.Message, 1)
		back[0].Bufs = out
		check("datagrams "+addr, func() {
			got(k.Send(c, sm))
			n, e := k.Recv(s, rm)
			got(n, e)
			back[0].Addr, back[0].Local = rm[0].Addr, rm[0].Local
			got(k.Send(s, back))
			got(k.Recv(c, rm))
			k.Errors(c, data)
		})
		k.ForbidGSO(c)
		check("runs singly "+addr, func() {
			got(k.Send(c, sm))
			for n := 0; n < 11; {
				m, e := k.Recv(s, rm)
				got(m, e)
				n += m
			}
		})
	}
}

func scattered(n, size int) [][]byte {
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = make([]byte, size)
	}
	return bufs
}

// 1400-byte datagrams over loopback, one by one, in batches, and in runs.
func BenchmarkUDP(b *testing.B) {
	for _, c := range []struct {
		name       string
		batch, run int
	}{{"single", 1, 1}, {"batch32", 32, 1}, {"run44", 1, 44}, {"run44x2", 2, 44}} {
		b.Run(c.name, func(b *testing.B) {
			k, _ := newKernel(b)
			s, to := listen(b, k, hostsock.UDP, at(lo4), nil)
			d := dial(b, k, hostsock.UDP, to)
			sm, rm := make([]hostsock.Message, c.batch), make([]hostsock.Message, c.batch+1)
			for i := range sm {
				sm[i].Bufs = [][]byte{make([]byte, 1400*c.run)}
				if c.run > 1 {
					sm[i].SegSize = 1400
				}
			}
			for i := range rm {
				rm[i].Bufs = [][]byte{make([]byte, 65535)}
			}
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				if n, e := k.Send(d, sm); n != c.batch {
					b.Fatal(n, e)
				}
				for want := 1400 * c.batch * c.run; want > 0; {
					n, e := k.Recv(s, rm)
					if e != 0 {
						b.Fatal(e, want)
					}
					for i := range n {
						want -= rm[i].N
						bytes += rm[i].N
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.batch*c.run), "ns/datagram")
			b.ReportMetric(float64(bytes)*8/float64(b.Elapsed().Nanoseconds()), "Gbit/s")
		})
	}
}

// The host-to-guest path: 64 KiB peeked into 44 buffers, then discarded.
func BenchmarkTCPPeekDiscard(b *testing.B) {
	k, _ := newKernel(b)
	if !k.CanPeek() {
		b.Skip("no SO_PEEK_OFF")
	}
	x, y := pair(b, k)
	data := [][]byte{make([]byte, 1<<16)}
	in := scattered(44, 1<<16/44+1)
	b.SetBytes(1 << 16)
	b.ReportAllocs()
	for b.Loop() {
		if n, e := k.Writev(x, data, false); n != 1<<16 {
			b.Fatal(n, e)
		}
		for n := 0; n < 1<<16; {
			m, e := k.Peekv(y, in)
			if e != 0 && e != syscall.EAGAIN {
				b.Fatal(e)
			}
			n += m
		}
		for n := 1 << 16; n > 0; {
			m, e := k.Discard(y, n)
			if e != 0 {
				b.Fatal(e)
			}
			n -= m
		}
	}
	b.ReportMetric(float64(b.N)*8*(1<<16)/float64(b.Elapsed().Nanoseconds()), "Gbit/s")
}

func BenchmarkTCPInfo(b *testing.B) {
	k, _ := newKernel(b)
	x, _ := pair(b, k)
	for b.Loop() {
		k.Info(x)
	}
}

func BenchmarkDialAcceptClose(b *testing.B) {
	k, _ := newKernel(b)
	l, to := listen(b, k, hostsock.TCP, at(lo4), nil)
	for b.Loop() {
		c := dial(b, k, hostsock.TCP, to)
		s, _, _, e := k.Accept(l)
		if e != 0 {
			b.Fatal(e)
		}
		k.Close(c, true)
		k.Close(s, false)
	}
}
