package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
)

func ctlAgentCommand() *cli.Command {
	return &cli.Command{
		Name:  "agent",
		Usage: "ask the agent of a guest (guestwire agent serve)",
		Description: "   guestwire ctl agent --uds-path /tmp/vm.vsock info\n" +
			"   guestwire ctl agent --uds-path /tmp/vm.vsock expose --port 80 tcp:127.0.0.1:80\n" +
			"   guestwire ctl agent --uds-path /tmp/vm.vsock time\n" +
			"   guestwire ctl agent --uds-path /tmp/vm.vsock setup net.yaml",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "uds-path", Usage: "`PATH` of the socket of the guest's vsock device: --uds-path of guestwire vsock, or as the ready line of guestwire run says"},
			&cli.UintFlag{Name: "port", Value: proto.Port, Usage: "vsock `PORT` of the agent"},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "wait `TIME` for the agent to accept"},
		},
		Subcommands: []*cli.Command{
			{Name: "ping", Usage: "is it there, and how long does it take to answer?", Action: withAgent(0, ctlPing), OnUsageError: usageError},
			{
				Name: "info", Usage: "addresses, kernel, load, exposed services", Action: withAgent(0, ctlInfo), OnUsageError: usageError,
				Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}},
			},
			{
				Name: "expose", Usage: "make a service of the guest reachable at a vsock port of it", Action: withAgent(1, ctlExpose), OnUsageError: usageError,
				ArgsUsage: "tcp:ADDRESS:PORT | unix:PATH", UsageText: "guestwire ctl agent --uds-path PATH expose [--port N] tcp:ADDRESS:PORT | unix:PATH\n   guestwire ctl agent --uds-path PATH expose --stop N",
				Flags: []cli.Flag{
					&cli.UintFlag{Name: "port", Usage: "vsock port `N`", DefaultText: "any"},
					&cli.UintFlag{Name: "stop", Usage: "end what is exposed at vsock port `N`; its connections go on"},
				},
			},
			{
				Name: "time", Usage: "set the guest's clock to ours", Action: withAgent(0, ctlTime), OnUsageError: usageError,
				Flags: []cli.Flag{&cli.StringFlag{Name: "how", Value: proto.Auto, Usage: "`HOW`: step, slew, or auto (slew what is below 0.5 s)"}},
			},
			{
				Name: "setup", Usage: "set the guest's network up as a YAML file says", Action: withAgent(1, ctlSetup), OnUsageError: usageError,
				ArgsUsage: "FILE",
				Flags:     []cli.Flag{&cli.BoolFlag{Name: "undo", Usage: "take back everything that was set up"}},
			},
		},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          needsSubcommand("ctl agent"),
	}
}

// withAgent runs f with a connection to the agent; f has most arguments at most.
func withAgent(most int, f func(c *cli.Context, a *proto.Conn) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() > most {
			return cli.Exit(fmt.Sprintf("ctl agent %s: %q is too much (see --help)", c.Command.Name, c.Args().Get(most)), 2)
		}
		where := c.Lineage()[1] // of ctl agent: expose has a --port too
		path := where.String("uds-path")
		if path == "" {
			return cli.Exit(fmt.Sprintf("--uds-path: say which guest: the socket of its vsock device, as in guestwire ctl agent --uds-path PATH %s (see guestwire ctl agent --help)", c.Command.Name), 2)
		}
		a, err := proto.Dial(path, uint32(where.Uint("port")), where.Duration("timeout"))
		switch {
		case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("no vsock device at %s: %w", path, err)
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		defer a.Close()
		return f(c, a)
	}
}

// ping returns the answer and how long it took.
func ping(a *proto.Conn) (p proto.Pong, took time.Duration, err error) {
	start := time.Now()
	err = a.Call(proto.Ping, proto.Empty{}, &p)
	return p, time.Since(start), err
}

func ctlPing(c *cli.Context, a *proto.Conn) error {
	p, took, err := ping(a)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "agent %s answered in %v\n", p.Version, took.Round(time.Microsecond))
	return nil
}

