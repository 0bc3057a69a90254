package wire

import (
	"net/netip"
	"testing"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		a                                          string
		is4, loop, multi, unspec, local, broadcast bool
	}{
		{a: "10.0.2.15", is4: true},
		{a: "127.9.0.1", is4: true, loop: true},
		{a: "0.0.0.0", is4: true, unspec: true},
		{a: "224.0.0.251", is4: true, multi: true},
		{a: "239.255.255.250", is4: true, multi: true},
		{a: "240.0.0.1", is4: true},
		{a: "169.254.169.254", is4: true, local: true},
		{a: "255.255.255.255", is4: true, broadcast: true},
		{a: "::", unspec: true},
		{a: "::1", loop: true},
		{a: "::2"},
		{a: "fe80::1", local: true},
		{a: "febf::1", local: true},
		{a: "fec0::1"},
		{a: "ff02::1", multi: true},
		{a: "2001:db8::1"},
	} {
		n := netip.MustParseAddr(c.a)
		a := FromNetip(n)
		if a.Is4() != c.is4 || a.IsLoopback() != c.loop || a.IsMulticast() != c.multi || a.IsUnspecified() != c.unspec ||
			a.IsLinkLocal() != c.local || a.IsBroadcast() != c.broadcast {
			t.Errorf("%s: 4 %v loop %v multi %v unspec %v local %v bcast %v", c.a,
				a.Is4(), a.IsLoopback(), a.IsMulticast(), a.IsUnspecified(), a.IsLinkLocal(), a.IsBroadcast())
		}
		if a.ToNetip() != n || a.String() != c.a {
			t.Errorf("%s comes back as %v", c.a, a)
		}
		if n.Is4() && Addr4(n.As4()) != a {
			t.Errorf("%s: Addr4 differs", c.a)
		}
	}
	if a := FromNetip(netip.MustParseAddr("::ffff:10.0.0.1")); a != FromNetip(netip.MustParseAddr("10.0.0.1")) {
		t.Error("a v4-mapped address is not the IPv4 address")
	}
	if FromNetip(netip.MustParseAddr("fe80::1%eth0")) != FromNetip(netip.MustParseAddr("fe80::1")) {
		t.Error("the zone stays")
	}
}

func TestAddrNoAlloc(t *testing.T) {
	n4, n6 := netip.MustParseAddr("10.0.2.15"), netip.MustParseAddr("2001:db8::1")
	if n := testing.AllocsPerRun(100, func() {
		if FromNetip(n4).ToNetip() != n4 || FromNetip(n6).AddrPort(5).Addr() != n6 {
			t.Fatal("differs")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestSeq(t *testing.T) {
	for _, c := range []struct {
		s, t Seq
		less bool
		diff int32
	}{
		{0, 0, false, 0},
		{1, 2, true, -1},
		{0xffffffff, 0, true, -1},
		{0, 0xffffffff, false, 1},
		{0xfffffff0, 0x10, true, -0x20},
		{0x7fffffff, 0, false, 0x7fffffff},
	} {
		if c.s.Less(c.t) != c.less || c.s.Diff(c.t) != c.diff || c.s.LessEq(c.t) != (c.less || c.s == c.t) {
			t.Errorf("%#x against %#x: %v %v", c.s, c.t, c.s.Less(c.t), c.s.Diff(c.t))
		}
		later := c.s
		if c.less {
			later = c.t
		}
		if c.s.Max(c.t) != later {
			t.Errorf("max of %#x and %#x", c.s, c.t)
		}
	}
	if s := Seq(0xfffffffe); s.Add(3) != 1 || Seq(1).Add(-3) != s || !Seq(1).InWindow(s, 4) || Seq(2).InWindow(s, 4) || s.InWindow(s, 0) {
		t.Error("arithmetic across the wrap")
	}
}
