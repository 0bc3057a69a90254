package dhcp

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

const agents = "ff02::1:2"

var (
	clientDUID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: guestMAC[:]}
	ourDUID    = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: ourMAC[:]}
	otherDUID  = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 9, 9, 9, 9, 9}}
)

func message6(t testing.TB, kind dhcpv6.MessageType, mods ...dhcpv6.Modifier) []byte {
	t.Helper()
	m, err := dhcpv6.NewMessage(mods...)
	if err != nil {
		t.Fatal(err)
	}
	m.MessageType = kind
	m.TransactionID = dhcpv6.TransactionID{1, 2, 3}
	return m.ToBytes()
}

func ia(addrs ...string) dhcpv6.Modifier {
	return func(d dhcpv6.DHCPv6) {
		o := &dhcpv6.OptIANA{IaId: [4]byte{9, 8, 7, 6}}
		for _, a := range addrs {
			o.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a)})
		}
		d.AddOption(o)
	}
}

func TestMessages6(t *testing.T) {
	const lease = "fd67:7765:7374::15"
	id, srv := dhcpv6.WithClientID(clientDUID), dhcpv6.WithServerID(ourDUID)
	foreign := dhcpv6.WithServerID(otherDUID)
	type M = []dhcpv6.Modifier
	const (
		adv = dhcpv6.MessageTypeAdvertise
		rep = dhcpv6.MessageTypeReply
	)
	tests := []struct {
		name   string
		kind   dhcpv6.MessageType
		mods   M
		dst    string
		reply  dhcpv6.MessageType // 0: none
		leases bool
		status iana.StatusCode // with reply, in the message; 255: none
		drop   []Drop
	}{
		{"solicit", dhcpv6.MessageTypeSolicit, M{id, ia()}, agents, adv, true, 255, nil},
		{"solicit with rapid commit", dhcpv6.MessageTypeSolicit, M{id, ia(), dhcpv6.WithRapidCommit}, agents, rep, true, 255, nil},
		{"solicit without client", dhcpv6.MessageTypeSolicit, M{ia()}, agents, 0, false, 0, []Drop{DropFormat}},
		{"solicit with server", dhcpv6.MessageTypeSolicit, M{id, srv, ia()}, agents, 0, false, 0, []Drop{DropFormat}},
		{"solicit by unicast", dhcpv6.MessageTypeSolicit, M{id, ia()}, "fe80::2", 0, false, 0, []Drop{DropFormat}},
		{"request", dhcpv6.MessageTypeRequest, M{id, srv, ia(lease)}, agents, rep, true, 255, nil},
		{"request to another server", dhcpv6.MessageTypeRequest, M{id, foreign, ia(lease)}, agents, 0, false, 0, []Drop{DropServer}},
		{"request to no server", dhcpv6.MessageTypeRequest, M{id, ia(lease)}, agents, 0, false, 0, []Drop{DropFormat}},
		{"request by unicast", dhcpv6.MessageTypeRequest, M{id, srv, ia(lease)}, "fe80::2", rep, false, iana.StatusUseMulticast, nil},
		{"renew", dhcpv6.MessageTypeRenew, M{id, srv, ia(lease)}, agents, rep, true, 255, nil},
		{"renew at another server", dhcpv6.MessageTypeRenew, M{id, foreign, ia(lease)}, agents, 0, false, 0, []Drop{DropServer}},
		{"rebind", dhcpv6.MessageTypeRebind, M{id, ia(lease)}, agents, rep, true, 255, nil},
		{"rebind with server", dhcpv6.MessageTypeRebind, M{id, srv, ia(lease)}, agents, 0, false, 0, []Drop{DropFormat}},
		{"confirm", dhcpv6.MessageTypeConfirm, M{id, ia(lease)}, agents, rep, false, iana.StatusSuccess, nil},
		{"confirm another link", dhcpv6.MessageTypeConfirm, M{id, ia("2001:db8::1")}, agents, rep, false, iana.StatusNotOnLink, nil},
		{"confirm nothing", dhcpv6.MessageTypeConfirm, M{id, ia()}, agents, 0, false, 0, []Drop{DropFormat}},
		{"release", dhcpv6.MessageTypeRelease, M{id, srv, ia(lease)}, agents, rep, false, iana.StatusSuccess, nil},
		{"decline", dhcpv6.MessageTypeDecline, M{id, srv, ia(lease)}, agents, rep, false, iana.StatusSuccess, nil},
		{"information", dhcpv6.MessageTypeInformationRequest, M{}, agents, rep, false, 255, nil},
		{"information for another server", dhcpv6.MessageTypeInformationRequest, M{foreign}, agents, 0, false, 0, []Drop{DropServer}},
		{"information with an address", dhcpv6.MessageTypeInformationRequest, M{ia()}, agents, 0, false, 0, []Drop{DropFormat}},
		{"advertise from the guest", dhcpv6.MessageTypeAdvertise, M{id, srv}, agents, 0, false, 0, []Drop{DropKind}},
		{"reconfigure from the guest", dhcpv6.MessageTypeReconfigure, M{id, srv}, agents, 0, false, 0, []Drop{DropKind}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			d := b.give(true, tt.dst, message6(t, tt.kind, tt.mods...))
			b.drops(tt.drop...)
			if tt.reply == 0 {
				if d != nil {
					t.Fatal("answered")
				}
				return
			}
			if d == nil {
				t.Fatal("no answer")
			}
			if d.src != "fe80::2" || d.dst != guestLL || d.srcPort != 547 || d.dstPort != 546 || d.eth.DstMAC.String() != guestMAC.String() {
				t.Errorf("%s:%d -> %s:%d at %s", d.src, d.srcPort, d.dst, d.dstPort, d.eth.DstMAC)
			}
			m, err := dhcpv6.MessageFromBytes(d.payload)
			if err != nil {
				t.Fatal(err)
			}
			if m.MessageType != tt.reply || m.TransactionID != (dhcpv6.TransactionID{1, 2, 3}) {
				t.Errorf("%s", m)
			}
			if m.Options.ServerID() == nil || !m.Options.ServerID().Equal(ourDUID) {
				t.Errorf("server %v", m.Options.ServerID())
			}
			if hasID := len(tt.mods) > 0; hasID && (m.Options.ClientID() == nil || !m.Options.ClientID().Equal(clientDUID)) {
				t.Errorf("client %v", m.Options.ClientID())
			}
			if st := m.Options.Status(); tt.status == 255 && st != nil || tt.status != 255 && (st == nil || st.StatusCode != tt.status) {
				t.Errorf("status %v", st)
			}
			if rapid := m.GetOneOption(dhcpv6.OptionRapidCommit) != nil; rapid != strings.Contains(tt.name, "rapid") {
				t.Errorf("rapid commit option: %v", rapid)
			}
			if !tt.leases {
				if len(m.Options.IANA()) > 0 {
					t.Errorf("%s", m)
				}
				return
			}
			o := m.Options.OneIANA()
			if o == nil || o.IaId != [4]byte{9, 8, 7, 6} || o.T1 != 12*time.Hour || o.T2 != 69120*time.Second {
				t.Fatalf("%v", o)
			}
			a := o.Options.Addresses()
			if len(a) != 1 || a[0].IPv6Addr.String() != lease || a[0].ValidLifetime != 24*time.Hour || a[0].PreferredLifetime != 24*time.Hour {
				t.Errorf("%v", a)
			}
			if bound := tt.reply == rep; bound != (b.port.Addr6 == addr(lease)) {
				t.Errorf("guest's address is %v", b.port.Addr6)
			}
		})
	}
}

