package setup

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"guestwire/guestagent/proto"
)

func TestPlan(t *testing.T) {
	addr := func(s string) Key { return Key{Address, s} }
	def := Key{Route, "0.0.0.0/0"}
	up := Key{Link, "eth0"}
	mtu, host := Key{MTU, ""}, Key{Hostname, ""}
	for _, c := range []struct {
		name              string
		want, have, first State
		changes           string
	}{
		{"nothing at all", State{}, State{}, State{}, ""},
		{"not ours", State{}, State{addr("10.9.9.9/24"): "set", mtu: "9000"}, State{}, ""},
		{"from scratch, in order",
			State{host: "vm", def: "via 10.0.2.2", addr("10.0.2.15/24"): "set", addr("10.0.2.16/24"): "set", up: "up", mtu: "1400", {Offload, "rx-gro"}: "off", {Queues, ""}: "4", {DNS, ""}: "nameserver 10.0.2.3\n"},
			State{up: "down", mtu: "1500", {Offload, "rx-gro"}: "on", {Queues, ""}: "1", host: "(none)"}, State{},
			`offload rx-gro: off, was on
queues: 4, was 1
mtu: 1400, was 1500
link eth0: up, was down
address 10.0.2.15/24: added
address 10.0.2.16/24: added
route 0.0.0.0/0: via 10.0.2.2
dns: nameserver 10.0.2.3
hostname: vm, was (none)`},
		{"already so", State{addr("10.0.2.15/24"): "set", mtu: "1500"}, State{addr("10.0.2.15/24"): "set", mtu: "1500"}, State{}, ""},
		{"already so, by us", State{mtu: "1400"}, State{mtu: "1400"}, State{mtu: "1500"}, ""},
		{"somebody else has changed it", State{mtu: "1400"}, State{mtu: "1450"}, State{mtu: "1500"}, "mtu: 1400, was 1450"},
		{"the host's new address: the old one goes first, what is not ours stays",
			State{addr("10.0.3.15/24"): "set", def: "via 10.0.3.2"},
			State{addr("10.0.2.15/24"): "set", addr("10.9.9.9/24"): "set", def: "via 10.0.2.2"},
			State{addr("10.0.2.15/24"): "", def: ""},
			`address 10.0.2.15/24: removed
address 10.0.3.15/24: added
route 0.0.0.0/0: via 10.0.3.2, was via 10.0.2.2`},
		{"not wanted any more becomes what it was", State{}, State{mtu: "1400"}, State{mtu: "1500"}, "mtu: 1500, was 1400"},
		{"undo, in the order backwards", State{},
			State{host: "vm", def: "via 10.0.2.2", addr("10.0.2.15/24"): "set", up: "up"},
			State{host: "old", def: "via 192.0.2.1", addr("10.0.2.15/24"): "", up: "down"},
			`hostname: old, was vm
route 0.0.0.0/0: via 192.0.2.1, was via 10.0.2.2
address 10.0.2.15/24: removed
link eth0: down, was up`},
		{"undo, when it has gone by itself", State{}, State{}, State{addr("10.0.2.15/24"): ""}, ""},
		{"undo does not remove what was there before", State{}, State{addr("10.0.2.15/24"): "set"}, State{addr("10.0.2.15/24"): "set"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines []string
			for _, ch := range plan(c.want, c.have, c.first) {
				lines = append(lines, ch.String())
			}
			if got := strings.Join(lines, "\n"); got != c.changes {
				t.Errorf("planned:\n%s\nwant:\n%s", got, c.changes)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	n := &proto.Network{
		Addresses: []netip.Prefix{netip.MustParsePrefix("FD67::15/64")},
		Routes: []proto.Route{
			{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fe80::0:2")},
			{To: netip.MustParsePrefix("10.1.0.0/16")},
		},
		MTU: 1400, Hostname: "vm", Queues: 2, VsockBuffer: 65536,
		DNS: []netip.Addr{netip.MustParseAddr("10.0.2.3")}, Search: []string{"a.example", "b.example"},
		Offloads: map[string]bool{"tso": false, "rx-gro": true},
	}
	want := State{
		{Link, "lo"}: "up", {Link, "eth0"}: "up", {Address, "fd67::15/64"}: "set",
		{Route, "::/0"}: "via fe80::2", {Route, "10.1.0.0/16"}: "direct", {MTU, ""}: "1400", {Hostname, ""}: "vm", {Queues, ""}: "2",
		{DNS, ""}:                         "nameserver 10.0.2.3\nsearch a.example b.example\n",
		{Offload, "tx-tcp-segmentation"}:  "off",
		{Offload, "tx-tcp6-segmentation"}: "off", {Offload, "tx-tcp-ecn-segmentation"}: "off", {Offload, "rx-gro"}: "on",
		{VsockBuffer, ""}: "65536",
	}
	if got := wanted(n, "eth0"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant\n%v", got, want)
	}
	if got := wanted(&proto.Network{}, "eth0"); len(got) != 2 {
		t.Errorf("nothing wanted became %v", got)
	}
}

func TestChoose(t *testing.T) {
	veth, nic, nic2 := card{name: "veth0", mac: "02:00:00:00:00:01"}, card{name: "eth0", mac: "52:54:00:12:34:56", real: true}, card{name: "eth1", others: []string{"enp0s2"}, real: true}
	for _, c := range []struct {
		list       []card
		want, name string
		err        string
	}{
		{[]card{nic}, "", "eth0", ""},
		{[]card{veth, nic}, "", "eth0", ""},
		{[]card{veth}, "", "veth0", ""},
		{[]card{nic, nic2}, "", "", "more than one network card (eth0, eth1)"},
		{[]card{nic, nic2}, "eth1", "eth1", ""},
		{[]card{nic, nic2}, "enp0s2", "eth1", ""},
		{[]card{nic, nic2}, "52:54:00:12:34:56", "eth0", ""},
		{[]card{nic, nic2}, "52:54:00:AB:CD:EF", "", "there is eth0, eth1"},
		{nil, "", "", "no network card is there"},
		{nil, "eth0", "", "none at all"},
	} {
		name, err := choose(c.list, c.want)
		if name != c.name || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v of %v: %q, %v, want %q, %q", c.want, c.list, name, err, c.name, c.err)
		}
	}
}

func TestCmdline(t *testing.T) {
	n, err := FromCmdline("root=/dev/vda ro guestwire.address=10.0.2.15/24,fd67::15/64 guestwire.gateway=10.0.2.2,fd67::2 guestwire.route=10.1.0.0/16,10.0.2.9 guestwire.route=10.2.0.0/16 " +
		"guestwire.mtu=9000 guestwire.dns=10.0.2.3 guestwire.dns=fd67::3 guestwire.search=a.example guestwire.hostname=vm guestwire.link=eth1 guestwire.queues=4 guestwire.offloads=tso:off,gro:on guestwire.vsock-buffer=65536 quiet")
	if err != nil {
		t.Fatal(err)
	}
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	want := &proto.Network{
		Link: "eth1", Addresses: []netip.Prefix{p("10.0.2.15/24"), p("fd67::15/64")}, MTU: 9000, Hostname: "vm",
		Routes: []proto.Route{{To: p("0.0.0.0/0"), Via: a("10.0.2.2")}, {To: p("::/0"), Via: a("fd67::2")}, {To: p("10.1.0.0/16"), Via: a("10.0.2.9")}, {To: p("10.2.0.0/16")}},
		DNS:    []netip.Addr{a("10.0.2.3"), a("fd67::3")}, Search: []string{"a.example"}, Queues: 4,
		Offloads: map[string]bool{"tso": false, "gro": true}, VsockBuffer: 65536,
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("%+v\nwant\n%+v", n, want)
	}
	if n, err := FromCmdline("root=/dev/vda guestwireaddress=1"); n != nil || err != nil {
		t.Errorf("without our keys: %v, %v", n, err)
	}
	for line, want := range map[string]string{
		"guestwire.address=10.0.2.15":   "10.0.2.15: netip.ParsePrefix",
		"guestwire.adress=10.0.2.15/24": "the keys are address",
		"guestwire.mtu=big":             "invalid syntax",
		"guestwire.mtu=20":              "mtu: 20 is not within",
		"guestwire.offloads=tso":        "NAME:on",
		"guestwire.gateway=":            "unable to parse",
		"guestwire.hostname=a_b;c":      "hostname",
	} {
		if _, err := FromCmdline(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
