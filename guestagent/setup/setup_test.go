package setup

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
)

// fakeMachine is a machine in memory.
type fakeMachine struct {
	list    []card
	state   State
	gone    bool          // the link
	refuses map[Key]error // nil: accepts and does nothing
	after   func(Change)  // side effects
	applied int
}

func (m *fakeMachine) cards() ([]card, error) { return m.list, nil }

func (m *fakeMachine) read(link string, _, _ State) (State, error) {
	s := maps.Clone(m.state)
	if m.gone {
		maps.DeleteFunc(s, func(k Key, _ string) bool { return k.Kind != Hostname && k.Kind != DNS })
	}
	return s, nil
}

func (m *fakeMachine) apply(_ string, c Change) error {
	m.applied++
	if err, refused := m.refuses[c.Key]; refused {
		return err
	}
	m.state[c.Key] = c.To
	if m.after != nil {
		m.after(c)
	}
	return nil
}

func fake(t *testing.T) (*Setup, *fakeMachine) {
	s := New(Config{Dir: t.TempDir()})
	m := &fakeMachine{list: []card{{name: "eth0", real: true}}, state: State{{Link, "lo"}: "up", {Link, "eth0"}: "down", {MTU, ""}: "1500", {Hostname, ""}: "old"}}
	s.sys = m
	return s, m
}

func network(t *testing.T, cmdline string) *proto.Network {
	t.Helper()
	n, err := FromCmdline(cmdline)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func lines(list []Change) string {
	var s []string
	for _, c := range list {
		s = append(s, c.String())
	}
	return strings.Join(s, "\n")
}

// A configuration, the same again, another, and undo, as processes of their own.
func TestLife(t *testing.T) {
	s, m := fake(t)
	before := maps.Clone(m.state)
	for _, step := range []struct{ config, changes string }{
		{"guestwire.address=10.0.2.15/24 guestwire.gateway=10.0.2.2 guestwire.mtu=1400",
			"mtu: 1400, was 1500\nlink eth0: up, was down\naddress 10.0.2.15/24: added\nroute 0.0.0.0/0: via 10.0.2.2"},
		{"guestwire.address=10.0.2.15/24 guestwire.gateway=10.0.2.2 guestwire.mtu=1400", ""},
		{"guestwire.address=10.0.3.15/24 guestwire.gateway=10.0.3.2 guestwire.hostname=vm",
			"address 10.0.2.15/24: removed\nmtu: 1500, was 1400\naddress 10.0.3.15/24: added\nroute 0.0.0.0/0: via 10.0.3.2, was via 10.0.2.2\nhostname: vm, was old"},
		{"", "hostname: old, was vm\nroute 0.0.0.0/0: removed\naddress 10.0.3.15/24: removed\nlink eth0: down, was up"},
		{"", ""},
	} {
		again := New(s.c)
		again.sys = m
		var changes []Change
		var err error
		if step.config == "" {
			changes, err = again.Undo()
		} else {
			changes, err = again.Apply(t.Context(), network(t, step.config))
		}
		if got := lines(changes); err != nil || got != step.changes {
			t.Fatalf("%s: %v\n%s\nwant\n%s", step.config, err, got, step.changes)
		}
	}
	maps.DeleteFunc(m.state, func(_ Key, v string) bool { return v == "" })
	if !maps.Equal(m.state, before) {
		t.Errorf("in the end %v, before %v", m.state, before)
	}
}

func TestObstacles(t *testing.T) {
	config := "guestwire.address=10.0.2.15/24 guestwire.gateway=10.0.2.2 guestwire.offloads=rx-gro:on guestwire.hostname=vm"
	for _, c := range []struct {
		name string
		set  func(*fakeMachine)
		err  string
		made string // without the link
	}{
		{"none", func(*fakeMachine) {}, "", "offload rx-gro, address 10.0.2.15/24, route 0.0.0.0/0, hostname"},
		{"one fails, the others do not", func(m *fakeMachine) { m.refuses = map[Key]error{{Offload, "rx-gro"}: errors.New("no such feature")} },
			"offload rx-gro: on: no such feature", "address 10.0.2.15/24, route 0.0.0.0/0, hostname"},
		{"accepted and not done", func(m *fakeMachine) { m.refuses = map[Key]error{{Offload, "rx-gro"}: nil} },
			"offload rx-gro: on: the kernel or the device does not do it", "address 10.0.2.15/24, route 0.0.0.0/0, hostname"},
		{"a change takes another along", func(m *fakeMachine) {
			first := true
			m.after = func(c Change) {
				if c.Kind == Hostname && first {
					first = false
					delete(m.state, Key{Route, "0.0.0.0/0"})
				}
			}
		}, "", "offload rx-gro, address 10.0.2.15/24, route 0.0.0.0/0, hostname"},
		{"no card", func(m *fakeMachine) { m.list = nil }, "no network card is there", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, m := fake(t)
			c.set(m)
			changes, err := s.Apply(atOnce(t), network(t, config))
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			var made []string
			for _, ch := range changes {
				if ch.Kind != Link {
					made = append(made, strings.TrimSpace(string(ch.Kind)+" "+ch.Name))
				}
			}
			if got := strings.Join(made, ", "); got != c.made {
				t.Errorf("made %s, want %s", got, c.made)
			}
			if m.applied > 3*6 {
				t.Errorf("%d changes tried", m.applied)
			}
		})
	}
}