func answer6(t *testing.T, b *bench, msg []byte) *dhcpv6.Message {
	t.Helper()
	d := b.give(true, agents, msg)
	if d == nil {
		t.Fatalf("no answer, drops %v", b.s.Stats().Drops)
	}
	m, err := dhcpv6.MessageFromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOptions6(t *testing.T) {
	m := answer6(t, newBench(t, nil), message6(t, dhcpv6.MessageTypeSolicit, dhcpv6.WithClientID(clientDUID), ia(),
		dhcpv6.WithFQDN(1, "x")))
	if s := m.Options.DNS(); len(s) != 1 || s[0].String() != "fd67:7765:7374::3" {
		t.Errorf("dns %v", s)
	}
	if l := m.Options.DomainSearchList(); l == nil || strings.Join(l.Labels, " ") != "example.com corp.example" {
		t.Errorf("search %v", l)
	}
	if m.Options.Preference() != 255 {
		t.Errorf("preference %d", m.Options.Preference())
	}
	// S refused: O and N (RFC 4704 6).
	if f := m.Options.FQDN(); f == nil || f.Flags != 6 || len(f.DomainName.Labels) != 1 || f.DomainName.Labels[0] != "guest.example.com" {
		t.Errorf("fqdn %v", f)
	}
	m = answer6(t, newBench(t, nil), message6(t, dhcpv6.MessageTypeInformationRequest))
	if len(m.Options.DNS()) != 1 || m.Options.FQDN() != nil {
		t.Errorf("%s", m)
	}
	m = answer6(t, newBench(t, func(c *Config) { c.DNS6, c.Search, c.FQDN = nil, nil, "" }),
		message6(t, dhcpv6.MessageTypeInformationRequest, dhcpv6.WithRequestedOptions(dhcpv6.OptionFQDN)))
	if len(m.Options.DNS()) != 0 || m.Options.FQDN() != nil || m.Options.DomainSearchList() != nil {
		t.Errorf("%s", m)
	}
}

// A wrong address ends, the lease is offered beside it; further associations get
// nothing.
func TestAssociations(t *testing.T) {
	msg := message6(t, dhcpv6.MessageTypeRenew, dhcpv6.WithClientID(clientDUID), dhcpv6.WithServerID(ourDUID),
		ia("fd67:7765:7374::99"), ia("fd67:7765:7374::15"), dhcpv6.WithIATA([4]byte{1}), dhcpv6.WithIAPD([4]byte{2}))
	m := answer6(t, newBench(t, nil), msg)
	all := m.Options.IANA()
	if len(all) != 2 {
		t.Fatalf("%s", m)
	}
	a := all[0].Options.Addresses()
	if len(a) != 2 || a[0].IPv6Addr.String() != "fd67:7765:7374::15" || a[0].ValidLifetime == 0 ||
		a[1].IPv6Addr.String() != "fd67:7765:7374::99" || a[1].ValidLifetime != 0 || a[1].PreferredLifetime != 0 {
		t.Errorf("first: %v", a)
	}
	if st := all[1].Options.Status(); len(all[1].Options.Addresses()) != 0 || st == nil || st.StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("second: %v", all[1])
	}
	if ta := m.Options.OneIATA(); ta == nil || ta.Options.Status().StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("temporary: %v", ta)
	}
	if pd := m.Options.OneIAPD(); pd == nil || pd.Options.Status().StatusCode != iana.StatusNoPrefixAvail {
		t.Errorf("prefix: %v", pd)
	}
}

