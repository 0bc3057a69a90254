package udp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// loopback leads every destination to 127.0.0.1 or ::1.
type loopback struct{}

func (loopback) Outbound(proto uint8, dst wire.Addr, port uint16) (netip.AddrPort, forward.Verdict) {
	if dst.Is4() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), forward.Allow
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), port), forward.Allow
}

func (loopback) InboundSource(peer netip.AddrPort) wire.Addr { return world{}.InboundSource(peer) }

// kernelRig is an engine on a real loop and the machine's own kernel.
type kernelRig struct {
	rig
	loop *eventloop.Loop
	host *hostsock.Kernel
}

func newKernelRig(t testing.TB, caps link.Caps) *kernelRig {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	host, err := hostsock.NewKernel(loop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.CloseAll(); loop.Close() })
	r := &kernelRig{loop: loop, host: host}
	r.t, r.ep, r.wheel = t, linktest.NewEndpoint(t, caps), loop.Timers()
	r.port = &guest.Port{
		EP: r.ep, Caps: r.ep.Caps(), Up: true, MAC: guestMAC, OurMAC: ourMAC,
		Addr4: guest4, Addr6: guest6, Gateway4: gate4, Gateway6: gate6, Timers: r.wheel,
	}
	r.flows = flow.NewTable(4096, [16]byte{1})
	r.e = New(Config{}, Deps{Port: r.port, Host: host, Timers: r.wheel, Flows: r.flows, Policy: loopback{}})
	return r
}

// until turns the loop until ok.
func (r *kernelRig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Second); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("timeout: %s", what)
		}
		if err := r.loop.Turn(10 * time.Millisecond); err != nil {
			r.t.Fatal(err)
		}
	}
}

func listen(t testing.TB, network, a string) (*net.UDPConn, uint16) {
	t.Helper()
	c, err := net.ListenPacket(network, a)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	_ = c.(*net.UDPConn).SetReadBuffer(4 << 20)
	return c.(*net.UDPConn), uint16(c.LocalAddr().(*net.UDPAddr).Port)
}

// TestKernelEcho: runs reach a real socket datagram by datagram, and what it
// sends back reaches the guest; the guest's port is kept.
func TestKernelEcho(t *testing.T) {
	for _, c := range []struct {
		dst           wire.Addr
		network, addr string
	}{{remote4, "udp4", "127.0.0.1:0"}, {remote6, "udp6", "[::1]:0"}} {
		r := newKernelRig(t, linktest.AllCaps(1500))
		srv, port := listen(t, c.network, c.addr)
		sizes := []int{700, 700, 700, 700, 300, 0, 1400, 1400, 9000}
		var ds []dgram
		for i, n := range sizes {
			ds = append(ds, dgram{dst: c.dst, sport: 20123, dport: port, data: bytes.Repeat([]byte{byte(i)}, n)})
		}
		r.send(ds...)
		buf := make([]byte, 65536)
		for i, n := range sizes {
			k, from, err := srv.ReadFromUDPAddrPort(buf)
			if err != nil || k != n || k > 0 && buf[0] != byte(i) {
				t.Fatalf("datagram %d: %d bytes of %d, %v", i, k, n, err)
			}
			if from.Port() != 20123 {
				t.Fatalf("source port %d", from.Port())
			}
			if _, err := srv.WriteToUDPAddrPort(buf[:k], from); err != nil {
				t.Fatal(err)
			}
		}
		r.until("answers", func() bool { return r.stat("to_guest") == uint64(len(sizes)) })
		if s := r.host.Stats(); s.GSORuns < 2 {
			t.Errorf("%d GSO runs", s.GSORuns)
		}
		var total int
		for _, f := range r.ep.Take() {
			total += len(f.Data)
		}
		if total < 700*4+300+2800+9000 {
			t.Errorf("%d bytes of frames", total)
		}
	}
}

// TestKernelRefused: nobody listens on the port, and the guest hears of it.
func TestKernelRefused(t *testing.T) {
	r := newKernelRig(t, link.Caps{})
	c, port := listen(t, "udp4", "127.0.0.1:0")
	_ = c.Close()
	r.send(to(port, 20))
	r.until("port unreachable", func() bool { return r.ep.Count > 0 })
	if typ, code, from := r.icmp4(t); typ != 3 || code != 3 || from != "192.0.2.7" {
		t.Errorf("type %d code %d from %s", typ, code, from)
	}
}

// TestKernelServe: peers of a dual-stack socket, answers from the address they
// sent to.
func TestKernelServe(t *testing.T) {
	r := newKernelRig(t, link.Caps{})
	fd, e := r.host.Listen(hostsock.UDP, netip.MustParseAddrPort("[::]:0"), &hostsock.Options{})
	if e != 0 {
		t.Skip(e)
	}
	local, _ := r.host.LocalAddr(fd)
	if e := r.e.Serve(fd, local, wire.Addr{}, 6000); e != 0 {
		t.Fatal(e)
	}
	for _, to := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		c, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(to), local.Port()).String())
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = c.Close() }()
		fmt.Fprintf(c, "to %s", to)
		r.ep.Reset()
		r.until("datagram", func() bool { return r.ep.Count > 0 })
		got := r.read()
		if string(got[0].data) != "to "+to || got[0].dport != 6000 {
			t.Fatalf("%+v", got)
		}
		r.send(dgram{dst: got[0].src, sport: 6000, dport: got[0].sport, data: []byte("answer " + to)})
		buf := make([]byte, 100)
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := c.Read(buf) // a connected socket: only from where it sent to
		if err != nil || string(buf[:n]) != "answer "+to {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
}

// BenchmarkKernelTx is the whole way of a datagram from a frame in memory to a
// socket of this machine: parse, gather, sendmsg; a peer that reads is not
// included.
func BenchmarkKernelTx(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, flows := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("size=%d/flows=%d", size, flows), func(b *testing.B) {
				r := newKernelRig(b, link.Caps{})
				var fs []*link.Frame
				for range flows {
					_, port := listen(b, "udp4", "127.0.0.1:0")
					f := to(port, size).frame(b)
					f.Off = link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 6}
					fs = append(fs, f)
				}
				var p wire.Packet
				for b.Loop() {
					for i := range 256 {
						f := fs[i%flows]
						if wire.Parse(&p, f) == wire.OK {
							r.e.Input(&p, f)
						}
					}
					r.e.EndBatch()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/datagram")
				b.ReportMetric(float64(r.stat("drop_busy")+r.stat("drop_host")), "drops")
			})
		}
	}
}
