package pasta

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"guestwire/cmd/config"
)

var hostNet = config.HostNet{
	V4: netip.MustParsePrefix("192.0.2.7/24"), Gw4: netip.MustParseAddr("192.0.2.1"), Interface4: "eth0",
	V6: netip.MustParsePrefix("2001:db8::7/64"), Gw6: netip.MustParseAddr("fe80::1"), Interface6: "eth0", MTU: 1500,
}

// The command lines of those who start pasta, as they write them.
func TestConsumers(t *testing.T) {
	auto, host := []string{"auto"}, []string{"host"}
	for _, c := range []struct {
		name, args string
		want       Options
	}{
		{"podman", "--config-net --dns-forward 169.254.1.1 -t none -u none -T none -U none --no-map-gw --quiet --netns /run/user/1000/netns/netns-1 --map-guest-addr 169.254.1.2",
			Options{Path: "/run/user/1000/netns/netns-1", NoMapGW: true, LogLevel: "error", Netns: config.NetnsOptions{ConfigNet: true,
				Net: config.Options{FD: -1, Addresses: host, DNSForward: []string{"169.254.1.1"}, MapGuestAddr: []string{"169.254.1.2"}}}}},
		{"podman, with a port", "--config-net -t 127.0.0.1/8080-8081:80-81 --dns-forward 169.254.1.1 -u none -T none -U none --no-map-gw --quiet --netns /n --map-host-loopback 169.254.1.2",
			Options{Path: "/n", NoMapGW: true, LogLevel: "error", Netns: config.NetnsOptions{ConfigNet: true,
				Net: config.Options{FD: -1, Addresses: host, DNSForward: []string{"169.254.1.1"}, MapHostLoopback: []string{"169.254.1.2"}, TCPPorts: []string{"127.0.0.1/8080-8081:80-81"}}}}},
		{"rootlesskit", "--stderr --ns-ifname=tap0 --mtu=65520 --config-net --address=10.0.2.100 --netmask=24 --gateway=10.0.2.2 --dns-forward=10.0.2.3 --no-map-gw --ipv4-only --tcp-ports=auto --udp-ports=auto 4711",
			Options{PID: 4711, NoMapGW: true, LogLevel: "info", Netns: config.NetnsOptions{ConfigNet: true, IfName: "tap0", TCPOut: auto, UDPOut: auto,
				Net: config.Options{FD: -1, MTU: 65520, IPv4Only: true, Addresses: []string{"10.0.2.100/24"}, Gateways: []string{"10.0.2.2"}, DNSForward: []string{"10.0.2.3"}, TCPPorts: auto, UDPPorts: auto}}}},
		{"rootlesskit, detached", "--stderr --ns-ifname=tap0 --mtu=1500 --config-net --address=10.0.2.100 --netmask=255.255.255.0 --gateway=10.0.2.2 --dns-forward=10.0.2.3 --tcp-ports=none --udp-ports=none --userns=/proc/4711/ns/user --netns=/n",
			Options{Path: "/n", LogLevel: "info", Netns: config.NetnsOptions{ConfigNet: true, IfName: "tap0", TCPOut: auto, UDPOut: auto,
				Net: config.Options{FD: -1, MTU: 1500, Addresses: []string{"10.0.2.100/24"}, Gateways: []string{"10.0.2.2"}, DNSForward: []string{"10.0.2.3"}}}}},
		{"getopt's short forms", "-qf4 -t8080 -t 9090:90 -unone -I eth7 -m9000 -- ls -l",
			Options{Foreground: true, Command: []string{"ls", "-l"}, LogLevel: "error", Netns: config.NetnsOptions{IfName: "eth7", TCPOut: auto, UDPOut: auto,
				Net: config.Options{FD: -1, IPv4Only: true, MTU: 9000, Addresses: host, TCPPorts: []string{"8080", "9090:90"}}}}},
		{"a command ends the options", "-d ping -c 1 ::1",
			Options{Command: []string{"ping", "-c", "1", "::1"}, LogLevel: "debug", Netns: config.NetnsOptions{TCPOut: auto, UDPOut: auto,
				Net: config.Options{FD: -1, Addresses: host, TCPPorts: auto, UDPPorts: auto}}}},
		{"a shell, and what has no effect", "-e --trace --no-splice --no-copy-routes --runas 1000:1000 --ns-mac-addr 02:00:00:00:00:01 -i eth0 -D none -S none",
			Options{LogLevel: "info", RunAs: "1000:1000", Netns: config.NetnsOptions{TCPOut: auto, UDPOut: auto,
				Net: config.Options{FD: -1, Addresses: host, TCPPorts: auto, UDPPorts: auto}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(strings.Fields(c.args))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Command) == 0 {
				got.Command = nil
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("got  %+v\nwant %+v", *got, c.want)
			}
			if _, err := config.ResolveNetns(&got.Netns, func() (config.HostNet, error) { return hostNet, nil }); err != nil {
				t.Errorf("it does not resolve: %v", err)
			}
		})
	}
}

// What is wrong is said as getopt_long(3) does, where it is getopt's to say.
func TestErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--map-everything 1":             "unrecognized option '--map-everything'",
		"-t 80 -Z":                       "invalid option -- 'Z'",
		"--mtu":                          "option '--mtu' requires an argument",
		"-q -t":                          "option requires an argument -- 't'",
		"--mtu many":                     "--mtu",
		"--netns /a 17":                  "both --netns and \"17\"",
		"--map-gw --no-map-gw":           "exclude each other",
		"-n 24":                          "--address",
		"-a 10.0.0.1 -n 255.0.255.0":     "--netmask",
		"-a 10.0.0.1 --netmask twenty":   "--netmask",
		"-a 10.0.0.1 -n 256.255.255.255": "--netmask",
	} {
		if _, err := Parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestMask(t *testing.T) {
	for s, want := range map[string]int{"24": 24, "255.255.255.0": 24, "255.255.254.0": 23, "128.0.0.0": 1, "255.255.255.254": 31} {
		if got, err := maskBits(s); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", s, got, err, want)
		}
	}
}
