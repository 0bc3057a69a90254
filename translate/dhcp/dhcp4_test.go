package dhcp

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var xid = dhcpv4.TransactionID{0xde, 0xad, 0xbe, 0xef}

// client builds a message with the independent codec.
func client(t testing.TB, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	if kind != 0 {
		mods = append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind)}, mods...)
	}
	mods = append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(guestMAC[:]), dhcpv4.WithTransactionID(xid)}, mods...)
	m, err := dhcpv4.New(mods...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func opt(code uint8, v ...byte) dhcpv4.Modifier {
	return dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(code), v)
}

func requested(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
}

func serverID(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(ip)))
}

func ciaddr(ip string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(ip)) }

// The message exchanges of RFC 2131 3.1, 3.2, 4.3 and 4.4, RFC 4039, RFC 1534.
func TestExchanges(t *testing.T) {
	const bcast, bmac = "255.255.255.255", "ff:ff:ff:ff:ff:ff"
	mine := guestMAC.String()
	tests := []struct {
		name  string
		msg   dhcpv4.MessageType // 0: BOOTP
		mods  []dhcpv4.Modifier
		reply dhcpv4.MessageType // NONE with answered
		dst   string             // "": no answer
		mac   string
		yi    string
		lease bool
		drop  []Drop
	}{
		{name: "discover", msg: dhcpv4.MessageTypeDiscover, reply: dhcpv4.MessageTypeOffer, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "discover with broadcast flag", msg: dhcpv4.MessageTypeDiscover, mods: []dhcpv4.Modifier{dhcpv4.WithBroadcast(true)},
			reply: dhcpv4.MessageTypeOffer, dst: bcast, mac: bmac, yi: "10.0.2.15", lease: true},
		{name: "discover with a wish", msg: dhcpv4.MessageTypeDiscover, mods: []dhcpv4.Modifier{requested("192.168.1.5")},
			reply: dhcpv4.MessageTypeOffer, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "rapid commit", msg: dhcpv4.MessageTypeDiscover, mods: []dhcpv4.Modifier{opt(80)},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "selecting", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{serverID("10.0.2.2"), requested("10.0.2.15")},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "selecting another server", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{serverID("10.0.2.99"), requested("10.0.2.15")},
			drop: []Drop{DropServer}},
		{name: "selecting another address", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{serverID("10.0.2.2"), requested("10.0.2.16")},
			reply: dhcpv4.MessageTypeNak, dst: bcast, mac: bmac, yi: "0.0.0.0"},
		{name: "init-reboot", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{requested("10.0.2.15")},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "init-reboot from another network", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{requested("192.168.122.77")},
			reply: dhcpv4.MessageTypeNak, dst: bcast, mac: bmac, yi: "0.0.0.0"},
		{name: "renewing", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{ciaddr("10.0.2.15")},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "rebinding with broadcast flag", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{ciaddr("10.0.2.15"), dhcpv4.WithBroadcast(true)},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15", lease: true},
		{name: "renewing another address", msg: dhcpv4.MessageTypeRequest, mods: []dhcpv4.Modifier{ciaddr("10.0.2.77")},
			reply: dhcpv4.MessageTypeNak, dst: bcast, mac: bmac, yi: "0.0.0.0"},
		{name: "request without an address", msg: dhcpv4.MessageTypeRequest, drop: []Drop{DropFormat}},
		{name: "inform", msg: dhcpv4.MessageTypeInform, mods: []dhcpv4.Modifier{ciaddr("10.0.2.44")},
			reply: dhcpv4.MessageTypeAck, dst: "10.0.2.44", mac: mine, yi: "0.0.0.0"},
		{name: "inform without address", msg: dhcpv4.MessageTypeInform, drop: []Drop{DropFormat}},
		{name: "release", msg: dhcpv4.MessageTypeRelease, mods: []dhcpv4.Modifier{ciaddr("10.0.2.15"), serverID("10.0.2.2")}},
		{name: "decline", msg: dhcpv4.MessageTypeDecline, mods: []dhcpv4.Modifier{requested("10.0.2.15"), serverID("10.0.2.2")}},
		{name: "bootp", msg: 0, dst: "10.0.2.15", mac: mine, yi: "10.0.2.15"},
		{name: "offer from the guest", msg: dhcpv4.MessageTypeOffer, drop: []Drop{DropKind}},
		{name: "unknown type", msg: 200, drop: []Drop{DropKind}},
		{name: "relayed", msg: dhcpv4.MessageTypeDiscover, mods: []dhcpv4.Modifier{dhcpv4.WithGatewayIP(net.IPv4(10, 0, 2, 15))}, drop: []Drop{DropRelay}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			m := client(t, tt.msg, tt.mods...)
			d := b.give(false, "255.255.255.255", m.ToBytes())
			b.drops(tt.drop...)
			if tt.dst == "" {
				if d != nil {
					t.Fatal("answered")
				}
				return
			}
			if d == nil {
				t.Fatal("no answer")
			}
			if d.src != "10.0.2.2" || d.dst != tt.dst || d.srcPort != 67 || d.dstPort != 68 || d.eth.DstMAC.String() != tt.mac || d.eth.SrcMAC.String() != ourMAC.String() {
				t.Errorf("%s:%d -> %s:%d at %s", d.src, d.srcPort, d.dst, d.dstPort, d.eth.DstMAC)
			}
			r, err := dhcpv4.FromBytes(d.payload)
			if err != nil {
				t.Fatal(err)
			}
			if r.OpCode != dhcpv4.OpcodeBootReply || r.TransactionID != xid || !bytes.Equal(r.ClientHWAddr, guestMAC[:]) || r.Flags != m.Flags {
				t.Errorf("%s", r.Summary())
			}
			if r.MessageType() != tt.reply || r.YourIPAddr.String() != tt.yi {
				t.Errorf("%s for %s, want %s for %s", r.MessageType(), r.YourIPAddr, tt.reply, tt.yi)
			}
			if got := r.IPAddressLeaseTime(0); (got != 0) != tt.lease || tt.lease && got != 24*time.Hour {
				t.Errorf("lease time %v", got)
			}
			if tt.msg != 0 && r.ServerIdentifier().String() != "10.0.2.2" {
				t.Errorf("server %s", r.ServerIdentifier())
			}
			if rapid := r.Options.Has(dhcpv4.GenericOptionCode(80)); rapid != (tt.name == "rapid commit") {
				t.Errorf("rapid commit option: %v", rapid)
			}
			if acked := tt.reply == dhcpv4.MessageTypeAck && tt.lease; acked != (b.port.Addr4 == addr("10.0.2.15")) {
				t.Errorf("guest's address is %v", b.port.Addr4)
			}
		})
	}
}

