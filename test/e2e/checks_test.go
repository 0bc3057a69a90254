package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/traffic"
)

const bulk = 64 << 20

// configure brings the guest onto the network with its own DHCP client and the kernel's SLAAC.
func (e *env) configure(t *testing.T) {
	t.Helper()
	e.sh(t, "ip link set eth0 up")
	e.sh(t, "udhcpc -i eth0 -n -q -t 10 -T 1 -O mtu -O search -x hostname:testguest")
	e.sh(t, "for i in $(seq 50); do ip -6 addr show dev eth0 scope global | grep -q 'inet6 fd' && exit 0; sleep 0.2; done; ip -6 addr; exit 1")
	// Duplicate address detection of the link-local address takes a second; the default route comes with the router advertisement.
	e.sh(t, "for i in $(seq 50); do ip -6 addr show dev eth0 | grep -q tentative || exit 0; sleep 0.1; done; ip -6 addr; exit 1")
}

func checkDHCP(t *testing.T, e *env) {
	e.configure(t)
	if addr := e.sh(t, "ip -4 addr show dev eth0"); !strings.Contains(addr, backend.Guest4+"/24") {
		t.Errorf("address: %s", addr)
	}
	if route := e.sh(t, "ip route show default"); !strings.Contains(route, "via "+backend.Gateway4) {
		t.Errorf("route: %s", route)
	}
	lease := e.sh(t, "cat /tmp/dhcp.bound")
	for _, want := range []string{"dns=" + backend.DNS4, "subnet=255.255.255.0", "router=" + backend.Gateway4, "search=lab.example"} {
		if !strings.Contains(lease, want) {
			t.Errorf("lease lacks %q:\n%s", want, lease)
		}
	}
	if got, want := e.sh(t, "cat /sys/class/net/eth0/mtu"), fmt.Sprint(e.d.Config.MTU); got != want {
		t.Errorf("MTU %s, want %s", got, want)
	}
	// Taking the lease again, by a client that knows its address, gives the same.
	e.sh(t, "udhcpc -i eth0 -n -q -t 10 -T 1 -r "+backend.Guest4)
	// A wish for another network's address is refused and ends in our address all the same.
	e.sh(t, "udhcpc -i eth0 -n -q -t 10 -T 1 -r 192.168.77.7")
	if addr := e.sh(t, "ip -4 addr show dev eth0"); !strings.Contains(addr, backend.Guest4+"/24") {
		t.Errorf("address after the second lease: %s", addr)
	}
	e.sh(t, "cat /tmp/resolv.new > /etc/resolv.conf")
}

func checkIPv6(t *testing.T, e *env) {
	if addr := e.sh(t, "ip -6 addr show dev eth0 scope global"); !strings.Contains(addr, backend.Prefix6) {
		t.Errorf("SLAAC: %s", addr)
	}
	if route := e.sh(t, "ip -6 route show default"); !strings.Contains(route, "via fe80::") {
		t.Errorf("route: %s", route)
	}
	if !passt() { // it has not seen that address yet
		d := traffic.Dialer(func() (net.Conn, error) {
			return e.w.Peer.Dial("tcp", net.JoinHostPort(netns.HostV6, fmt.Sprint(forwardPort)))
		})
		if err := traffic.Get(d, 1<<20, 9, 10*time.Second); err != nil {
			t.Errorf("a forward to a guest that has only its SLAAC address: %v", err)
		}
	}
	reply := e.sh(t, "guestprog dhcp6 eth0")
	for _, want := range []string{"address=" + backend.Guest6, "dns=" + backend.DNS6} {
		if !strings.Contains(reply, want) {
			t.Errorf("DHCPv6 reply lacks %q:\n%s", want, reply)
		}
	}
	// As a DHCPv6 client does with what it got.
	e.sh(t, "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad; ip -6 addr add "+backend.Guest6+"/128 dev eth0")
	if want := "rapid-address=" + backend.Guest6; !passt() && !strings.Contains(reply, want) {
		t.Errorf("DHCPv6 reply lacks %q:\n%s", want, reply)
	}
}

func checkPing(t *testing.T, e *env) {
	for _, a := range []string{backend.Gateway4, netns.ServiceV4, netns.FarV4, netns.ServiceV6, netns.FarV6} {
		if a == backend.Gateway4 && passt() {
			continue // nothing is behind that address there
		}
		e.sh(t, "ping -c 3 -i 0.2 -W 3 "+a)
		e.sh(t, "ping -c 2 -i 0.2 -W 3 -s 1400 "+a)
	}
	gw := strings.Fields(e.sh(t, "ip -6 route show default"))
	e.sh(t, "ping -c 2 -W 3 "+gw[2]+"%eth0")
}

