package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/cmd/worker"
	"guestwire/vnet/netns"
)

func netnsCommand() *cli.Command {
	return &cli.Command{
		Name:      "netns",
		Usage:     "be the network card of a network namespace, or run a command in a new one",
		ArgsUsage: "[PID | PATH | NAME | -- COMMAND ARGS...]",
		Description: "Translates what programs in a network namespace send to ordinary sockets of this host, without privileges.\n" +
			"A command runs in new user, network, mount and PID namespaces, as root there; its exit status is ours. Without\n" +
			"arguments it is a shell. In a new namespace the interface is configured (--config-net=false leaves it alone).\n\n" +
			"   guestwire netns -- curl https://example.org/\n" +
			"   guestwire netns -t 8080:80 -- python3 -m http.server 80\n\n" +
			"A namespace that exists is named by a process in it, by its file, or by its name in /run/netns. It needs\n" +
			"--config-net, or a DHCP client inside. We end when it does.\n\n" +
			"   guestwire netns --config-net 4711\n" +
			"   guestwire netns --config-net --tcp-ports auto /proc/4711/ns/net\n\n" +
			"-t and -u lead ports of the host into the namespace, -T and -U ports of the namespace's loopback to the host's;\n" +
			"the word auto stands for whatever ports something listens on.\n\n" +
			"Signals: TERM and HUP go to the command, or stop us; USR1 prints statistics.",
		Flags:        netnsFlags(),
		Action:       netnsAction,
		OnUsageError: usageError,
	}
}

func netnsFlags() []cli.Flag {
	const cat = "Namespace"
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "config-net", Usage: "bring the interface up, with addresses and routes", DefaultText: "in a namespace that is made for a command", Category: cat},
		&cli.StringFlag{Name: "ns-ifname", Aliases: []string{"I"}, Usage: "`NAME` of the interface", DefaultText: "eth0", Category: cat},
		&cli.StringFlag{Name: "vhost-kernel", Usage: "have the kernel's vhost-net move the frames: auto (if it can), on, off, or fd:`N` for an open /dev/vhost-net", DefaultText: "auto", Category: cat},
		&cli.BoolFlag{Name: "no-pidns", Usage: "no PID namespace for a command", Category: cat},
		&cli.StringSliceFlag{Name: "tcp-ns", Aliases: []string{"T"}, Usage: "lead TCP ports of the namespace's loopback to the host's: `SPEC` as for --tcp-ports, or auto", Category: "Forwards and policy"},
		&cli.StringSliceFlag{Name: "udp-ns", Aliases: []string{"U"}, Usage: "the same `SPEC` for UDP", Category: "Forwards and policy"},
		&cli.BoolFlag{Name: "host-lo-to-ns-lo", Usage: "what comes from the host's loopback by --tcp-ports goes to 127.0.0.1 or ::1 in the namespace, not to its own address", Category: "Forwards and policy"},
	}
	for _, group := range [][]cli.Flag{addressFlags(), dnsFlags(), forwardFlags(), offFlags(), otherFlags()} {
		flags = append(flags, group...)
	}
	for _, f := range flags {
		if m, ok := f.(*cli.IntFlag); ok && m.Name == "mtu" {
			m.Value = config.MaxMTU
		}
	}
	return flags
}

func netnsAction(c *cli.Context) error {
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	target, command, err := netnsTarget(c.Args().Slice(), os.Args)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	var o config.NetnsOptions
	read(c, &o)
	if !c.IsSet("config-net") {
		o.ConfigNet = len(command) > 0
	}
	cfg, err := config.ResolveNetns(&o, config.ReadHostNet)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	return netnsServe(cfg, &o, target, command, log, func(forwards, name string) error {
		fmt.Fprintf(os.Stderr, "guestwire netns: ready on %s%s\n", name, forwards)
		return nil
	})
}

// netnsServe is the network of a namespace until that ends, or of a new one until
// its command does. ready is told once: the forwards, and what was joined.
func netnsServe(cfg *config.Netns, o *config.NetnsOptions, target netns.Target, command []string, log *slog.Logger, ready func(forwards, name string) error) error {
	ns, err := netns.Enter(netns.Config{
		Target: target, Command: command, SharePIDs: o.NoPIDNS, Interface: netnsInterface(cfg, o.ConfigNet),
		Exe: "/proc/self/exe", Keeper: []string{"guestwire", "netns-keeper"},
		Log: func(format string, a ...any) { log.Warn(fmt.Sprintf(format, a...)) },
	})
	if err != nil {
		return err
	}
	defer ns.Close()
	w, err := worker.NewNetns(cfg, ns, log)
	if err != nil {
		return err
	}
	defer w.Close()
	if len(command) > 0 {
		return netnsRun(w, ns, log, ready)
	}
	sig := catch(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	if err := ready(w.Forwards(), fmt.Sprintf("%s of %s", ns.Name, target)); err != nil {
		return err
	}
	go control(w, sig)
	return w.Run()
}

// netnsTarget tells a namespace that exists from a command, which is what follows
// --, or has arguments. The parser has swallowed the --, so argv, the words before
// it was parsed, is asked.
func netnsTarget(args, argv []string) (t netns.Target, command []string, err error) {
	switch dashes := len(argv) - len(args) - 1; {
	case len(args) == 0:
		return t, []string{shell()}, nil
	case len(args) > 1, dashes >= 0 && argv[dashes] == "--":
		return t, args, nil
	}
	t, err = netns.Parse(args[0])
	return t, nil, err
}

func shell() string {
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	return "/bin/sh"
}

func netnsInterface(c *config.Netns, configure bool) netns.Interface {
	i := netns.Interface{Name: c.IfName, MTU: c.Net.MTU, Config: configure, Search: c.Net.Search}
	for _, f := range []config.Family{c.Net.V4, c.Net.V6} {
		if !f.Enabled {
			continue
		}
		i.Addresses = append(i.Addresses, f.Guest)
		i.Gateways = append(i.Gateways, f.Gateway)
		if f.DNS.IsValid() && !c.Net.Off.DNS {
			i.DNS = append(i.DNS, f.DNS)
		}
	}
	if len(c.Net.Announce) > 0 {
		i.DNS = append([]netip.Addr{}, c.Net.Announce...)
	}
	return i
}

// netnsRun serves the namespace of a command until that ends, and passes its status
// on.
func netnsRun(w *worker.Worker, ns *netns.Namespace, log *slog.Logger, ready func(forwards, name string) error) error {
	// INT and QUIT reach the command from the terminal by themselves; here they are
	// only kept from ending us before it.
	sig := catch(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1)
	go func() {
		for s := range sig {
			switch s {
			case syscall.SIGUSR1:
				w.PrintStats(os.Stderr)
			case syscall.SIGTERM, syscall.SIGHUP:
				ns.Signal(s.(syscall.Signal))
			}
		}
	}()
	if err := ready(w.Forwards(), ns.Name); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- w.Run() }()
	if err := ns.Run(); err != nil {
		return err
	}
	status, err := ns.Wait()
	w.Stop()
	if end := <-served; end != nil {
		log.Error("the command has lost its network", "error", end)
	}
	signal.Reset()
	if err != nil {
		return err
	}
	return cli.Exit("", status)
}

// netnsKeeper is the second process of `guestwire netns`: see package netns.
func netnsKeeper() *cli.Command {
	return &cli.Command{
		Name:            "netns-keeper",
		Hidden:          true,
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return cli.Exit("", netns.Keep(c.Args().Slice())) },
	}
}