func reply(t *testing.T, b *bench, m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	t.Helper()
	d := b.give(false, "255.255.255.255", m.ToBytes())
	if d == nil {
		t.Fatal("no answer")
	}
	r, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOptions(t *testing.T) {
	id := bytes.Repeat([]byte{0xc1}, 255)
	r := reply(t, newBench(t, nil), client(t, dhcpv4.MessageTypeDiscover, opt(57, 0x05, 0xdc), opt(61, id...), opt(81, 0x05, 0, 0)))
	if got := net.IP(r.SubnetMask()).String(); got != "255.255.255.0" {
		t.Errorf("mask %s", got)
	}
	if rt := r.Router(); len(rt) != 1 || rt[0].String() != "10.0.2.2" {
		t.Errorf("router %v", rt)
	}
	if s := r.DNS(); len(s) != 1 || s[0].String() != "10.0.2.3" {
		t.Errorf("dns %v", s)
	}
	if r.HostName() != "guest" || r.DomainName() != "example.com" {
		t.Errorf("names %q %q", r.HostName(), r.DomainName())
	}
	if l := r.DomainSearch(); l == nil || strings.Join(l.Labels, " ") != "example.com corp.example" {
		t.Errorf("search %v", l)
	}
	checks := []struct {
		code uint8
		want []byte
	}{
		{26, []byte{0x05, 0xdc}},
		{58, []byte{0, 0, 0xa8, 0xc0}},    // 43,200 s
		{59, []byte{0, 0x01, 0x27, 0x50}}, // 75,600 s
		{61, id},
		// S was set and refused: O and N, E as the client has it. RCODEs 255.
		{81, append([]byte{0x0e, 255, 255}, "\x05guest\x07example\x03com\x00"...)},
		{121, nil}, // the router is in the subnet
		{80, nil},
	}
	for _, c := range checks {
		if got := r.Options.Get(dhcpv4.GenericOptionCode(c.code)); !bytes.Equal(got, c.want) {
			t.Errorf("option %d: % x, want % x", c.code, got, c.want)
		}
	}
}

func TestOptionVariants(t *testing.T) {
	discover := func(change func(*Config), mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
		return reply(t, newBench(t, change), client(t, dhcpv4.MessageTypeDiscover, mods...))
	}
	get := func(r *dhcpv4.DHCPv4, code uint8) []byte { return r.Options.Get(dhcpv4.GenericOptionCode(code)) }

	r := discover(func(c *Config) { c.Router4 = addr("192.0.2.1") })
	routes := r.ClasslessStaticRoute()
	if len(routes) != 2 || routes[0].Dest.String() != "192.0.2.1/32" || !routes[0].Router.Equal(net.IPv4zero) ||
		routes[1].Dest.String() != "0.0.0.0/0" || routes[1].Router.String() != "192.0.2.1" {
		t.Errorf("routes %v", routes)
	}
	r = discover(func(c *Config) { c.Bits4 = 32 })
	if net.IP(r.SubnetMask()).String() != "255.255.255.255" || len(r.ClasslessStaticRoute()) != 2 {
		t.Errorf("a /32: %s", r.Summary())
	}
	r = discover(func(c *Config) {
		c.MTU, c.Hostname, c.FQDN, c.Search, c.DNS4, c.LeaseTime = 0, "", "", nil, nil, 1<<32-1
	}, opt(81, 0, 0, 0))
	for _, code := range []uint8{6, 12, 15, 26, 58, 59, 81, 119} {
		if v := get(r, code); v != nil {
			t.Errorf("option %d: % x", code, v)
		}
	}
	if !bytes.Equal(get(r, 51), []byte{255, 255, 255, 255}) {
		t.Errorf("infinite lease: % x", get(r, 51))
	}
	// The FQDN comes only to clients that know it (RFC 4702 4), in their form.
	if v := get(discover(nil), 81); v != nil {
		t.Errorf("FQDN nobody asked for: % x", v)
	}
	if v := get(discover(nil, opt(55, 1, 3, 81)), 81); v == nil {
		t.Error("FQDN was asked for")
	}
	if v := get(discover(nil, opt(81, 0, 0, 0, 'x')), 81); string(v) != "\x08\xff\xffguest.example.com" {
		t.Errorf("ASCII FQDN: %q", v)
	}
}

// A client that takes 576 bytes gets no more, however much there is to say, and
// what matters comes first.
func TestMaxSize(t *testing.T) {
	long := func() (s []string) {
		for range 100 {
			s = append(s, strings.Repeat("x", 60)+".example")
		}
		return s
	}
	change := func(c *Config) {
		c.Search = long
		c.Hostname = strings.Repeat("h", 63)
		c.FQDN = strings.Repeat("f", 63) + "." + strings.Repeat("g", 63) + "." + strings.Repeat("k", 63) + ".example"
	}
	for _, size := range []int{0, 1, 576, 1000, 1500, 65535} {
		b := newBench(t, change)
		mods := []dhcpv4.Modifier{opt(61, bytes.Repeat([]byte{7}, 255)...), opt(81, 4, 0, 0)}
		if size > 0 {
			mods = append(mods, opt(57, byte(size>>8), byte(size)))
		}
		d := b.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDiscover, mods...).ToBytes())
		limit := min(max(size, 576), 1500) - 28
		if n := len(d.payload); n > limit || n < 300 {
			t.Errorf("maximum %d: message of %d bytes", size, n)
		}
		r, err := dhcpv4.FromBytes(d.payload)
		if err != nil {
			t.Fatalf("maximum %d: %v", size, err)
		}
		if r.MessageType() != dhcpv4.MessageTypeOffer || r.IPAddressLeaseTime(0) == 0 || r.ServerIdentifier() == nil {
			t.Errorf("maximum %d: %s", size, r.Summary())
		}
		if size <= 576 {
			// 576 bytes have no room for everything after the client's 255.
			continue
		}
		if len(r.Router()) != 1 || len(r.DNS()) != 1 {
			t.Errorf("maximum %d: %s", size, r.Summary())
		}
	}
	small := newBench(t, nil)
	d := small.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDiscover).ToBytes())
	if len(d.payload) < 300 {
		t.Errorf("%d bytes, less than BOOTP has", len(d.payload))
	}
}