// service is a traffic server as the guest writes its address.
func service(addr string) string { return net.JoinHostPort(addr, fmt.Sprint(hostsvc.Port)) }

var families = []struct{ name, addr string }{{"IPv4", netns.ServiceV4}, {"IPv6", netns.ServiceV6}}

// checkBulk moves 64 MiB each way and compares hashes.
func checkBulk(t *testing.T, e *env) {
	for _, f := range families {
		for _, way := range []string{"get", "put"} {
			out := e.shFor(t, 4*time.Minute, fmt.Sprintf("guestprog %s %s %d 42", way, service(f.addr), bulk))
			t.Logf("%s %s: %s", f.name, way, out)
		}
	}
}

func checkClosing(t *testing.T, e *env) {
	for _, f := range families {
		s := service(f.addr)
		e.sh(t, fmt.Sprintf("guestprog half %s 300000 5 out-%s", s, f.name))
		e.sh(t, "guestprog reset-in "+s)
		e.sh(t, fmt.Sprintf("guestprog reset-out %s rst-%s", s, f.name))
		e.sh(t, "guestprog refused "+net.JoinHostPort(f.addr, "9"))
	}
}

func checkUDP(t *testing.T, e *env) {
	for _, f := range families {
		e.sh(t, "guestprog udp-sizes "+service(f.addr)+peerSizes())
	}
}

// peerSizes limits the datagrams to what passt carries: no fragments.
func peerSizes() string {
	if passt() {
		return " 1 100 1400"
	}
	return ""
}

func checkParallel(t *testing.T, e *env) {
	e.shFor(t, 2*time.Minute, fmt.Sprintf("guestprog parallel %s 500 4096", service(netns.ServiceV4)))
	e.shFor(t, 2*time.Minute, fmt.Sprintf("guestprog parallel %s 500 4096", service(netns.ServiceV6)))
	// Inbound: all 500 through the forward.
	d := traffic.Dialer(func() (net.Conn, error) { return e.w.Peer.Dial("tcp", fmt.Sprintf("%s:%d", netns.HostV4, forwardPort)) })
	if err := traffic.Parallel(d, 500, 4096, time.Minute); err != nil {
		t.Errorf("inbound: %v", err)
	}
}

var dnsRows = []struct{ name, kind, want string }{
	{"www.lab.example", "A", "192.0.2.80"},
	{"www.lab.example", "AAAA", "2001:db8:80::80"},
	{"multi.lab.example", "A", "192.0.2.1\n192.0.2.2"},
	{"lab.example", "MX", "10 mail.lab.example."},
	{"lab.example", "TXT", "first string|second"},
	{"80.2.0.192.in-addr.arpa", "PTR", "www.lab.example."},
	{"_sip._udp.lab.example", "SRV", "5 6 5060 sip.lab.example."},
	{"lab.example", "CAA", "257 00056973737565" + "63612e6578616d706c65"},
	{"alias.lab.example", "A", "192.0.2.80\nCNAME www.lab.example."},
	{"nothing.lab.example", "A", "RCodeNameError"},
}

func checkDNS(t *testing.T, e *env) {
	servers := []string{backend.DNS4, backend.DNS6}
	for _, server := range servers {
		for _, network := range []string{"udp", "tcp"} {
			if network == "tcp" && passt() {
				continue
			}
			for _, r := range dnsRows {
				if got := e.sh(t, fmt.Sprintf("guestprog dns %s %s %s %s", network, server, r.name, r.kind)); got != r.want {
					t.Errorf("%s %s %s %s: %q, want %q", network, server, r.name, r.kind, got, r.want)
				}
			}
		}
		if got := e.sh(t, fmt.Sprintf("guestprog dns udp %s big.lab.example A", server)); !strings.HasPrefix(got, "truncated") {
			t.Errorf("an answer that does not fit comes without the truncation bit: %q", got)
		}
		if passt() {
			continue
		}
		if got := e.sh(t, fmt.Sprintf("guestprog dns tcp %s huge.lab.example TXT", server)); strings.Count(got, "\n") != 39 {
			t.Errorf("TCP: %d lines of 40", strings.Count(got, "\n")+1)
		}
	}
	if e.g.Name == "uml" { // the resolver library and dig, with EDNS
		if got := e.sh(t, "dig +short +tries=2 www.lab.example AAAA"); got != "2001:db8:80::80" {
			t.Errorf("dig: %q", got)
		}
		if got := e.sh(t, "getent ahostsv4 www"); !strings.HasPrefix(got, "192.0.2.80") {
			t.Errorf("search domain: %q", got)
		}
	}
}

