package forward

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

func rule(t *testing.T, proto hostsock.Proto, spec string) Rule {
	t.Helper()
	r, err := ParseSpec(proto, spec)
	if err != nil || len(r) != 1 {
		t.Fatalf("%s: %v, %v", spec, r, err)
	}
	return r[0]
}

// Forwards come and go while others stay, and what is gone leaves nothing behind.
func TestAddRemove(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("80")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 100 {
		for _, r := range []Rule{rule(t, hostsock.TCP, "8080-8082:90-92"), rule(t, hostsock.UDP, "53:5353")} {
			if err := l.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"tcp [::]:80 dual", "tcp [::]:8080 dual", "tcp [::]:8081 dual", "tcp [::]:8082 dual", "udp [::]:53 dual"}
		if got := b.opened(); !slices.Equal(got, want) {
			t.Fatalf("round %d: %q", round, got)
		}
		// Every socket leads to the port of its own rule.
		for _, x := range l.Bound() {
			if x.Local.Port() == 8081 && x.To.Port() != 91 || x.Local.Port() == 53 && x.To.Port() != 5353 || x.Local.Port() == 80 && x.To.Port() != 80 {
				t.Errorf("%v", x)
			}
		}
		if !l.Remove(rule(t, hostsock.TCP, "8080-8082:90-92")) || !l.Remove(rule(t, hostsock.UDP, "53:5353")) {
			t.Error("a rule that is there is not found")
		}
		if l.Remove(rule(t, hostsock.TCP, "8080-8082:90-92")) {
			t.Error("a rule is removed twice")
		}
	}
	if got := b.opened(); !slices.Equal(got, []string{"tcp [::]:80 dual"}) || len(l.Bound()) != 1 {
		t.Errorf("left: %q, %v", got, l.Bound())
	}
	if len(l.socks) != 5 || len(l.rules) != 3 || len(b.udp.served) != 0 {
		t.Errorf("%d sockets and %d rules have been kept, %d served", len(l.socks), len(l.rules), len(b.udp.served))
	}
	l.Close()
	if len(b.h.open) != 0 {
		t.Errorf("open after Close: %q", b.opened())
	}
}

// A port that cannot be had costs the whole rule, and nothing else.
func TestAddFails(t *testing.T) {
	b := newBench(t)
	l, err := b.listen("80")
	if err != nil {
		t.Fatal(err)
	}
	b.h.taken[8082] = syscall.EADDRINUSE
	if err := l.Add(rule(t, hostsock.TCP, "8080-8085")); err == nil || !strings.Contains(err.Error(), "8082") {
		t.Errorf("got %v", err)
	}
	if got := b.opened(); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
	l.c.MaxSockets = 2
	if l.Add(rule(t, hostsock.TCP, "8090-8091")) == nil || l.Add(rule(t, hostsock.TCP, "8090")) != nil {
		t.Error("the limit of sockets is not kept")
	}
}

// A socket that is closed while it is paused stays closed, even when its place is
// taken by another.
func TestRemovePaused(t *testing.T) {
	b := newBench(t)
	full := true
	b.c.Admit = func() bool { return !full }
	l, err := b.listen("80")
	if err != nil {
		t.Fatal(err)
	}
	r := rule(t, hostsock.TCP, "8080")
	if err := l.Add(r); err != nil {
		t.Fatal(err)
	}
	l.Ready(1, eventloop.In) // pauses it
	l.Remove(r)
	l.Ready(1, eventloop.In) // an event that was on its way
	if err := l.Add(rule(t, hostsock.TCP, "9090")); err != nil {
		t.Fatal(err)
	}
	b.w.Advance(b.w.Now() + eventloop.Time(time.Second))
	full = false
	b.h.waiting[l.socks[1].fd] = peers(1, "198.51.100.7")
	l.Ready(1, eventloop.In)
	if len(b.tcp.got) != 1 || !strings.HasSuffix(b.tcp.got[0], ":9090") {
		t.Errorf("%q", b.tcp.got)
	}
}

// Connections from the host's own loopback are offered elsewhere first; those of
// others, and those to an address of their own, are not.
func TestLocal(t *testing.T) {
	for _, tt := range []struct {
		spec, peer string
		take       bool
		offered    bool
	}{
		{"8080:80", "127.0.0.1", true, true},
		{"8080:80", "127.9.9.9", true, true},
		{"8080:80", "::ffff:127.0.0.1", true, true},
		{"8080:80", "::1", true, true},
		{"8080:80", "::1", false, true},
		{"8080:80", "198.51.100.7", true, false},
		{"8080:10.0.2.99/80", "127.0.0.1", true, false},
	} {
		b := newBench(t)
		offered := 0
		b.c.Local = func(fd hostsock.FD, v4 bool, port uint16) bool {
			offered++
			if port != 80 || v4 != netip.MustParseAddr(tt.peer).Unmap().Is4() {
				t.Errorf("%+v: port %d, IPv4 %v", tt, port, v4)
			}
			return tt.take
		}
		l, err := b.listen(tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		fd := l.socks[0].fd
		b.h.waiting[fd] = peers(1, tt.peer)
		b.h.open[1000] = "the connection"
		l.Ready(0, eventloop.In)
		if (offered == 1) != tt.offered {
			t.Errorf("%+v: offered %d times", tt, offered)
		}
		_, still := b.h.open[1000]
		if taken := tt.take && tt.offered; taken == still || taken == (len(b.tcp.got) == 1) {
			t.Errorf("%+v: open %v, translated %q", tt, still, b.tcp.got)
		}
	}
}