func TestHostile6(t *testing.T) {
	raw := func(kind byte, options ...byte) []byte { return append([]byte{kind, 1, 2, 3}, options...) }
	id := []byte{0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0x15}
	with := func(kind byte, options ...byte) []byte { return append(raw(kind, id...), options...) }
	huge := append(raw(1, 0, 1, 0, 131), make([]byte, 131)...)
	tests := []struct {
		name string
		msg  []byte
		drop Drop
	}{
		{"empty", nil, DropShort},
		{"three bytes", []byte{1, 2, 3}, DropShort},
		{"type 0", with(0), DropKind},
		{"relayed", with(12), DropRelay},
		{"half an option", with(1, 0, 3), DropOption},
		{"option past the end", with(1, 0, 3, 0, 200, 1, 2, 3, 4), DropOption},
		{"option one byte past the end", with(1, 0, 8, 0, 3, 1, 2), DropOption},
		{"option four bytes past the end", with(1, 0, 8, 0, 6, 1, 2), DropOption},
		{"association without times", with(1, 0, 3, 0, 4, 1, 2, 3, 4), DropOption},
		{"inner option past the end", with(1, 0, 3, 0, 16, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 200), DropOption},
		{"inner address of 16 bytes", append(with(1, 0, 3, 0, 32, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 16), make([]byte, 16)...), DropOption},
		{"client of 131 bytes", huge, DropOption},
		{"empty client", raw(1, 0, 1, 0, 0), DropOption},
		{"empty FQDN", with(1, 0, 39, 0, 0), DropOption},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			if b.give(true, agents, tt.msg) != nil {
				t.Error("answered")
			}
			b.drops(tt.drop)
		})
	}
	// Many addresses in one: eight are looked at, and end.
	var addrs []string
	for i := range 30 {
		addrs = append(addrs, fmt.Sprintf("fd67:7765:7374::%x", 0x100+i))
	}
	m := answer6(t, newBench(t, nil), message6(t, dhcpv6.MessageTypeRebind, dhcpv6.WithClientID(clientDUID), ia(addrs...)))
	if n := len(m.Options.OneIANA().Options.Addresses()); n != 1+maxAddrs {
		t.Errorf("%d addresses in the answer", n)
	}
	// Hundreds of associations: four are looked at.
	many := message6(t, dhcpv6.MessageTypeSolicit, dhcpv6.WithClientID(clientDUID), ia())
	one := many[len(many)-16:]
	many = append(many, bytes.Repeat(one, 80)...)
	if m := answer6(t, newBench(t, nil), many); len(m.Options.IANA()) != maxIAs {
		t.Errorf("%d associations answered", len(m.Options.IANA()))
	}
}

