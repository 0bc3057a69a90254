package udp

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

func TestOutbound(t *testing.T) {
	r := newRig(t, Config{
		Outbound4: hostsock.Options{Device: "eth9", Bind: netip.MustParseAddrPort("192.0.2.1:0")},
	}, link.Caps{})
	r.send(to(5000, 100))
	r.send(to(5000, 200), dgram{dst: remote6, sport: 40000, dport: 5000, data: pattern(10), ttl: 64})
	if r.k.Open() != 2 || r.k.Calls("Dial") != 2 || r.flows.Len() != 2 {
		t.Fatalf("%d sockets, %d dials, %d flows", r.k.Open(), r.k.Calls("Dial"), r.flows.Len())
	}
	fd := r.from(remote4.AddrPort(5000))
	o := r.k.Options(fd)
	if o.Device != "eth9" || o.Bind != netip.MustParseAddrPort("192.0.2.1:40000") || !o.BindLoose || !o.ReusePort || r.k.TTL(fd) != 63 {
		t.Errorf("options %+v, TTL %d", o, r.k.TTL(fd))
	}
	got := r.k.Sent(fd)
	same(t, [][]byte{got[0].Data, got[1].Data}, pattern(100), pattern(200))
	if got[0].From.Port() != 40000 {
		t.Errorf("source port %d", got[0].From.Port())
	}
	fd = r.from(remote6.AddrPort(5000))
	if got := r.k.Sent(fd); len(got) != 1 || got[0].From.Port() != 40000 {
		t.Errorf("v6: %+v", got)
	}
	if o := r.k.Options(fd); o.Bind != netip.MustParseAddrPort("[::]:40000") {
		t.Errorf("v6 bind %v", o.Bind)
	}
}

func TestOutboundMapsLoopback(t *testing.T) {
	r := newRig(t, Config{Outbound4: hostsock.Options{Bind: netip.MustParseAddrPort("192.0.2.1:0")}}, link.Caps{})
	r.send(dgram{dst: mapped4, sport: 40000, dport: 7000, data: pattern(5)})
	fd := r.from(netip.MustParseAddrPort("127.0.0.1:7000"))
	if b := r.k.Options(fd).Bind; b != netip.MustParseAddrPort("0.0.0.0:40000") {
		t.Errorf("bound to %v", b)
	}
	r.k.Deliver(fd, hostsocktest.Datagram{Data: pattern(9)})
	r.k.Run()
	if got := r.read(); len(got) != 1 || got[0].src != mapped4 || got[0].sport != 7000 || got[0].dst != guest4 || got[0].dport != 40000 {
		t.Fatalf("%+v", got)
	}
}

// TestGathering: which datagrams of a batch leave together. "n" stands for a
// datagram of n bytes, "n!" for one with another TOS, "a/b" for a USO frame of a
// bytes in datagrams of b; the wanted text lists the messages, runs as sizes
// joined by "+".
func TestGathering(t *testing.T) {
	many := func(n int, s string) string { return strings.TrimSpace(strings.Repeat(s+" ", n)) }
	plus := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+"+", n), "+") }
	for _, c := range []struct{ in, want string }{
		{"100", "100"},
		{"100 100 100", "100+100+100"},
		{"100 100 60 100 100", "100+100+60 100+100"},
		{"100 120", "100 120"},
		{"100 120 120", "100 120+120"},
		{"0 0", "0 0"},
		{"100 0 100", "100 0 100"},
		{"100 100! 100!", "100 100!+100!"},
		{many(70, "10"), plus(64, "10") + " " + plus(6, "10")},
		{many(50, "1400"), plus(46, "1400") + " " + plus(4, "1400")},
		{"40000 40000", "40000 40000"},
		{"3000/1000", "1000+1000+1000"},
		{"3100/1000 1000", "1000+1000+1000+100 1000"},
		{"900/1000 900", "900+900"},
		{"1280/10", plus(64, "10") + " " + plus(64, "10")},
		{"60000/1400", plus(42, "1400") + "+1200"},
		{"40000/30000", "30000+10000"},
	} {
		r := newRig(t, Config{}, link.Caps{})
		rec := &recorder{Kernel: r.k}
		r.e.d.Host = rec
		ds := script(t, c.in)
		r.send(ds...)
		if got := strings.Join(rec.messages, " "); got != c.want {
			t.Errorf("%q leaves as %q, want %q", c.in, got, c.want)
		}
		var got, want []byte
		for _, d := range r.k.Sent(r.from(remote4.AddrPort(5000))) {
			got = append(got, d.Data...)
		}
		for _, d := range ds {
			want = append(want, d.data...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%q: other bytes", c.in)
		}
		if r.k.Calls("Send") != 1 {
			t.Errorf("%q: %d sends", c.in, r.k.Calls("Send"))
		}
	}
}

