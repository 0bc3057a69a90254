package hostsocktest

import (
	"net/netip"
	"syscall"
	"testing"
)

func TestFakeConforms(t *testing.T) {
	Conformance(t, func(t *testing.T) World {
		k := New(t)
		return World{Host: k, Net6: true,
			Turn: func() { k.Pump() },
			Refusing: func(v6 bool) netip.AddrPort {
				a := netip.MustParseAddrPort("127.0.0.1:9")
				if v6 {
					a = netip.MustParseAddrPort("[::1]:9")
				}
				k.Rule(a, syscall.ECONNREFUSED)
				return a
			},
			SetBudget: func(n int) { k.MaxFDs = n },
		}
	})
}