func ctlInfo(c *cli.Context, a *proto.Conn) error {
	var g proto.GuestInfo
	if err := a.Call(proto.Info, proto.Empty{}, &g); err != nil {
		return err
	}
	if c.Bool("json") {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		return e.Encode(g)
	}
	printInfo(c.App.Writer, &g)
	return nil
}

func printInfo(w io.Writer, g *proto.GuestInfo) {
	fmt.Fprintf(w, "host name  %s\nkernel     %s %s\nagent      %s\n", g.Hostname, g.Kernel, g.Arch, g.Version)
	fmt.Fprintf(w, "up         %v\n", time.Duration(g.Uptime)*time.Second)
	fmt.Fprintf(w, "load       %.2f %.2f %.2f on %d CPUs\n", g.Load[0], g.Load[1], g.Load[2], g.CPUs)
	fmt.Fprintf(w, "memory     %d MiB, %d available\n", g.Memory>>10, g.Available>>10)
	for _, l := range g.Links {
		state := "down"
		if l.Up {
			state = "up"
		}
		fmt.Fprintf(w, "link       %s %s, MTU %d %s %s\n", l.Name, state, l.MTU, l.MAC, strings.Join(l.Addresses, " "))
	}
	for _, e := range g.Exposed {
		fmt.Fprintf(w, "exposed    vsock port %d: %s, %d connections\n", e.Port, e.Target, e.Connections)
	}
}

func ctlExpose(c *cli.Context, a *proto.Conn) error {
	r := proto.ExposeRequest{Target: c.Args().First(), Port: uint32(c.Uint("port"))}
	if c.IsSet("stop") {
		r = proto.ExposeRequest{Target: r.Target, Port: uint32(c.Uint("stop")), Stop: true}
	}
	if err := r.Check(); err != nil {
		return cli.Exit("ctl agent expose: "+err.Error(), 2)
	}
	var e proto.Exposed
	if err := a.Call(proto.Expose, r, &e); err != nil {
		return err
	}
	if r.Stop {
		fmt.Fprintf(c.App.Writer, "%s is no longer at vsock port %d; %d connections go on\n", e.Target, e.Port, e.Connections)
		return nil
	}
	fmt.Fprintf(c.App.Writer, "%s is at vsock port %d\n", e.Target, e.Port)
	return nil
}

// ctlTime sends our clock as it will be when it arrives: half a round trip later,
// of the quickest of three.
func ctlTime(c *cli.Context, a *proto.Conn) error {
	quickest := proto.AnswerTime
	for range 3 {
		_, took, err := ping(a)
		if err != nil {
			return err
		}
		quickest = min(quickest, took)
	}
	r := proto.TimeRequest{Now: time.Now().Add(quickest / 2).UnixNano(), How: c.String("how")}
	if err := r.Check(); err != nil {
		return cli.Exit("ctl agent time: "+err.Error(), 2)
	}
	var set proto.TimeSet
	if err := a.Call(proto.Time, r, &set); err != nil {
		return err
	}
	behind := time.Duration(set.Offset)
	word := "behind"
	if behind < 0 {
		behind, word = -behind, "ahead"
	}
	done := map[string]string{
		proto.Kept: "left alone", proto.Step: "set", proto.Slew: "being brought near, by 0.5 ms a second",
	}[set.Did]
	fmt.Fprintf(c.App.Writer, "the guest's clock was %v %s (known to %v): %s\n", behind.Round(time.Microsecond), word, (quickest / 2).Round(time.Microsecond), done)
	return nil
}

func ctlSetup(c *cli.Context, a *proto.Conn) error {
	r := proto.SetupRequest{Undo: c.Bool("undo")}
	if file := c.Args().First(); (file == "") != r.Undo {
		return cli.Exit("ctl agent setup: give either a file or --undo", 2)
	} else if file != "" {
		n, err := setup.FromFile(file)
		if err != nil {
			return cli.Exit(err.Error(), 2)
		}
		r.Config = n
	}
	var made proto.Changed
	if err := a.Call(proto.Setup, r, &made); err != nil {
		return err
	}
	for _, line := range made.Changes {
		fmt.Fprintln(c.App.Writer, line)
	}
	if len(made.Changes) == 0 {
		fmt.Fprintln(os.Stderr, "guestwire ctl agent setup: nothing to change")
	}
	return nil
}
