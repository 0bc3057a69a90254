package dns

import (
	"net"
	"net/netip"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// A real server, real sockets, a real clock: the second of two upstreams answers,
// the first has nobody listening.
func TestRealServer(t *testing.T) {
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	k, err := hostsock.NewKernel(loop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.CloseAll(); loop.Close() })

	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &mdns.Server{PacketConn: pc, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		m := new(mdns.Msg)
		m.SetReply(q)
		rr, _ := mdns.NewRR(q.Question[0].Name + " 60 IN A 192.0.2.1")
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })

	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := netip.MustParseAddrPort(dead.LocalAddr().String())
	dead.Close()
	live := netip.MustParseAddrPort(pc.LocalAddr().String())

	b := newBench(t, silent, live)
	b.r = New(Config{}, Deps{Port: b.port, Host: k, Timers: loop.Timers(), Resolver: b.res, Rand: b.r.d.Rand})
	start := time.Now()
	const queries = 50
	for i := range queries {
		b.ask(i%2 == 0, uint16(40000+i), query1(t, uint16(i), "host.example.", mdns.TypeA))
	}
	var got []reply
	for len(got) < queries && time.Since(start) < 5*time.Second {
		if err := loop.Turn(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		got = append(got, b.replies()...)
	}
	if len(got) != queries || b.r.Stats().ServerFailures != 0 {
		t.Fatalf("%d answers, %+v", len(got), b.r.Stats())
	}
	seen := map[uint16]bool{}
	for _, g := range got {
		m := unpack(t, g.msg)
		if m.Rcode != 0 || len(m.Answer) != 1 || m.Id != g.dstPort-40000 {
			t.Errorf("port %d: %v", g.dstPort, m)
		}
		seen[m.Id] = true
	}
	if len(seen) != queries {
		t.Errorf("%d different answers", len(seen))
	}
	// Loopback reports a closed port at once, so nobody waits for a timeout.
	if d := time.Since(start); d > 1200*time.Millisecond {
		t.Errorf("took %v", d)
	}
	if len(b.r.byID) != 0 {
		t.Errorf("%d left", len(b.r.byID))
	}
	before := loop.Stats().Turns
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		if err := loop.Turn(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if n := loop.Stats().Turns - before; n > 10 {
		t.Errorf("%d turns with nothing to do: an error queue was not drained", n)
	}
}
