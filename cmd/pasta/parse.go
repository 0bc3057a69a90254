package pasta

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"guestwire/cmd/config"
)

// Options is a command line of pasta.
type Options struct {
	Netns   config.NetnsOptions
	Path    string   // of the namespace, or its name: --netns; "": PID or Command
	PID     int      // 0: none
	Command []string // with neither of them; empty: a shell

	NoMapGW    bool // the gateway's address does not lead to the host's loopback
	Foreground bool
	PIDFile    string
	LogFile    string
	LogLevel   string // as --log-level
	RunAs      string // a user to become, which we do not

	Help, Version bool
}

// Foreign says whether it is about a namespace that exists.
func (o *Options) Foreign() bool { return o.Path != "" || o.PID != 0 }

// Parse reads args, which do not begin with the program's name.
func Parse(args []string) (*Options, error) {
	o := &Options{LogLevel: "info"}
	n := &o.Netns
	n.Net.FD = -1
	f := pflag.NewFlagSet("pasta", pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.SortFlags = false
	f.Usage = func() {}
	var quiet, debug, mapGW bool
	var netmask string
	for _, x := range []struct {
		p          *bool
		name, char string
	}{
		{&quiet, "quiet", "q"}, {&debug, "debug", "d"}, {&o.Foreground, "foreground", "f"}, {&o.Help, "help", "h"}, {&o.Version, "version", ""},
		{&n.Net.IPv4Only, "ipv4-only", "4"}, {&n.Net.IPv6Only, "ipv6-only", "6"},
		{&n.Net.Off.TCP, "no-tcp", ""}, {&n.Net.Off.UDP, "no-udp", ""}, {&n.Net.Off.ICMP, "no-icmp", ""}, {&n.Net.Off.DHCP, "no-dhcp", ""},
		{&n.Net.Off.DHCPv6, "no-dhcpv6", ""}, {&n.Net.Off.NDP, "no-ndp", ""}, {&n.Net.Off.RA, "no-ra", ""},
		{&o.NoMapGW, "no-map-gw", ""}, {&mapGW, "map-gw", ""}, {&n.ConfigNet, "config-net", ""}, {&n.LoopToLoop, "host-lo-to-ns-lo", ""},
	} {
		f.BoolVarP(x.p, x.name, x.char, false, "")
	}
	for _, x := range []struct {
		p          *string
		name, char string
	}{
		{&o.LogFile, "log-file", "l"}, {&o.PIDFile, "pid", "P"}, {&netmask, "netmask", "n"}, {&n.Net.MAC, "mac-addr", "M"},
		{&n.Net.OutboundIf4, "outbound-if4", ""}, {&n.Net.OutboundIf6, "outbound-if6", ""}, {&n.Net.Hostname, "hostname", "H"}, {&n.Net.FQDN, "fqdn", ""},
		{&n.IfName, "ns-ifname", "I"}, {&o.Path, "netns", ""}, {&n.Net.Pcap, "pcap", "p"}, {&o.RunAs, "runas", ""},
	} {
		f.StringVarP(x.p, x.name, x.char, "", "")
	}
	for _, x := range []struct {
		p          *[]string
		name, char string
	}{
		{&n.Net.Addresses, "address", "a"}, {&n.Net.Gateways, "gateway", "g"}, {&n.Net.Outbound, "outbound", "o"}, {&n.Net.DNS, "dns", "D"}, {&n.Net.Search, "search", "S"},
		{&n.Net.DNSForward, "dns-forward", ""}, {&n.Net.DNSHost, "dns-host", ""}, {&n.Net.MapHostLoopback, "map-host-loopback", ""}, {&n.Net.MapGuestAddr, "map-guest-addr", ""},
		{&n.Net.TCPPorts, "tcp-ports", "t"}, {&n.Net.UDPPorts, "udp-ports", "u"}, {&n.TCPOut, "tcp-ns", "T"}, {&n.UDPOut, "udp-ns", "U"},
	} {
		f.StringArrayVarP(x.p, x.name, x.char, nil, "")
	}
	f.IntVarP(&n.Net.MTU, "mtu", "m", 0, "")
	// What guestwire has not, or does anyway.
	for i, name := range []string{"stderr", "trace", "no-copy-routes", "no-copy-addrs", "no-splice", "no-dhcp-dns", "no-dhcp-search", "freebind", "netns-only", "no-netns-quit"} {
		f.BoolP(name, map[int]string{0: "e"}[i], false, "")
	}
	f.StringP("interface", "i", "", "") // the interface with the default route is what counts
	for _, name := range []string{"userns", "log-size", "ns-mac-addr"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return nil, spoken(err)
	}
	if mapGW && o.NoMapGW {
		return nil, errors.New("--map-gw and --no-map-gw exclude each other: give one of them")
	}
	switch {
	case debug:
		o.LogLevel = "debug"
	case quiet:
		o.LogLevel = "error"
	}
	for _, step := range []func() error{
		func() error { return o.addresses(netmask) },
		o.resolvers, o.maps, o.ports,
		func() error { return o.target(f.Args()) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// spoken is an error as getopt_long(3) says it.
func spoken(err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("invalid option -- '%s'", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		return fmt.Errorf("unrecognized option '--%s'", unknown.GetSpecifiedName())
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() != "":
		return fmt.Errorf("option requires an argument -- '%s'", missing.GetSpecifiedName())
	case errors.As(err, &missing):
		return fmt.Errorf("option '--%s' requires an argument", missing.GetSpecifiedName())
	}
	return err
}

// addresses brings --netmask, dotted or a length, to the IPv4 address; without any
// address the host's are copied.
func (o *Options) addresses(netmask string) error {
	n := &o.Netns.Net
	if len(n.Addresses) == 0 {
		n.Addresses = []string{"host"}
		if netmask != "" {
			return errors.New("--netmask is about --address: give that too")
		}
		return nil
	}
	if netmask == "" {
		return nil
	}
	bits, err := maskBits(netmask)
	if err != nil {
		return err
	}
	for i, a := range n.Addresses {
		if !strings.ContainsAny(a, ":/") {
			n.Addresses[i] = fmt.Sprintf("%s/%d", a, bits)
		}
	}
	return nil
}

func maskBits(s string) (int, error) {
	if bits, err := strconv.Atoi(s); err == nil && bits > 0 && bits < 32 {
		return bits, nil
	}
	var b [4]uint32
	if n, err := fmt.Sscanf(s, "%d.%d.%d.%d", &b[0], &b[1], &b[2], &b[3]); err == nil && n == 4 && b[0]|b[1]|b[2]|b[3] < 256 {
		mask := b[0]<<24 | b[1]<<16 | b[2]<<8 | b[3]
		for bits := 1; bits < 32; bits++ {
			if mask == ^uint32(0)<<(32-bits) {
				return bits, nil
			}
		}
	}
	return 0, fmt.Errorf("--netmask %q: write a prefix length or a mask, like 24 or 255.255.255.0", s)
}

// resolvers takes "none" as pasta does: the option is there and gives nothing.
func (o *Options) resolvers() error {
	n := &o.Netns.Net
	n.DNS, n.Search = without(n.DNS, "none"), without(n.Search, "none")
	return nil
}

// maps are the addresses under which the host can be reached. The gateway's own
// follows when it is known (Gateway).
func (o *Options) maps() error {
	n := &o.Netns.Net
	if len(n.MapHostLoopback) > 0 {
		o.NoMapGW = true
	}
	n.MapHostLoopback, n.MapGuestAddr = without(n.MapHostLoopback, "none"), without(n.MapGuestAddr, "none")
	return nil
}

// ports: what is not said is auto, and "none" is nothing.
func (o *Options) ports() error {
	n := &o.Netns
	for _, p := range []*[]string{&n.Net.TCPPorts, &n.Net.UDPPorts, &n.TCPOut, &n.UDPOut} {
		switch {
		case len(*p) == 0:
			*p = []string{"auto"}
		default:
			*p = without(*p, "none")
		}
	}
	return nil
}

func without(list []string, word string) (rest []string) {
	for _, s := range list {
		if s != word {
			rest = append(rest, s)
		}
	}
	return rest
}

// target reads the words behind the options: a PID, or a command.
func (o *Options) target(words []string) error {
	if o.Path != "" {
		if len(words) > 0 {
			return fmt.Errorf("both --netns and %q given: name the namespace once", words[0])
		}
		return nil
	}
	if len(words) == 1 {
		if pid, err := strconv.Atoi(words[0]); err == nil && pid > 0 {
			o.PID = pid
			return nil
		}
	}
	o.Command = words
	return nil
}