func checkTraceroute(t *testing.T, e *env) {
	if passt() {
		t.Skip("the peer does not promise it")
	}
	for _, a := range []struct{ tool, dst, router, alias string }{
		{"traceroute", netns.FarV4, netns.GatewayV4, netns.ServiceV4}, {"traceroute6", netns.FarV6, netns.GatewayV6, netns.ServiceV6},
	} {
		out := e.sh(t, a.tool+" -n -q 2 -w 2 -m 6 "+a.dst)
		lines := strings.Split(out, "\n")
		// The router answers from either of its two addresses.
		if !(strings.Contains(out, a.router+" ") || strings.Contains(out, a.alias+" ")) || !strings.Contains(lines[len(lines)-1], a.dst) {
			t.Errorf("the router and then %s should appear:\n%s", a.dst, out)
		}
	}
}

// checkForwards goes from the network into the guest.
func checkForwards(t *testing.T, e *env) {
	for _, f := range []struct{ name, from, to string }{
		{"IPv4", netns.ServiceV4, netns.HostV4}, {"IPv6", netns.ServiceV6, netns.HostV6},
	} {
		at := net.JoinHostPort(f.to, fmt.Sprint(forwardPort))
		d := traffic.Dialer(func() (net.Conn, error) { return e.w.Peer.DialFrom("tcp", net.JoinHostPort(f.from, "0"), at) })
		const limit = 30 * time.Second
		for name, check := range map[string]func() error{
			"get": func() error { return traffic.Get(d, 8<<20, 3, limit) }, "put": func() error { return traffic.Put(d, 8<<20, 4, limit) },
			"half-close":          func() error { return traffic.Half(d, 300000, 6, "in"+f.name, limit) },
			"reset by the guest":  func() error { return traffic.ResetByServer(d, limit) },
			"reset by the client": func() error { return traffic.ResetByClient(d, "inrst"+f.name, limit) },
		} {
			if err := check(); err != nil {
				t.Errorf("%s %s: %v", f.name, name, err)
			}
		}
		if got, err := traffic.Ask(d, "peer", limit); err != nil || !sameHost(got, f.from) {
			t.Errorf("%s: the guest sees %q, want the client's %s (%v)", f.name, got, f.from, err)
		}
		u, err := e.w.Peer.DialFrom("udp", net.JoinHostPort(f.from, "0"), at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := traffic.AskUDP(u, "peer"); err != nil || !sameHost(got, f.from) {
			t.Errorf("%s UDP: the guest sees %q, want the client's %s (%v)", f.name, got, f.from, err)
		}
		sizes := traffic.UDPSizes
		if passt() {
			sizes = []int{1, 100, 1400}
		}
		if err := traffic.EchoSizes(u, sizes); err != nil {
			t.Errorf("%s UDP: %v", f.name, err)
		}
		u.Close()
	}
	// From the host itself: the guest cannot be shown a loopback address, it sees the gateway.
	d := traffic.Dialer(func() (net.Conn, error) { return e.w.Host.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", forwardPort)) })
	if got, err := traffic.Ask(d, "peer", 10*time.Second); err != nil || !sameHost(got, backend.Gateway4) {
		t.Errorf("from the host's loopback the guest sees %q, want %s (%v)", got, backend.Gateway4, err)
	}
}

func sameHost(addrPort, addr string) bool {
	ap, err := netip.ParseAddrPort(addrPort)
	return err == nil && ap.Addr().Unmap() == netip.MustParseAddr(addr)
}

// checkLoopback: the host's loopback is not the guest's business unless a flag says so.
func checkLoopback(t *testing.T, e *env) {
	for _, a := range []string{backend.Gateway4, backend.Gateway6} {
		if out, exit := e.g.Run("guestprog ask " + service(a) + " peer"); exit == 0 {
			t.Errorf("the guest reached the host's loopback by %s: %s", a, out)
		}
	}
}
