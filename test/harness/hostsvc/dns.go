package hostsvc

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"guestwire/test/harness/netns"

	"github.com/miekg/dns"
)

// Zone is what the DNS servers know. big.lab.example does not fit a datagram of 512 bytes, huge not even one of 1,232.
var Zone = []string{
	"www.lab.example. 60 IN A 192.0.2.80",
	"www.lab.example. 60 IN AAAA 2001:db8:80::80",
	"multi.lab.example. 60 IN A 192.0.2.1",
	"multi.lab.example. 60 IN A 192.0.2.2",
	"lab.example. 60 IN MX 10 mail.lab.example.",
	"lab.example. 60 IN TXT \"first string\" \"second\"",
	"lab.example. 60 IN CAA 0 issue \"ca.example\"",
	"_sip._udp.lab.example. 60 IN SRV 5 6 5060 sip.lab.example.",
	"alias.lab.example. 60 IN CNAME www.lab.example.",
	"80.2.0.192.in-addr.arpa. 60 IN PTR www.lab.example.",
	"service.lab.example. 60 IN A " + netns.ServiceV4,
	"service.lab.example. 60 IN AAAA " + netns.ServiceV6,
}

// DNS is a server on one or more addresses of a namespace.
type DNS struct {
	mu      sync.Mutex
	records map[string][]dns.RR
	servers []*dns.Server
	Queries atomic.Int64
}

// StartDNS listens on addr:53, UDP and TCP, for each address.
func StartDNS(ns *netns.NS, addrs ...string) (*DNS, error) {
	d := &DNS{records: map[string][]dns.RR{}}
	zone := append([]string{}, Zone...)
	for i := range 60 {
		zone = append(zone, fmt.Sprintf("big.lab.example. 60 IN A 192.0.2.%d", i+1))
	}
	for i := range 40 {
		zone = append(zone, fmt.Sprintf("huge.lab.example. 60 IN TXT \"%03d%s\"", i, strings.Repeat("x", 200)))
	}
	for _, line := range zone {
		rr, err := dns.NewRR(line)
		if err != nil {
			return nil, fmt.Errorf("zone line %q: %w", line, err)
		}
		d.records[rr.Header().Name] = append(d.records[rr.Header().Name], rr)
	}
	for _, a := range addrs {
		at := net.JoinHostPort(a, "53")
		l, err := ns.Listen("tcp", at)
		if err != nil {
			d.Close()
			return nil, err
		}
		u, err := ns.ListenUDP(at)
		if err != nil {
			l.Close()
			d.Close()
			return nil, err
		}
		for _, s := range []*dns.Server{{Listener: l, Handler: d}, {PacketConn: u, Handler: d}} {
			d.servers = append(d.servers, s)
			go func() { _ = s.ActivateAndServe() }()
		}
	}
	return d, nil
}

// Close stops the server.
func (d *DNS) Close() {
	for _, s := range d.servers {
		_ = s.Shutdown()
		if s.Listener != nil {
			s.Listener.Close()
		}
		if s.PacketConn != nil {
			s.PacketConn.Close()
		}
	}
}

// ServeDNS answers from the zone, truncated to what the asker can take.
func (d *DNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	d.Queries.Add(1)
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	if len(q.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		_ = w.WriteMsg(m)
		return
	}
	name := strings.ToLower(q.Question[0].Name)
	d.mu.Lock()
	rrs, known := d.records[name]
	for _, rr := range rrs {
		if c, ok := rr.(*dns.CNAME); ok {
			m.Answer = append(m.Answer, rr)
			rrs = d.records[c.Target]
		}
	}
	for _, rr := range rrs {
		if rr.Header().Rrtype == q.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	d.mu.Unlock()
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size := dns.MinMsgSize
		if o := q.IsEdns0(); o != nil {
			size = int(o.UDPSize())
			m.SetEdns0(1232, false)
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}