// atOnce waits for no card.
func atOnce(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// The card is waited for.
func TestLateCard(t *testing.T) {
	s, m := fake(t)
	late := &lateCards{m, 3}
	s.sys = late
	if _, err := s.Apply(t.Context(), network(t, "guestwire.mtu=1400")); err != nil || m.state[Key{MTU, ""}] != "1400" {
		t.Errorf("%v, %v", err, m.state)
	}
}

type lateCards struct {
	*fakeMachine
	looks int
}

func (l *lateCards) cards() ([]card, error) {
	if l.looks--; l.looks > 0 {
		return nil, nil
	}
	return l.list, nil
}

// What was set on a card that is gone has gone with it; the host name has not.
func TestCardGone(t *testing.T) {
	s, m := fake(t)
	if _, err := s.Apply(t.Context(), network(t, "guestwire.address=10.0.2.15/24 guestwire.hostname=vm")); err != nil {
		t.Fatal(err)
	}
	m.gone = true
	changes, err := s.Undo()
	if got := lines(changes); err != nil || got != "hostname: old, was vm" {
		t.Errorf("%v: %s", err, got)
	}
}

// Another card: the first is given back.
func TestOtherCard(t *testing.T) {
	s, m := fake(t)
	m.list = append(m.list, card{name: "eth1", real: true})
	m.state[Key{Link, "eth1"}] = "up"
	if _, err := s.Apply(t.Context(), network(t, "guestwire.link=eth0 guestwire.mtu=1400")); err != nil {
		t.Fatal(err)
	}
	changes, err := s.Apply(t.Context(), network(t, "guestwire.link=eth1 guestwire.hostname=vm"))
	if got := lines(changes); err != nil || got != "link eth0: down, was up\nmtu: 1500, was 1400\nhostname: vm, was old" {
		t.Errorf("%v: %s", err, got)
	}
}

func TestJournalUnreadable(t *testing.T) {
	s, _ := fake(t)
	if err := os.WriteFile(filepath.Join(s.c.Dir, "setup.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), network(t, "guestwire.mtu=1400")); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("%v", err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.yaml")
	for _, c := range []struct{ text, err string }{
		{"addresses: [10.0.2.15/24, 'fd67::15/64']\nroutes:\n- {to: 0.0.0.0/0, via: 10.0.2.2}\nmtu: 1400\noffloads: {tso: false}\nvsock_buffer: 65536\ndns: [10.0.2.3]\nsearch: [a.example]\n", ""},
		{"adresses: [10.0.2.15/24]\n", "adresses"},
		{"mtu: 20\n", "mtu: 20 is not within"},
		{"addresses: [10.0.2.15]\n", "10.0.2.15"},
		{"mtu: [\n", "net.yaml"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := FromFile(path)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: %v, want %q", c.text, err, c.err)
		case c.err == "" && (err != nil || n.Addresses[1] != netip.MustParsePrefix("fd67::15/64") || n.Routes[0].Via != netip.MustParseAddr("10.0.2.2") || n.Offloads["tso"] || n.VsockBuffer != 65536):
			t.Errorf("%v, %+v", err, n)
		}
	}
	if err := os.Truncate(path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(path); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a huge file: %v", err)
	}
}

// sends is a host that sends frames and then ends, or stays.
func sends(t *testing.T, stays bool, frames ...[]byte) net.Conn {
	host, guest := socketPair(t)
	go func() {
		for _, f := range frames {
			_, _ = host.Write(f)
		}
		if !stays {
			host.Close()
		}
	}()
	t.Cleanup(func() { host.Close() })
	return guest
}

func socketPair(t *testing.T) (a, b net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []*net.Conn{&a, &b} {
		f := os.NewFile(uintptr(fds[i]), "pair")
		if *c, err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return a, b
}

func config(t *testing.T, kind proto.Kind, id uint32, mtu int) []byte {
	b, err := proto.Append(nil, kind, id, &proto.Network{MTU: mtu})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The host is followed over its restarts; what is wrong ends a connection and is
// never taken.
func TestFollow(t *testing.T) {
	conns := []net.Conn{
		nil, // nobody there yet
		sends(t, false, config(t, proto.Config, 0, 1400), config(t, proto.Config, 0, 1410)),
		sends(t, true, config(t, proto.Setup, 0, 66666)),  // another kind
		sends(t, true, config(t, proto.Config, 1, 1499)),  // an answer to nothing
		sends(t, true, config(t, proto.Config, 0, 66666)), // a value that is none
		sends(t, true, config(t, proto.Config, 0, 1420)),
	}
	h := Host{Dial: func(context.Context) (net.Conn, error) {
		c := conns[0]
		conns = conns[1:]
		if c == nil {
			return nil, errors.New("nobody there")
		}
		return c, nil
	}}
	var got []int
	err := h.Follow(t.Context(), func(n *proto.Network) bool {
		got = append(got, n.MTU)
		return n.MTU != 1420
	})
	if err != nil || len(got) != 3 || got[0] != 1400 || got[1] != 1410 || got[2] != 1420 {
		t.Errorf("%v, %v", err, got)
	}
}

// Following ends with its context, while waiting to connect and while connected,
// and says why there was nothing.
func TestFollowEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	h := Host{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("nobody there") }}
	if err := h.Follow(ctx, nil); err == nil || err.Error() != "nobody there" {
		t.Errorf("%v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	h.Dial = func(context.Context) (net.Conn, error) { return sends(t, true, config(t, proto.Config, 0, 1400)), nil }
	err := h.Follow(ctx, func(*proto.Network) bool { cancel(); return true })
	if err == nil {
		t.Error("it ended as if it had been told to")
	}
}
