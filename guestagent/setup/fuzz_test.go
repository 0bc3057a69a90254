package setup

import (
	"maps"
	"strings"
	"testing"

	"guestwire/guestagent/proto"
)

// Whatever two command lines say, if it is accepted: applying it reaches what is
// wanted, applying it again changes nothing, the second replaces the first, and
// undoing leads back to where it began.
func FuzzApply(f *testing.F) {
	f.Add("guestwire.address=10.0.2.15/24,fd67::15/64 guestwire.gateway=10.0.2.2 guestwire.mtu=1400", "guestwire.address=10.0.2.15/24 guestwire.hostname=vm")
	f.Add("guestwire.offloads=tso:off,rx-gro:on guestwire.queues=2 guestwire.vsock-buffer=65536", "guestwire.route=10.1.0.0/16,10.0.2.9 guestwire.dns=10.0.2.3 guestwire.search=a.example")
	f.Fuzz(func(t *testing.T, first, second string) {
		s, m := fake(t)
		before := maps.Clone(m.state)
		for _, line := range []string{first, second} {
			n, err := FromCmdline(line)
			if err != nil || n == nil {
				continue
			}
			n.Link = ""
			applied(t, s, m, n)
		}
		if _, err := s.Undo(); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(m.state, func(_ Key, v string) bool { return v == "" })
		if !maps.Equal(m.state, before) {
			t.Fatalf("undone %v, before %v", m.state, before)
		}
	})
}

func applied(t *testing.T, s *Setup, m *fakeMachine, n *proto.Network) {
	changes, err := s.Apply(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if line := c.String(); !strings.HasPrefix(line, proto.Text(line)) { // which may be shorter
			t.Fatalf("a line that cannot be shown: %q", c.String())
		}
	}
	for key, v := range wanted(n, "eth0") {
		if m.state[key] != v {
			t.Fatalf("%v is %q, wanted %q", key, m.state[key], v)
		}
	}
	if again, err := s.Apply(t.Context(), n); err != nil || len(again) > 0 {
		t.Fatalf("the second time: %v, %v", again, err)
	}
}