func script(t *testing.T, s string) (ds []dgram) {
	for _, w := range strings.Fields(s) {
		var n, gso int
		d := to(5000, 0)
		if strings.Contains(w, "/") {
			if _, err := fmt.Sscanf(w, "%d/%d", &n, &gso); err != nil {
				t.Fatal(err)
			}
		} else if _, err := fmt.Sscanf(w, "%d", &n); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(w, "!") {
			d.tos = 8
		}
		d.data, d.gso = pattern(n), gso
		ds = append(ds, d)
	}
	return ds
}

// recorder notes every message that is sent.
type recorder struct {
	*hostsocktest.Kernel
	messages []string
}

func (r *recorder) Send(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	for i := range m {
		n, mark := 0, ""
		for _, b := range m[i].Bufs {
			n += len(b)
		}
		if m[i].TOS == 8 {
			mark = "!"
		}
		var parts []string
		for m[i].SegSize > 0 && n > m[i].SegSize {
			parts = append(parts, fmt.Sprint(m[i].SegSize, mark))
			n -= m[i].SegSize
		}
		r.messages = append(r.messages, strings.Join(append(parts, fmt.Sprint(n, mark)), "+"))
	}
	return r.Kernel.Send(fd, m)
}

// TestInterleaved: datagrams of many flows in one batch are still gathered by
// flow, in order, and nothing gets lost beyond 256.
func TestInterleaved(t *testing.T) {
	for _, c := range []struct{ flows, each, sends int }{{50, 5, 50}, {100, 5, 302}} {
		r := newRig(t, Config{}, link.Caps{})
		var ds []dgram
		for n := range c.each {
			for f := range c.flows {
				ds = append(ds, dgram{dst: remote4, sport: 40000, dport: uint16(1000 + f), data: []byte{byte(f), byte(n), 3}})
			}
		}
		r.send(ds...)
		for f := range c.flows {
			got := r.k.Sent(r.from(remote4.AddrPort(uint16(1000 + f))))
			if len(got) != c.each {
				t.Fatalf("flow %d: %d datagrams", f, len(got))
			}
			for n, d := range got {
				if d.Data[0] != byte(f) || d.Data[1] != byte(n) {
					t.Fatalf("flow %d, datagram %d: %v", f, n, d.Data)
				}
			}
		}
		if cap(r.e.batch.items) != maxItems+1 {
			t.Errorf("the batch grew to %d items", cap(r.e.batch.items))
		}
		if n := r.k.Calls("Send"); n > c.sends {
			t.Errorf("%d datagrams of %d flows took %d sends", len(ds), c.flows, n)
		}
	}
}

func TestRefusedByPolicy(t *testing.T) {
	for _, c := range []struct {
		dst  string
		code uint8
	}{{"169.254.169.254", 13}, {"10.0.2.2", 3}} {
		r := newRig(t, Config{}, link.Caps{})
		r.send(dgram{dst: addr(c.dst), sport: 40000, dport: 80, data: pattern(5)})
		if typ, code, from := r.icmp4(t); typ != 3 || code != c.code || from == "" {
			t.Errorf("%s: type %d code %d from %s", c.dst, typ, code, from)
		}
		if r.k.Open() != 0 || r.flows.Len() != 0 || r.stat("drop_policy") != 1 {
			t.Errorf("%s: %d sockets, %d flows", c.dst, r.k.Open(), r.flows.Len())
		}
	}
	r := newRig(t, Config{}, link.Caps{})
	r.send(dgram{dst: remote4, sport: 0, dport: 80, data: pattern(5)}, dgram{dst: remote4, sport: 5, dport: 0, data: pattern(5)})
	if r.stat("drop_port") != 2 || r.flows.Len() != 0 {
		t.Error("port 0 was taken")
	}
	r.send(dgram{dst: remote4, sport: 5, dport: 6, data: pattern(129), gso: 1})
	if r.stat("drop_gso") != 1 || r.flows.Len() != 0 {
		t.Error("a USO frame of 129 datagrams was taken")
	}
}

// icmp4 reads one ICMP error.
func (r *rig) icmp4(t *testing.T) (typ, code uint8, from string) {
	t.Helper()
	fs := r.ep.Take()
	if len(fs) != 1 {
		t.Fatalf("%d frames", len(fs))
	}
	return icmpOf(t, fs[0])
}

func icmpOf(t *testing.T, f linktest.Frame) (typ, code uint8, from string) {
	t.Helper()
	g := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
	ic, ok := g.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok {
		t.Fatalf("not ICMP: %v", g)
	}
	return ic.TypeCode.Type(), ic.TypeCode.Code(), g.Layer(layers.LayerTypeIPv4).(*layers.IPv4).SrcIP.String()
}

