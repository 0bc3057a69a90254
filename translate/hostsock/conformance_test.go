package hostsock_test

import (
	"net/netip"
	"testing"
	"time"

	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/vring/eventloop"
)

func newKernel(t testing.TB) (*hostsock.Kernel, *eventloop.Loop) {
	t.Helper()
	l, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	k, err := hostsock.NewKernel(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.CloseAll(); l.Close() })
	return k, l
}

func TestKernelConforms(t *testing.T) {
	hostsocktest.Conformance(t, func(t *testing.T) hostsocktest.World {
		k, l := newKernel(t)
		fd, e := k.Listen(hostsock.TCP, netip.MustParseAddrPort("[::1]:0"), nil)
		if e == 0 {
			k.Close(fd, false)
		}
		return hostsocktest.World{Host: k, Net6: e == 0,
			Turn: func() {
				if err := l.Turn(2 * time.Millisecond); err != nil {
					t.Fatal(err)
				}
			},
			Refusing: func(v6 bool) netip.AddrPort {
				a := netip.MustParseAddrPort("127.0.0.1:0")
				if v6 {
					a = netip.MustParseAddrPort("[::1]:0")
				}
				fd, e := k.Listen(hostsock.TCP, a, nil)
				if e != 0 {
					t.Fatal(e)
				}
				defer k.Close(fd, false)
				a, _ = k.LocalAddr(fd)
				return a
			},
			SetBudget: k.SetMaxFDs,
		}
	})
}
