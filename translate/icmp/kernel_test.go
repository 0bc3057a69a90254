package icmp

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// loopback leads every destination to 127.0.0.1 or ::1.
type loopback struct{}

func (loopback) Outbound(proto uint8, dst wire.Addr, port uint16) (netip.AddrPort, forward.Verdict) {
	if dst.Is4() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0), forward.Allow
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), 0), forward.Allow
}

// TestKernelPing pings the machine itself, where it allows ping sockets.
func TestKernelPing(t *testing.T) {
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	host, err := hostsock.NewKernel(loop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.CloseAll(); loop.Close() })
	fd, e := host.Dial(hostsock.Ping, netip.MustParseAddrPort("127.0.0.1:0"), &hostsock.Options{})
	if e == syscall.EACCES || e == syscall.EPERM {
		t.Skip("ping sockets are forbidden here (net.ipv4.ping_group_range)")
	}
	host.Close(fd, false)
	port, ep := newPort(t)
	port.Timers = loop.Timers()
	r := &rig{t: t, ep: ep}
	r.e = New(Config{}, Deps{Port: port, Host: host, Timers: loop.Timers(), Flows: flow.NewTable(64, [16]byte{}), Policy: loopback{}})
	for _, dst := range []wire.Addr{remote4, remote6} {
		for seq := range uint16(3) {
			r.ping(dst, 0x4d4d, seq, 64, 56)
			before := ep.Count
			for end := time.Now().Add(2 * time.Second); ep.Count == before && time.Now().Before(end); {
				if err := loop.Turn(10 * time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			p := r.one()
			if p.src != dst || p.id != 0x4d4d || p.seq != seq || p.ttl == 0 || !bytes.Equal(p.data, pattern(56)) {
				t.Fatalf("%+v", p)
			}
		}
	}
}
