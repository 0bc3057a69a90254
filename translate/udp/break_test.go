package udp

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

// lostMemory is a guest whose memory is gone while bad is set.
type lostMemory struct {
	*linktest.Endpoint
	bad []byte
}

func (l *lostMemory) Reserve(header, payload, n int) []link.Slot {
	slots := l.Endpoint.Reserve(header, payload, n)
	if l.bad != nil {
		for i := range slots {
			slots[i].Payload = [][]byte{l.bad[:payload]}
		}
	}
	return slots
}

func unmapped(t *testing.T) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return b
}

// TestLostMemory: a fault while copying to the guest costs the flow that was
// served, and nothing else.
func TestLostMemory(t *testing.T) {
	r := newKernelRig(t, link.Caps{})
	ep := &lostMemory{Endpoint: r.ep}
	r.port.EP = ep
	srv, port := listen(t, "udp4", "127.0.0.1:0")
	r.send(dgram{dst: remote4, sport: 20001, dport: port, data: pattern(5)}, dgram{dst: remote4, sport: 20002, dport: port, data: pattern(5)})
	buf := make([]byte, 100)
	var from [2]netip.AddrPort
	for i := range from {
		_, from[i], _ = srv.ReadFromUDPAddrPort(buf)
	}
	ep.bad = unmapped(t)
	_, _ = srv.WriteToUDPAddrPort(pattern(9), from[0])
	r.until("fault", func() bool { return r.stat("faults") == 1 })
	ep.bad = nil
	if r.flows.Len() != 1 {
		t.Errorf("%d flows left", r.flows.Len())
	}
	_, _ = srv.WriteToUDPAddrPort(pattern(9), from[1])
	r.until("the other flow", func() bool { return r.ep.Count == 1 })
	same(t, payloads(r.read()), pattern(9))
}

// TestLostMemoryServed: a served socket is watched again.
func TestLostMemoryServed(t *testing.T) {
	r := newKernelRig(t, link.Caps{})
	ep := &lostMemory{Endpoint: r.ep}
	r.port.EP = ep
	fd, e := r.host.Listen(hostsock.UDP, netip.MustParseAddrPort("127.0.0.1:0"), &hostsock.Options{})
	if e != 0 {
		t.Skip(e)
	}
	local, _ := r.host.LocalAddr(fd)
	if e := r.e.Serve(fd, local, wire.Addr{}, 6000); e != 0 {
		t.Fatal(e)
	}
	c, err := net.Dial("udp", local.String())
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = c.Close() }()
	ep.bad = unmapped(t)
	_, _ = c.Write(pattern(9))
	r.until("fault", func() bool { return r.stat("faults") == 1 })
	ep.bad = nil
	time.Sleep(time.Millisecond)
	_, _ = c.Write(pattern(10))
	r.until("another datagram", func() bool { return r.ep.Count == 1 })
	same(t, payloads(r.read()), pattern(10))
	if r.stat("host_errors") != 0 {
		t.Error("the socket could not be watched again")
	}
}
