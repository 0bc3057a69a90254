package config

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func noHost() (HostNet, error) { return HostNet{}, errors.New("not asked for") }

func TestDefaultsAreThoseOfQEMUUserNetworking(t *testing.T) {
	n, err := Resolve(&Options{SocketPath: "/s", FD: -1}, noHost)
	if err != nil {
		t.Fatal(err)
	}
	// QEMU documentation, "Using the user mode network stack".
	for _, tt := range []struct{ what, got, want string }{
		{"guest", n.V4.Guest.String(), "10.0.2.15/24"},
		{"gateway", n.V4.Gateway.String(), "10.0.2.2"},
		{"resolver", n.V4.DNS.String(), "10.0.2.3"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %s, want %s", tt.what, tt.got, tt.want)
		}
	}
	if !n.V6.Guest.Addr().IsPrivate() || n.V6.Guest.Bits() != 64 {
		t.Errorf("IPv6 guest is %s, want an address of a ULA /64", n.V6.Guest)
	}
	if n.MTU != 1500 || n.Transport != VhostUser || n.Profile != "qemu" {
		t.Errorf("got MTU %d, transport %s, profile %s", n.MTU, n.Transport, n.Profile)
	}
}

func TestAddressing(t *testing.T) {
	host := func() (HostNet, error) {
		return HostNet{V4: netip.MustParsePrefix("192.0.2.7/24"), Gw4: netip.MustParseAddr("192.0.2.1")}, nil
	}
	for _, tt := range []struct {
		name      string
		o         Options
		guest, gw string
		dns       string
	}{
		{"own IPv4", Options{Addresses: []string{"192.168.5.9/24"}}, "192.168.5.9/24", "192.168.5.2", "192.168.5.3"},
		{"guest takes the gateway's place", Options{Addresses: []string{"192.168.5.2/24"}}, "192.168.5.2/24", "192.168.5.1", "192.168.5.3"},
		{"without a prefix", Options{Addresses: []string{"192.168.5.9"}}, "192.168.5.9/24", "192.168.5.2", "192.168.5.3"},
		{"small prefix", Options{Addresses: []string{"192.168.5.9/30"}}, "192.168.5.9/30", "192.168.5.10", "192.168.5.10"},
		{"guest in the middle", Options{Addresses: []string{"192.168.5.10/30"}}, "192.168.5.10/30", "192.168.5.9", "192.168.5.9"},
		{"own gateway", Options{Gateways: []string{"10.0.2.1"}}, "10.0.2.15/24", "10.0.2.1", "10.0.2.3"},
		{"the host's", Options{Addresses: []string{"host"}}, "192.0.2.7/24", "192.0.2.1", "10.0.2.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.SocketPath, tt.o.FD = "/s", -1
			n, err := Resolve(&tt.o, host)
			if err != nil {
				t.Fatal(err)
			}
			if n.V4.Guest.String() != tt.guest || n.V4.Gateway.String() != tt.gw || n.V4.DNS.String() != tt.dns {
				t.Errorf("got guest %s gateway %s resolver %s, want %s %s %s", n.V4.Guest, n.V4.Gateway, n.V4.DNS, tt.guest, tt.gw, tt.dns)
			}
		})
	}
}