// TestTraceroute: the gateway is the first hop, and later TTLs reach the socket,
// each behind the datagrams before it.
func TestTraceroute(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	d := to(33434, 20)
	d.ttl = 1
	r.send(d)
	if typ, code, from := r.icmp4(t); typ != 11 || code != 0 || from != "10.0.2.2" {
		t.Fatalf("type %d code %d from %s", typ, code, from)
	}
	if r.flows.Len() != 0 || r.stat("drop_ttl") != 1 {
		t.Fatal("a dying datagram began a flow")
	}
	var ds []dgram
	for ttl := uint8(2); ttl < 6; ttl++ {
		d.ttl = ttl
		ds = append(ds, d, d)
	}
	r.send(ds...)
	fd := r.from(remote4.AddrPort(33434))
	for i, s := range r.k.Sent(fd) {
		if s.TTL != uint8(1+i/2) {
			t.Errorf("datagram %d has TTL %d", i, s.TTL)
		}
	}
	if r.k.Calls("SetTTL") != 3 {
		t.Errorf("%d calls of SetTTL", r.k.Calls("SetTTL"))
	}
	r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.EHOSTUNREACH, Type: 11, Offender: netip.MustParseAddr("198.51.100.1")}, pattern(20))
	r.k.Run()
	if typ, _, from := r.icmp4(t); typ != 11 || from != "198.51.100.1" {
		t.Errorf("type %d from %s", typ, from)
	}
}

func TestDialFails(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		code  int // -1: no ICMP
	}{
		{syscall.ENETUNREACH, 0}, {syscall.EHOSTUNREACH, 1}, {syscall.EACCES, 13}, {syscall.EPERM, 13},
		{syscall.EADDRNOTAVAIL, 0}, {syscall.EMFILE, -1}, {syscall.ENOBUFS, -1}, {syscall.ENOMEM, -1}, {syscall.EINVAL, -1},
	} {
		r := newRig(t, Config{}, link.Caps{})
		r.k.FailNext("Dial", c.errno)
		r.send(to(5000, 10))
		if r.flows.Len() != 0 || r.wheel.Len() != 0 || r.stat("drop_host") != 1 {
			t.Errorf("%v: %d flows, %d timers", c.errno, r.flows.Len(), r.wheel.Len())
		}
		if c.code < 0 {
			if r.ep.Count != 0 {
				t.Errorf("%v: told the guest", c.errno)
			}
		} else if typ, code, _ := r.icmp4(t); typ != 3 || int(code) != c.code {
			t.Errorf("%v: type %d code %d", c.errno, typ, code)
		}
		r.ep.Reset()
		r.send(to(5000, 10)) // the next one is a new attempt
		if r.flows.Len() != 1 || r.k.Open() != 1 {
			t.Errorf("%v: no second attempt", c.errno)
		}
	}
}

// TestSendFails: pending errors cost no datagram, full buffers cost what does not
// fit, and refusals are told to the guest.
func TestSendFails(t *testing.T) {
	r := newRig(t, Config{}, link.Caps{})
	r.send(to(5000, 10))
	fd := r.from(remote4.AddrPort(5000))
	r.k.Sent(fd)
	r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.ECONNREFUSED, Type: 3, Code: 3, Offender: remote4.ToNetip()}, pattern(10))
	r.send(to(5000, 11))
	if typ, code, from := r.icmp4(t); typ != 3 || code != 3 || from != "192.0.2.7" {
		t.Errorf("type %d code %d from %s", typ, code, from)
	}
	if got := r.k.Sent(fd); len(got) != 1 || len(got[0].Data) != 11 {
		t.Errorf("a pending error took the datagram: %+v", got)
	}

	r.ep.Reset()
	r.k.SetRoom(fd, 1)
	r.send(to(5000, 10), to(5000, 20), to(5000, 30))
	if len(r.k.Sent(fd)) != 1 || r.stat("drop_busy") != 2 || r.ep.Count != 0 {
		t.Errorf("full buffer: %d dropped, %d told", r.stat("drop_busy"), r.ep.Count)
	}
	r.ep.Reset()

	r.k.FailAt("Send", 1, syscall.EPERM)
	r.k.FailAt("Send", 2, syscall.EPERM)
	r.send(to(5000, 10), to(5000, 20))
	if typ, code, _ := r.icmp4(t); typ != 3 || code != 13 {
		t.Errorf("EPERM: type %d code %d", typ, code)
	}
	if got := r.k.Sent(fd); len(got) != 1 || len(got[0].Data) != 20 || r.stat("drop_host") != 1 {
		t.Errorf("after a refusal: %+v", got)
	}
	r.k.Run()
	if r.flows.Len() != 1 {
		t.Error("the flow did not survive")
	}
}
