package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/hostsock"
)

// question is a query for the address of a name of one label.
func question(id uint16, label string) []byte {
	b := []byte{byte(id >> 8), byte(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label))}
	return append(append(b, label...), 0, 0, 1, 0, 1)
}

// answerTo is the answer with one address to a query.
func answerTo(query []byte) []byte {
	b := append([]byte(nil), query...)
	b[2], b[3], b[7] = 0x81, 0x80, 1
	return append(b, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7)
}

// ask sends a message to the resolver, from guest port 5300.
func (g *guest) ask(f *family, b []byte) { g.send(udpFrom(g.t, f.guest, 5300, f.resolver, 53, b)) }

// reply waits for the resolver's answer to query id.
func (g *guest) reply(f *family, id uint16) []byte {
	g.t.Helper()
	b, _ := g.awaitDatagram(f, "an answer from the resolver", 5300)
	if len(b) < 12 || binary.BigEndian.Uint16(b) != id || b[2]&0x80 == 0 {
		g.t.Fatalf("the answer is % x, want one with id %d", b, id)
	}
	return b
}

// take is the next query that reaches an upstream.
func (s *service) take() []byte {
	s.t.Helper()
	must(s.t, s.c.SetReadDeadline(time.Now().Add(4*time.Second)))
	b := make([]byte, 4096)
	n, from, err := s.c.ReadFromUDPAddrPort(b)
	must(s.t, err)
	s.from = from
	return b[:n]
}

// upstream is a name server of the host's, on UDP and on TCP, and a worker that
// was told of it.
func upstream(t *testing.T, f *family) (*daemon, *service, *server) {
	t.Helper()
	for range 20 {
		udp := serveUDP(t, f)
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(udp.at()))
		if err != nil {
			continue
		}
		t.Cleanup(func() { l.Close() })
		d := start(t, func(o *configOptions) { o.DNSHost = []string{udp.at().String()} })
		return d, udp, &server{t, f, l}
	}
	t.Fatal("no port that is free on UDP and TCP")
	return nil, nil, nil
}

