package dns

import (
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

func TestHostileQueries(t *testing.T) {
	good := query1(t, 1, "www.example.com.", mdns.TypeA)
	patch := func(at int, v ...byte) []byte {
		m := append([]byte(nil), good...)
		copy(m[at:], v)
		return m
	}
	label64 := append(append(append([]byte(nil), good[:12]...), 64), make([]byte, 70)...)
	long := append([]byte(nil), good[:12]...)
	for range 128 {
		long = append(long, 1, 'a')
	}
	long = append(long, 0, 0, 1, 0, 1)
	tests := []struct {
		name string
		msg  []byte
		drop Drop
	}{
		{"empty", nil, DropShort},
		{"half a header", good[:11], DropShort},
		{"a response", patch(2, 0x81), DropResponse},
		{"no question", patch(4, 0, 0), DropQuestion},
		{"65535 questions", patch(4, 0xff, 0xff), DropQuestion},
		{"pointer to itself", patch(12, 0xc0, 12), DropQuestion},
		{"pointer into the header", patch(12, 0xc0, 0), DropQuestion},
		{"label of 64 bytes", label64, DropQuestion},
		{"name of 257 bytes", long, DropQuestion},
		{"cut in the name", good[:20], DropQuestion},
		{"cut in the class", good[:len(good)-1], DropQuestion},
		{"too long", append(append([]byte(nil), good...), make([]byte, 2048)...), DropLong},
	}
	for _, tt := range tests {
		b := newBench(t, up1)
		if tt.name == "too long" {
			b.ep.Capabilities.MTU = 65535
		}
		b.ask(false, 40000, tt.msg)
		if len(b.took()) != 0 || len(b.replies()) != 0 || b.r.Stats().Drops[tt.drop] != 1 {
			t.Errorf("%s: drops %v", tt.name, b.r.Stats().Drops)
		}
	}
	b := newBench(t, up1)
	m := new(mdns.Msg)
	m.SetUpdate("example.com.")
	b.ask(false, 40000, pack(t, m))
	got := b.replies()
	if len(got) != 1 {
		t.Fatalf("%d answers", len(got))
	}
	if r := unpack(t, got[0].msg); r.Rcode != mdns.RcodeNotImplemented || r.Opcode != mdns.OpcodeUpdate || r.Id != m.Id {
		t.Errorf("%v", r)
	}
}

// A client that speaks EDNS gets an OPT record with our own SERVFAIL.
func TestServfailEDNS(t *testing.T) {
	b := newBench(t)
	m := new(mdns.Msg)
	m.SetQuestion("x.example.", mdns.TypeA)
	m.SetEdns0(1232, false)
	m.CheckingDisabled = true
	b.ask(true, 40000, pack(t, m))
	got := b.replies()
	if len(got) != 1 {
		t.Fatalf("%d answers", len(got))
	}
	r := unpack(t, got[0].msg)
	if r.Rcode != mdns.RcodeServerFailure || r.IsEdns0() == nil || r.IsEdns0().UDPSize() != 1232 || !r.CheckingDisabled || !r.RecursionDesired {
		t.Errorf("%v", r)
	}
}

func TestEach(t *testing.T) {
	b := newBench(t)
	b.ask(false, 40000, query1(t, 1, "x.example.", mdns.TypeA))
	got := map[string]uint64{}
	b.r.Each(func(name string, v uint64) { got[name] = v })
	if got["queries"] != 1 || got["server_failures"] != 1 || len(got) != 8+int(NumDrops) {
		t.Errorf("%v", got)
	}
}

func FuzzDNS(f *testing.F) {
	q := query1(f, 1, "www.example.com.", mdns.TypeA)
	f.Add(q, answerTo(f, q, "www.example.com. 60 IN A 192.0.2.1"))
	m := new(mdns.Msg)
	m.SetQuestion("x.example.", mdns.TypeA)
	m.SetEdns0(1232, false)
	f.Add(pack(f, m), []byte{})
	f.Fuzz(func(t *testing.T, query, answer []byte) {
		if len(query) > 1400 || len(answer) > 1400 {
			return
		}
		b := newBench(t, up1, up2)
		b.ask(false, 40000, query)
		for _, s := range b.took() {
			// miekg/dns must see one question wherever we saw one.
			var p mdns.Msg
			if err := p.Unpack(s.b); err == nil && (len(p.Question) != 1 || p.Response) {
				t.Errorf("relayed % x", s.b)
			}
			if len(answer) >= 2 {
				copy(answer, s.b[:2]) // past the id
			}
			b.upstream(s.fd, datagram(answer))
		}
		if n := len(b.ep.Take()); n > 1 {
			t.Errorf("%d answers", n)
		}
		b.advance(6 * time.Second)
		if len(b.r.byID) != 0 {
			t.Errorf("%d queries never end", len(b.r.byID))
		}
		b.advance(11 * time.Second)
		if len(b.h.open) != 0 {
			t.Errorf("%d sockets leak", len(b.h.open))
		}
	})
}
