package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
)

func agentSetupCommand() *cli.Command {
	return &cli.Command{
		Name:  "setup",
		Usage: "set the guest's network up as the host, the kernel's command line or a file says",
		Description: "Sets addresses, routes, MTU, resolvers, host name, queues and offloads by netlink, and prints what it has\n" +
			"changed: nothing when everything is so already. Where no source is named, the kernel's command line is used\n" +
			"if it has guestwire.* words, else the host is asked by vsock (`guestwire run` and `daemon` answer).\n\n" +
			"   guestwire agent setup                     # once; no DHCP client is needed\n" +
			"   guestwire agent setup --follow            # and again whenever the host has changed\n" +
			"   guestwire agent setup --from net.yaml\n" +
			"   guestwire agent setup --undo\n\n" +
			"Words of the kernel's command line:\n\n" +
			"   guestwire.address=10.0.2.15/24,fd67::15/64 guestwire.gateway=10.0.2.2 guestwire.route=10.1.0.0/16,10.0.2.9\n" +
			"   guestwire.dns=10.0.2.3 guestwire.search=a.example guestwire.hostname=vm guestwire.mtu=1500 guestwire.link=eth0\n" +
			"   guestwire.queues=4 guestwire.offloads=tso:on,gro:off guestwire.vsock-buffer=1048576\n\n" +
			"A file has the same in YAML:\n\n" +
			"   addresses: [10.0.2.15/24]\n" +
			"   routes: [{to: 0.0.0.0/0, via: 10.0.2.2}]\n" +
			"   dns: [10.0.2.3]\n" +
			"   offloads: {tso: true, gro: false}",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "`SOURCE`: host, cmdline, or the path of a file", DefaultText: "cmdline if it says something, else host"},
			&cli.DurationFlag{Name: "wait", Value: 10 * time.Second, Usage: "wait `TIME` for the network card and the host to be there"},
			&cli.BoolFlag{Name: "follow", Usage: "stay, and take over what the host changes"},
			&cli.BoolFlag{Name: "undo", Usage: "take back everything that was changed since the guest started"},
		},
		Action:       agentSetupAction,
		OnUsageError: usageError,
	}
}

func agentSetupAction(c *cli.Context) error {
	from, follow := c.String("from"), c.Bool("follow")
	switch {
	case c.NArg() > 0:
		return cli.Exit(fmt.Sprintf("agent setup takes no arguments, only options; %q is too much", c.Args().First()), 2)
	case c.Bool("undo") && (from != "" || follow):
		return cli.Exit("--undo: excludes --from and --follow", 2)
	case follow && from != "" && from != "host":
		return cli.Exit(fmt.Sprintf("--follow: only the host changes; %q is read once", from), 2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := setup.New(setup.Config{})
	if c.Bool("undo") {
		changes, err := s.Undo()
		printChanges(c.App.Writer, changes)
		return err
	}
	if follow {
		return followHost(ctx, c, s)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Duration("wait"))
	defer cancel()
	n, err := network(ctx, from)
	if err != nil {
		return err
	}
	changes, err := s.Apply(ctx, n)
	printChanges(c.App.Writer, changes)
	return err
}

// network reads a configuration from where it is said to be.
func network(ctx context.Context, from string) (n *proto.Network, err error) {
	if from == "" || from == "cmdline" {
		b, err := os.ReadFile("/proc/cmdline")
		if err != nil {
			return nil, err
		}
		switch n, err = setup.FromCmdline(string(b)); {
		case n != nil || err != nil:
			return n, err
		case from == "cmdline":
			return nil, errors.New("the kernel's command line has no guestwire.* words")
		}
		from = "host"
	}
	if from == "host" {
		err = new(setup.Host).Follow(ctx, func(got *proto.Network) bool { n = got; return false })
		return n, err
	}
	return setup.FromFile(from)
}

// followHost applies what the host sends until a signal comes. What cannot be done
// is told and does not end it: the host may send better.
func followHost(ctx context.Context, c *cli.Context, s *setup.Setup) error {
	first := true
	host := setup.Host{Obstacle: func(err error) { fmt.Fprintf(os.Stderr, "guestwire agent setup: %v; trying again\n", err) }}
	err := host.Follow(ctx, func(n *proto.Network) bool {
		wait, cancel := context.WithTimeout(ctx, c.Duration("wait"))
		defer cancel()
		changes, err := s.Apply(wait, n)
		printChanges(c.App.Writer, changes)
		if err != nil {
			fmt.Fprintln(os.Stderr, "guestwire agent setup: "+oneLine(err))
		}
		if first {
			first = false
			fmt.Fprintln(os.Stderr, "guestwire agent setup: ready, following the host")
			notifySystemd("READY=1")
		}
		return true
	})
	if ctx.Err() != nil && !first {
		return nil // we were told to stop
	}
	return err
}

func printChanges(to io.Writer, changes []setup.Change) {
	for _, c := range changes {
		fmt.Fprintln(to, c)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