// badDNS: compression loops, names and labels that are too long, 65,535
// questions, answers as queries. Nothing of it reaches the upstream. Over TCP the
// bytes go through as they are, however few and however slowly.
func badDNS(t *testing.T, f *family) {
	d, up, tcpUp := upstream(t, f)
	g := d.guest()
	head := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	with := func(b ...byte) []byte { return append(append([]byte(nil), head...), b...) }
	label := append([]byte{63}, bytes.Repeat([]byte{'a'}, 63)...)
	many, none, response := question(7, "a"), question(7, "a"), question(7, "a")
	many[4], many[5], none[5], response[2] = 255, 255, 0, 0x81
	for _, tt := range []struct {
		counter string
		msg     []byte
	}{
		{"dns_drop_short", nil},
		{"dns_drop_short", head[:11]},
		{"dns_drop_question", head},
		{"dns_drop_question", with(0xc0, 12, 0, 1, 0, 1)},                             // a name that is itself
		{"dns_drop_question", with(1, 'a', 0xc0, 14, 0, 1, 0, 1)},                     // two that are each other
		{"dns_drop_question", with(append([]byte{64}, make([]byte, 70)...)...)},       // a label of 64
		{"dns_drop_question", with(append(bytes.Repeat(label, 4), 0, 0, 1, 0, 1)...)}, // a name of 257
		{"dns_drop_question", with(3, 'a', 'b')},
		{"dns_drop_question", with(1, 'a', 0, 0, 1, 0)},
		{"dns_drop_question", many},
		{"dns_drop_question", none},
		{"dns_drop_response", response},
		{"dns_drop_long", append(question(7, "a"), make([]byte, 2048)...)},
	} {
		before := d.counters()[tt.counter]
		if len(tt.msg) < 1400 {
			g.ask(f, tt.msg)
		} else {
			whole := udpFrom(t, f.guest, 5300, f.resolver, 53, tt.msg)[14+f.ipHeader:]
			g.send(f.piece(t, 17, f.resolver, 1, 0, true, whole[:1400]), f.piece(t, 17, f.resolver, 1, 1400, false, whole[1400:]))
		}
		d.counts(tt.counter, before+1)
	}
	status := question(7, "a")
	status[2] = 2 << 3
	g.ask(f, status)
	if b := g.reply(f, 7); b[3]&15 != 4 {
		t.Errorf("an unknown operation has return code %d, want 4, not implemented", b[3]&15)
	}
	g.ask(f, question(8, "good"))
	q := up.take()
	if !bytes.Equal(q[2:], question(8, "good")[2:]) {
		t.Errorf("upstream got % x", q)
	}
	up.answer(answerTo(q))
	if b := g.reply(f, 8); !bytes.Equal(b, answerTo(question(8, "good"))) {
		t.Errorf("the guest got % x", b)
	}

	g.send(tcp(t, f.resolver, 4001, 53, nil, syn))
	sa := g.awaitSegment("a SYN-ACK", 4001, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	c := &conn{g: g, to: f.resolver, sport: 4001, dport: 53, seq: 1001, ack: sa.Seq + 1}
	c.segment("", func(*layers.TCP) {})
	p := tcpUp.accept()
	for _, text := range []string{"\x00\x00", "\xff\xff", "\x00", "\x05", "s", "l", "o", "w"} {
		c.send(text)
		p.want(text)
	}
	g.leave()
	d.healthy()
}

// spoofedAnswers: an answer counts only with the right id and question, from where
// the query went. Nobody can guess the id or the port of the next query.
func spoofedAnswers(t *testing.T, f *family) {
	d, up, _ := upstream(t, f)
	g := d.guest()
	g.ask(f, question(7, "bank"))
	q := up.take()
	edit := func(b []byte, at int) []byte {
		b = append([]byte(nil), b...)
		b[at] ^= 1
		return b
	}
	good := answerTo(q)
	for _, tt := range []struct {
		counter string
		msg     []byte
	}{
		{"dns_drop_unknown", edit(good, 0)}, // another id
		{"dns_drop_unknown", edit(good, 1)},
		{"dns_drop_unknown", q},                     // no answer at all
		{"dns_drop_mismatch", edit(good, 14)},       // another name
		{"dns_drop_mismatch", edit(good, len(q)-3)}, // another type
		{"dns_drop_mismatch", edit(good, len(q)-1)}, // another class
		{"dns_drop_mismatch", good[:len(q)-2]},
		{"dns_drop_short", good[:11]},
	} {
		before := d.counters()[tt.counter]
		up.answer(tt.msg)
		d.counts(tt.counter, before+1)
	}
	mallory := serveUDP(t, f) // knows everything, but is somebody else
	mallory.from = up.from
	before := d.counters()
	mallory.answer(good)
	g.silence("a forged answer", func(fr []byte) bool { return f.datagram([][]byte{fr}, 5300) != nil })
	if n := d.counters(); n["dns_answers"] != 0 || n["dns_drop_unknown"] != before["dns_drop_unknown"] {
		t.Errorf("%d answers; a stranger's datagram came as far as the forwarder", n["dns_answers"])
	}
	up.answer(good)
	if b := g.reply(f, 7); !bytes.Equal(b, answerTo(question(7, "bank"))) {
		t.Errorf("the guest got % x", b)
	}
	unknown := d.counters()["dns_drop_unknown"]
	up.answer(good) // once more
	d.counts("dns_drop_unknown", unknown+1)

	const queries = 64
	ids, ports, steps := map[uint16]bool{}, map[netip.AddrPort]bool{}, map[uint16]int{}
	last, same := uint16(0), 0
	for range queries {
		g.ask(f, question(7, "again"))
		q := up.take()
		id := binary.BigEndian.Uint16(q)
		ids[id], ports[up.from] = true, true
		if id == 7 {
			same++
		}
		steps[id-last]++
		last = id
		up.answer(answerTo(q))
		g.reply(f, 7)
	}
	for step, n := range steps {
		if n > 3 {
			t.Errorf("%d ids of %d are %d from the one before", n, queries, step)
		}
	}
	if len(ids) < queries-2 || len(ports) < 3 || same > 1 {
		t.Errorf("%d ids and %d ports in %d queries, %d with the guest's id", len(ids), len(ports), queries, same)
	}
	g.leave()
	d.healthy()
}

// noResolver: a host whose resolv.conf is empty, changes, vanishes and comes back,
// whose name server is dead or not listening. The guest gets an answer each time,
// if only that there is none, and names work again as soon as they do for the
// host.
func noResolver(t *testing.T, f *family) {
	up := serveUDP(t, f)
	go up.serve()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		must(t, os.WriteFile(file+".new", []byte(text), 0o644))
		must(t, os.Rename(file+".new", file))
	}
	write("")
	alive, dead := "198.51.100.53", "198.51.100.54"
	if f.v6 {
		alive, dead = "2001:db8::53", "2001:db8::54"
	}
	nobody := deaf(t, f)
	silent := serveUDP(t, f)
	d := startIn(t, nil, surroundings{resolvConf: file, host: func(h hostsock.Host) hostsock.Host {
		return &detour{h, func(p hostsock.Proto, to netip.AddrPort) (hostsock.Proto, netip.AddrPort, syscall.Errno) {
			switch to.Addr().String() {
			case alive:
				return p, up.at(), 0
			case dead:
				return p, silent.at(), 0
			}
			return p, nobody, 0
		}}
	}})
	g := d.guest()
	last, codes := uint16(0), map[uint16]int{} // return codes that have come, by id
	ask := func() uint16 {
		last++
		g.ask(f, question(last, "name"))
		return last
	}
	answered := func(id uint16) (code int, ok bool) {
		for _, fr := range g.receive() {
			if b := f.datagram([][]byte{fr}, 5300); len(b) >= 12 {
				codes[binary.BigEndian.Uint16(b)] = int(b[3] & 15)
			}
		}
		code, ok = codes[id]
		return code, ok
	}
	const good, failure = 0, 2 // RFC 1035, 4.1.1
	until := func(why string, want int) {
		t.Helper()
		id := ask()
		d.eventually(why, func() bool {
			code, ok := answered(id)
			if ok && code != want { // the news has not come yet
				id = ask()
			}
			return ok && code == want
		})
	}
	until("an empty file", failure)
	write("nameserver " + alive + "\n")
	until("a name server that has come", good)
	write("# none\nnameserver not-an-address\n")
	until("a file without a name server", failure)
	write("nameserver " + alive + "\n")
	until("a name server that is back", good)
	must(t, os.Remove(file))
	until("no file", failure)
	write("nameserver " + alive + "\n")
	until("a file that is back", good)
	write("nameserver 198.51.100.99\n") // where nobody listens: ICMP says so at once
	until("a port that is closed", failure)

	write("nameserver " + dead + "\n")
	id := ask()
	d.eventually("the dead one to be asked", func() bool {
		must(t, silent.c.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		if _, _, err := silent.c.ReadFromUDPAddrPort(make([]byte, 512)); err == nil {
			return true
		}
		if _, ok := answered(id); ok {
			id = ask()
		}
		return false
	})
	d.pass(3*time.Second, 100*time.Millisecond)
	if code, ok := answered(id); ok {
		t.Errorf("return code %d after 3 s of a dead name server's silence", code)
	}
	d.pass(3*time.Second, 100*time.Millisecond)
	if code, ok := answered(id); !ok || code != failure {
		t.Errorf("after 6 s %v, return code %d, want %d", ok, code, failure)
	}
	write("nameserver " + dead + "\nnameserver " + alive + "\n")
	d.eventually("the second to be asked", func() bool {
		id := ask()
		d.pass(1300*time.Millisecond, 100*time.Millisecond)
		time.Sleep(time.Millisecond)
		code, ok := answered(id)
		return ok && code == good
	})
	g.leave()
	d.healthy()
}

// serve answers all queries that come.
func (s *service) serve() {
	b := make([]byte, 4096)
	for {
		n, from, err := s.c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		_, _ = s.c.WriteToUDPAddrPort(answerTo(b[:n]), from)
	}
}
