package main

import (
	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
)

// attachFlags say how the guest reaches us; `run` chooses these by itself.
func attachFlags() []cli.Flag {
	const cat = "Attachment"
	return []cli.Flag{
		&cli.StringFlag{Name: "socket-path", Aliases: []string{"s", "socket"}, Usage: "listen for the guest's VMM on the UNIX socket `PATH`", Category: cat},
		&cli.IntFlag{Name: "fd", Value: -1, DefaultText: "none", Usage: "use the connected or listening UNIX socket that is open as file descriptor `N`", Category: cat},
		&cli.BoolFlag{Name: "client", Usage: "connect to --socket-path (the VMM listens) instead of listening, and reconnect when it leaves", Category: cat},
		&cli.BoolFlag{Name: "print-capabilities", Usage: "print the vhost-user backend capabilities as JSON and exit", Category: cat},
	}
}

// netFlags are the options of a NIC, shared by `net` and `run`.
func netFlags() []cli.Flag {
	var flags []cli.Flag
	for _, group := range [][]cli.Flag{transportFlags(), addressFlags(), dnsFlags(), forwardFlags(), offFlags(), deviceFlags(), otherFlags()} {
		flags = append(flags, group...)
	}
	return flags
}

func transportFlags() []cli.Flag {
	const cat = "Transport"
	return []cli.Flag{
		&cli.StringFlag{Name: "transport", Value: "vhost-user", Usage: "`KIND` of attachment: vhost-user (shared memory) or stream (QEMU's -netdev stream)", Category: cat},
		&cli.StringFlag{Name: "profile", Value: "qemu", Usage: "feature `SET` offered: qemu, uml (User Mode Linux) or generic (cloud-hypervisor, crosvm)", Category: cat},
	}
}

func addressFlags() []cli.Flag {
	const cat = "Addressing"
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "address", Aliases: []string{"a"}, Usage: "the guest's `ADDRESS/PREFIX`, once for IPv4 and once for IPv6; host copies the host's own addresses and routers", DefaultText: "10.0.2.15/24, fd67:7765:7374::15/64", Category: cat},
		&cli.StringSliceFlag{Name: "gateway", Aliases: []string{"g"}, Usage: "the guest's router `ADDRESS`", DefaultText: "the second address of the prefix", Category: cat},
		&cli.StringFlag{Name: "mac-addr", Aliases: []string{"M"}, Usage: "the router's `MAC` address as the guest sees it", DefaultText: "52:55:0a:00:02:02", Category: cat},
		&cli.IntFlag{Name: "mtu", Aliases: []string{"m"}, Value: config.DefaultMTU, Usage: "MTU in `BYTES` that is announced to the guest", Category: cat},
		&cli.BoolFlag{Name: "ipv4-only", Aliases: []string{"4"}, Usage: "no IPv6", Category: cat},
		&cli.BoolFlag{Name: "ipv6-only", Aliases: []string{"6"}, Usage: "no IPv4", Category: cat},
		&cli.StringFlag{Name: "hostname", Aliases: []string{"H"}, Usage: "host `NAME` that DHCP gives to the guest", Category: cat},
		&cli.StringFlag{Name: "fqdn", Usage: "fully qualified `NAME` that DHCP and DHCPv6 give to the guest", Category: cat},
	}
}

func dnsFlags() []cli.Flag {
	const cat = "DNS"
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "dns", Aliases: []string{"D"}, Usage: "tell the guest to use the resolver `ADDRESS`", DefaultText: "our forwarder", Category: cat},
		&cli.StringSliceFlag{Name: "dns-forward", Usage: "`ADDRESS` at which our forwarder answers, or none", DefaultText: "10.0.2.3, fd67:7765:7374::3", Category: cat},
		&cli.StringSliceFlag{Name: "dns-host", Usage: "`ADDRESS[:PORT]` of a resolver that the forwarder asks", DefaultText: "what the host's resolv.conf says, followed when it changes", Category: cat},
		&cli.StringSliceFlag{Name: "search", Aliases: []string{"S"}, Usage: "search `DOMAIN` for the guest", DefaultText: "those of the host's resolv.conf", Category: cat},
	}
}