// A client is answered where the options say, wherever they are.
func TestOverload(t *testing.T) {
	m := client(t, dhcpv4.MessageTypeRequest).ToBytes()
	m = m[:240]
	m = append(m, 52, 1, 3, 255)
	copy(m[108:], []byte{53, 1, 3, 255})             // file
	copy(m[44:], []byte{50, 4, 10, 0, 2, 15, 0, 61}) // sname: requested address, then garbage
	copy(m[50:], []byte{255})
	b := newBench(t, nil)
	d := b.give(false, "255.255.255.255", m)
	if d == nil {
		t.Fatalf("no answer, drops %v", b.s.Stats().Drops)
	}
	if r, err := dhcpv4.FromBytes(d.payload); err != nil || r.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("%v %v", r, err)
	}
}

func TestHostile4(t *testing.T) {
	good := client(t, dhcpv4.MessageTypeDiscover).ToBytes()[:240]
	with := func(tail ...byte) []byte { return append(append([]byte(nil), good...), tail...) }
	patch := func(at int, v ...byte) []byte {
		m := with(53, 1, 1, 255)
		copy(m[at:], v)
		return m
	}
	big := with(53, 1, 1)
	for range 3 {
		big = append(append(big, 61, 255), make([]byte, 255)...)
	}
	tests := []struct {
		name string
		msg  []byte
		drop Drop
	}{
		{"empty", nil, DropShort},
		{"one byte short of the cookie", good[:239], DropShort},
		{"a reply", patch(0, 2), DropFormat},
		{"hardware type", patch(1, 6), DropHardware},
		{"hardware length 16", patch(2, 16), DropHardware},
		{"hardware length 0", patch(2, 0), DropHardware},
		{"multicast hardware address", patch(28, 1), DropHardware},
		{"no hardware address", patch(28, 0, 0, 0, 0, 0, 0), DropHardware},
		{"bad cookie", patch(236, 0, 0, 0, 0), DropMagic},
		{"option without length", with(53), DropOption},
		{"option past the end", with(53, 1, 1, 12, 200, 'a'), DropOption},
		{"message type of two bytes", with(53, 2, 1, 1), DropOption},
		{"message type 0", with(53, 1, 0), DropOption},
		{"short requested address", with(53, 1, 1, 50, 3, 1, 2, 3), DropOption},
		{"short server", with(53, 1, 1, 54, 0), DropOption},
		{"maximum size of one byte", with(53, 1, 1, 57, 1, 5), DropOption},
		{"client identifier repeated beyond 255 bytes", big, DropOption},
		{"overload into garbage", func() []byte {
			m := with(53, 1, 1, 52, 1, 1, 255)
			m[108], m[109] = 12, 200 // file is 128 bytes
			return m
		}(), DropOption},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			if b.give(false, "255.255.255.255", tt.msg) != nil {
				t.Error("answered")
			}
			b.drops(tt.drop)
		})
	}
	ok := []struct {
		name string
		msg  []byte
	}{
		{"no end option", with(53, 1, 1)},
		{"pads", with(0, 0, 53, 1, 1, 0, 0, 0)},
		{"repeated type", with(53, 1, 3, 53, 1, 1)},
		{"overload inside the overload", func() []byte {
			m := with(53, 1, 1, 52, 1, 1)
			copy(m[108:], []byte{52, 1, 3, 255})
			return m
		}()},
	}
	for _, tt := range ok {
		b := newBench(t, nil)
		if b.give(false, "255.255.255.255", tt.msg) == nil {
			t.Errorf("%s: no answer, drops %v", tt.name, b.s.Stats().Drops)
		}
	}
}