// Every wrong option is answered by its name, its value, and a way out.
func TestWrongOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		says []string
	}{
		{"nowhere to connect", Options{}, []string{"--socket-path", "--fd"}},
		{"two places", Options{SocketPath: "/s", FD: 3}, []string{"not both"}},
		{"long path", Options{SocketPath: "/" + strings.Repeat("x", 120)}, []string{"107"}},
		{"transport", Options{Transport: "tap"}, []string{"--transport", "tap", "vhost-user", "stream"}},
		{"profile", Options{Profile: "xen"}, []string{"--profile", "xen", "uml"}},
		{"address", Options{Addresses: []string{"10.0.2"}}, []string{"--address", "10.0.2", "10.0.2.15/24"}},
		{"loopback address", Options{Addresses: []string{"127.0.0.1/8"}}, []string{"unicast"}},
		{"no room", Options{Addresses: []string{"10.0.0.1/32"}}, []string{"/30"}},
		{"the network", Options{Addresses: []string{"10.0.0.0/8"}}, []string{"--address", "10.0.0.1/8"}},
		{"the IPv6 network", Options{Addresses: []string{"fd00::/64"}}, []string{"fd00::1/64"}},
		{"broadcast address", Options{Addresses: []string{"10.255.255.255/8"}}, []string{"broadcast", "10.0.0.1/8"}},
		{"two of a family", Options{Addresses: []string{"10.0.0.1/24", "10.0.1.1/24"}}, []string{"second"}},
		{"off family", Options{Addresses: []string{"fd00::1/64"}, IPv4Only: true}, []string{"--ipv4-only"}},
		{"both only", Options{IPv4Only: true, IPv6Only: true}, []string{"--ipv4-only"}},
		{"gateway is the guest", Options{Gateways: []string{"10.0.2.15"}}, []string{"--gateway", "10.0.2.15"}},
		{"MAC", Options{MAC: "52:55"}, []string{"--mac-addr", "52:55:0a:00:02:02"}},
		{"multicast MAC", Options{MAC: "01:00:5e:00:00:01"}, []string{"multicast"}},
		{"small MTU", Options{MTU: 576}, []string{"--mtu", "576", "1280"}},
		{"large MTU", Options{MTU: 70000}, []string{"65520"}},
		{"flows", Options{MaxFlows: 3}, []string{"--max-flows", "16"}},
		{"host name", Options{Hostname: strings.Repeat("x", 64)}, []string{"--hostname", "63"}},
		{"host name with a blank", Options{Hostname: "my vm"}, []string{"--hostname", "my vm", "letters"}},
		{"FQDN with an empty label", Options{FQDN: "vm..example"}, []string{"--fqdn", "labels"}},
		{"search domain", Options{Search: []string{""}}, []string{"--search", "lan.example"}},
		{"resolver with a zone", Options{DNS: []string{"fe80::1%eth0"}}, []string{"--dns", "zone"}},
		{"loopback map", Options{MapHostLoopback: []string{"localhost"}}, []string{"--map-host-loopback", "10.0.2.2"}},
		{"ports", Options{TCPPorts: []string{"80800"}}, []string{"--tcp-ports", "80800", "65535"}},
		{"UDP ports", Options{UDPPorts: []string{"a:b"}}, []string{"--udp-ports"}},
		{"resolver", Options{DNSHost: []string{"dns.example"}}, []string{"--dns-host", "dns.example"}},
		{"outbound", Options{Outbound: []string{"eth0"}}, []string{"--outbound", "--outbound-if4"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.o.FD == 0 {
				tt.o.FD = -1
			}
			if tt.o.SocketPath == "" && tt.name != "nowhere to connect" {
				tt.o.SocketPath = "/s"
			}
			_, err := Resolve(&tt.o, noHost)
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("10.0.2.15/24", "10.0.2.2", "8080:80", "52:55:0a:00:02:02", "1.1.1.1:53", 1500)
	f.Add("fd00::1/64", "fe80::1", "127.0.0.1/1-10,~5", "", "[::1]:53", 65520)
	f.Add("host", "::", "all", "ff:ff:ff:ff:ff:ff", "::", -1)
	f.Fuzz(func(t *testing.T, address, gateway, ports, mac, dns string, mtu int) {
		o := &Options{SocketPath: "/s", FD: -1, Addresses: []string{address}, Gateways: []string{gateway},
			TCPPorts: []string{ports}, UDPPorts: []string{ports}, MAC: mac, DNSHost: []string{dns}, MTU: mtu}
		n, err := Resolve(o, noHost)
		if err != nil {
			return
		}
		if n.V4.Enabled && n.V4.Guest.Addr() == n.V4.Gateway || n.V6.Enabled && n.V6.Guest.Addr() == n.V6.Gateway {
			t.Errorf("guest and gateway share an address: %+v", n)
		}
		if n.MTU < MinMTU || n.MTU > MaxMTU || n.MAC[0]&1 != 0 {
			t.Errorf("out of range: MTU %d, MAC %x", n.MTU, n.MAC)
		}
	})
}

// The host's own address under another, for guests that have the same one.
func TestMapGuestAddr(t *testing.T) {
	host := func() (HostNet, error) { return HostNet{V4: netip.MustParsePrefix("192.0.2.7/24")}, nil }
	n, err := Resolve(&Options{SocketPath: "/s", FD: -1, MapGuestAddr: []string{"169.254.1.2", "fd00::99"}}, host)
	if err != nil {
		t.Fatal(err)
	}
	want := []AddrMap{{netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("192.0.2.7")}} // this host has no IPv6
	if !slices.Equal(n.MapHost, want) {
		t.Errorf("%v, want %v", n.MapHost, want)
	}
	for _, s := range []string{"host", "127.0.0.1", "224.0.0.1", "fe80::1%eth0", "0.0.0.0"} {
		if _, err := Resolve(&Options{SocketPath: "/s", FD: -1, MapGuestAddr: []string{s}}, host); err == nil || !strings.Contains(err.Error(), "--map-guest-addr") {
			t.Errorf("%s: %v", s, err)
		}
	}
}