// Every prefix of a rich message is answered or dropped under one reason, and
// what lay behind it in an earlier message does not come back.
func TestTruncated6(t *testing.T) {
	msg := message6(t, dhcpv6.MessageTypeRenew, dhcpv6.WithClientID(clientDUID), dhcpv6.WithServerID(ourDUID),
		dhcpv6.WithFQDN(1, "x"), dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer), ia("fd67:7765:7374::99"))
	b := newBench(t, nil)
	b.give(true, agents, msg)
	before := b.s.Stats()
	for n := range len(msg) {
		d := b.give(true, agents, msg[:n])
		after := b.s.Stats()
		var dropped uint64
		for i := range after.Drops {
			dropped += after.Drops[i] - before.Drops[i]
		}
		if (d != nil) == (dropped == 1) || dropped > 1 {
			t.Fatalf("%d bytes: answered %v, %d drops", n, d != nil, dropped)
		}
		if d != nil {
			if m, err := dhcpv6.MessageFromBytes(d.payload); err != nil || len(m.Options.IANA()) != 0 {
				t.Fatalf("%d bytes: %v %v", n, err, m)
			}
		}
		before = after
	}
}

func FuzzDHCPv6(f *testing.F) {
	id, srv := dhcpv6.WithClientID(clientDUID), dhcpv6.WithServerID(ourDUID)
	for _, kind := range []dhcpv6.MessageType{1, 3, 4, 5, 6, 8, 9, 11} {
		f.Add(message6(f, kind, id, srv, ia("fd67:7765:7374::99"), dhcpv6.WithFQDN(1, "x")))
		f.Add(message6(f, kind, id, ia("fd67:7765:7374::15")))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > 1400 {
			return
		}
		b := newBench(t, nil)
		d := b.give(true, agents, msg)
		if d == nil {
			return
		}
		// The client's DUID is opaque to a server (RFC 8415 11) and comes back as it
		// was; the codec is stricter.
		reply := d.payload
		if code, _, rest, ok := option6(reply[4:]); ok && code == opt6ClientID {
			reply = append(append([]byte(nil), reply[:4]...), rest...)
		}
		m, err := dhcpv6.MessageFromBytes(reply)
		if err != nil {
			t.Fatalf("our answer: %v\n% x", err, reply)
		}
		for _, o := range m.Options.IANA() {
			for _, a := range o.Options.Addresses() {
				if a.ValidLifetime > 0 && a.IPv6Addr.String() != "fd67:7765:7374::15" {
					t.Errorf("leased %s", a.IPv6Addr)
				}
			}
		}
	})
}