// Every prefix of a rich message is answered or dropped under one reason.
func TestTruncated4(t *testing.T) {
	m := client(t, dhcpv4.MessageTypeRequest, requested("10.0.2.15"), opt(61, 1, 2, 3), opt(81, 0, 0, 0, 'a'), opt(55, 1, 3, 6)).ToBytes()
	for n := range len(m) {
		b := newBench(t, nil)
		d := b.give(false, "255.255.255.255", m[:n])
		var dropped uint64
		for _, v := range b.s.Stats().Drops {
			dropped += v
		}
		if (d != nil) == (dropped == 1) || dropped > 1 {
			t.Fatalf("%d bytes: answered %v, %d drops", n, d != nil, dropped)
		}
	}
}

func TestStormsAndOff(t *testing.T) {
	b := newBench(t, nil)
	for range 1000 {
		b.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDecline, requested("10.0.2.15")).ToBytes())
		b.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeRelease, ciaddr("10.0.2.15")).ToBytes())
	}
	if s := b.s.Stats(); s.Declines != 1000 || s.Releases != 1000 || b.logs != 1 {
		t.Errorf("%+v, %d log lines", s, b.logs)
	}
	if r := reply(t, b, client(t, dhcpv4.MessageTypeDiscover)); r.YourIPAddr.String() != "10.0.2.15" {
		t.Errorf("after the storm: %s", r.YourIPAddr)
	}
	b.ep.Room = 0
	b.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDiscover).ToBytes())
	b.drops(DropNoRoom)

	off := newBench(t, func(c *Config) { c.Addr4 = addr("::") })
	off.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDiscover).ToBytes())
	off.drops(DropOff)
}

func FuzzDHCP(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{1, 3, 4, 7, 8} {
		f.Add(client(f, kind, requested("10.0.2.15"), opt(61, 1, 2, 3), opt(81, 1, 0, 0, 'a'), opt(52, 3)).ToBytes())
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > 1400 {
			return
		}
		b := newBench(t, nil)
		d := b.give(false, "255.255.255.255", msg)
		if d == nil {
			return
		}
		r, err := dhcpv4.FromBytes(d.payload)
		if err != nil {
			t.Fatalf("our answer: %v", err)
		}
		if ip := r.YourIPAddr.String(); ip != "10.0.2.15" && ip != "0.0.0.0" {
			t.Errorf("leased %s", ip)
		}
	})
}

func TestEach(t *testing.T) {
	b := newBench(t, nil)
	b.give(false, "255.255.255.255", client(t, dhcpv4.MessageTypeDiscover).ToBytes())
	b.give(false, "255.255.255.255", nil)
	got := map[string]uint64{}
	b.s.Each(func(name string, v uint64) { got[name] = v })
	if got["offers"] != 1 || got["drop_short"] != 1 || len(got) != 8+int(NumDrops) {
		t.Errorf("%v", got)
	}
}
