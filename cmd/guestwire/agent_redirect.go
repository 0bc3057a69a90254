package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/logx"
	"guestwire/guestagent/redirect"
)

func agentRedirectCommand() *cli.Command {
	return &cli.Command{
		Name:      "redirect",
		Usage:     "lead this guest's UNIX sockets to its host, and vsock ports to this guest's services",
		ArgsUsage: "[RULE...]",
		Description: "A rule is FROM=TO, one of them vsock; many may be given:\n\n" +
			"   unix:PATH=vsock:CID:PORT             clients of a UNIX socket reach the host (CID 2)\n" +
			"   unix-dgram:PATH=vsock:CID:PORT       datagrams, each behind its length (4 bytes, big-endian)\n" +
			"   unix-dgram:PATH=vsock:CID:PORT,raw   datagrams as a stream of bytes, with nothing between them\n" +
			"   unix-seqpacket:PATH=vsock:CID:PORT   messages, by a vsock of type SOCK_SEQPACKET\n" +
			"   vsock:PORT=unix:PATH                 the host reaches a UNIX socket; unix-dgram and unix-seqpacket too\n" +
			"   vsock:PORT=tcp:HOST:PORT             the host reaches a TCP service\n\n" +
			"Options follow an address after commas:\n" +
			"   mode=0660 owner=USER:GROUP           of the file of a UNIX socket, behind FROM\n" +
			"   wait=30s                             go on trying to connect\n" +
			"   buffer=4M                            receive buffer of a vsock\n" +
			"   path=auto|sockmap|splice|copy        behind TO: how bytes are moved; auto takes the fastest that this kernel does right\n\n" +
			"Examples, with the host's half:\n\n" +
			"   guestwire agent redirect unix:/run/docker.sock,mode=0660=vsock:2:2375\n" +
			"   guestwire run --connect vsock:2375=unix:/run/docker.sock -- qemu-system-x86_64 ...      (on the host)\n\n" +
			"   guestwire agent redirect unix-dgram:/run/log.sock=vsock:2:1234\n" +
			"   guestwire bridge unix-listen:/tmp/vm.vsock_1234,frame unix-connect:/dev/log,type=dgram   (on the host)\n\n" +
			"Signals: TERM and INT stop, USR1 prints statistics, among them how many flows took which path.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "config", Usage: "read rules from the YAML `FILE`: a list under the key rules"},
			&cli.IntFlag{Name: "max-flows", Value: 1024, Usage: "at most `N` clients of a rule at a time; more wait"},
			&cli.IntFlag{Name: "max-message", Value: 1 << 20, Usage: "longest message in `BYTES` (seqpacket, dgram)"},
			&cli.IntFlag{Name: "max-slots", Value: 128, Usage: "at most `N` flows by sockmap at a time; more are copied"},
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL`: debug, info, warn or error"},
		},
		Action:       agentRedirectAction,
		OnUsageError: usageError,
	}
}

func agentRedirectAction(c *cli.Context) error {
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	cfg, err := redirectConfig(c)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	cfg.Log = limited(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	r, err := redirect.New(cfg)
	if err != nil {
		return err
	}
	defer r.Close()
	stats := make(chan os.Signal, 1)
	signal.Notify(stats, syscall.SIGUSR1)
	defer signal.Stop(stats)
	go func() {
		for range stats {
			r.Each(func(rule, name string, v uint64) { fmt.Fprintf(os.Stderr, "%s %s %d\n", rule, name, v) })
		}
	}()
	for _, rule := range cfg.Rules {
		fmt.Fprintf(os.Stderr, "guestwire agent redirect: ready: %s\n", rule.Text)
	}
	return r.Run(ctx)
}

func redirectConfig(c *cli.Context) (cfg redirect.Config, err error) {
	for _, s := range c.Args().Slice() {
		r, err := redirect.Parse(s)
		if err != nil {
			return cfg, err
		}
		cfg.Rules = append(cfg.Rules, r)
	}
	for _, path := range c.StringSlice("config") {
		list, err := redirect.ReadFile(path)
		if err != nil {
			return cfg, err
		}
		cfg.Rules = append(cfg.Rules, list...)
	}
	cfg.MaxFlows, cfg.MaxMessage, cfg.MaxSlots = c.Int("max-flows"), c.Int("max-message"), c.Int("max-slots")
	switch {
	case cfg.MaxFlows < 1:
		return cfg, fmt.Errorf("--max-flows %d: use 1 or more", cfg.MaxFlows)
	case cfg.MaxMessage < 1 || cfg.MaxMessage > 64<<20:
		return cfg, fmt.Errorf("--max-message %d: use 1 to 67108864", cfg.MaxMessage)
	case cfg.MaxSlots < 1:
		return cfg, fmt.Errorf("--max-slots %d: use 1 or more", cfg.MaxSlots)
	case len(cfg.Rules) == 0:
		return cfg, fmt.Errorf("agent redirect needs a rule, such as unix:/run/a.sock=vsock:2:1024 (see guestwire agent redirect --help)")
	}
	return cfg, nil
}