func forwardFlags() []cli.Flag {
	const cat = "Forwards and policy"
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "tcp-ports", Aliases: []string{"t"}, Usage: "forward TCP ports of the host into the guest: `SPEC` is [ADDRESS[%IF]/]PORT[-PORT][:[[TOADDR]/]PORT],~EXCLUDED,...; for example 2222:22, 127.0.0.1/8000-8010, 0:80 (any free port), all, none", Category: cat},
		&cli.StringSliceFlag{Name: "udp-ports", Aliases: []string{"u"}, Usage: "the same `SPEC` for UDP", Category: cat},
		&cli.StringSliceFlag{Name: "outbound", Aliases: []string{"o"}, Usage: "source `ADDRESS` of the guest's outbound connections", Category: cat},
		&cli.StringFlag{Name: "outbound-if4", Usage: "bind outbound IPv4 sockets to interface `IF`", Category: cat},
		&cli.StringFlag{Name: "outbound-if6", Usage: "bind outbound IPv6 sockets to interface `IF`", Category: cat},
		&cli.StringSliceFlag{Name: "map-host-loopback", Usage: "let the guest reach the host's 127.0.0.1 and ::1 under `ADDRESS`; 10.0.2.2 is what QEMU's user networking does", DefaultText: "not reachable", Category: cat},
		&cli.StringSliceFlag{Name: "map-guest-addr", Usage: "let the guest reach the host's own address under `ADDRESS`: a guest that has the same one (--address host) cannot otherwise", DefaultText: "not reachable so", Category: cat},
		&cli.BoolFlag{Name: "allow-metadata", Usage: "let the guest reach link-local addresses such as the cloud metadata service 169.254.169.254", Category: cat},
	}
}

func offFlags() []cli.Flag {
	var flags []cli.Flag
	for _, f := range []struct{ name, usage string }{
		{"no-dhcp", "no DHCPv4 server"}, {"no-dhcpv6", "no DHCPv6 server"}, {"no-ra", "no router advertisements"},
		{"no-ndp", "no answers to neighbour solicitations, no router advertisements"}, {"no-dns", "no DNS forwarder"},
		{"no-tcp", "no TCP"}, {"no-udp", "no UDP"}, {"no-icmp", "no ping"},
	} {
		flags = append(flags, &cli.BoolFlag{Name: f.name, Usage: f.usage, Category: "Switching off"})
	}
	return flags
}

const withheldCategory = "Device features withheld (for odd guests and for tests)"

func deviceFlags() []cli.Flag {
	var flags []cli.Flag
	for _, f := range []struct{ name, usage string }{
		{"no-tso", "no TCP segmentation offload, either way"}, {"no-csum", "no checksum offload, either way"},
		{"no-uso", "no UDP segmentation offload"}, {"no-mrg-rxbuf", "no mergeable receive buffers"},
	} {
		flags = append(flags, &cli.BoolFlag{Name: f.name, Usage: f.usage, Category: withheldCategory})
	}
	return append(flags, ringFlags()...)
}

func otherFlags() []cli.Flag {
	const cat = "Other"
	return []cli.Flag{
		&cli.StringFlag{Name: "pcap", Aliases: []string{"p"}, Usage: "record the guest's frames to `FILE`", Category: cat},
		&cli.Int64Flag{Name: "pcap-size", Usage: "stop recording after `BYTES`", DefaultText: "100 MiB", Category: cat},
		pollFlag(),
		&cli.IntFlag{Name: "max-flows", Value: config.DefaultMaxFlows, Usage: "at most `N` flows at a time", Category: cat},
		logFlag(),
	}
}

func pollFlag() cli.Flag {
	return &cli.StringFlag{Name: "poll", Value: "auto", Usage: "`HOW` to wait for more work before sleeping: auto (looks for 200us while answers have been coming that soon), off, a time like 50us (always that long), or on (never sleeps while a guest is there: one processor)", Category: "Other"}
}

func logFlag() cli.Flag {
	return &cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL`: debug, info, warn or error", Category: "Other"}
}

// read takes the flags that were given into o, an Options or VsockOptions: flag
// and option have one name. What was not given stays as it is, since the defaults
// of the flags are only for the help.
func read(c *cli.Context, o any) {
	for _, f := range config.Fields(o) {
		if !c.IsSet(f.Key) {
			continue
		}
		switch p := f.Ptr.(type) {
		case *bool:
			*p = c.Bool(f.Key)
		case *string:
			*p = c.String(f.Key)
		case *[]string:
			*p = c.StringSlice(f.Key)
		case *int:
			*p = c.Int(f.Key)
		case *int64:
			*p = c.Int64(f.Key)
		}
	}
}
