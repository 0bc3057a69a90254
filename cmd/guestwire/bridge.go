package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/logx"
	"guestwire/vsockbridge/bridge"
)

func bridgeCommand() *cli.Command {
	return &cli.Command{
		Name:      "bridge",
		Usage:     "join sockets: UNIX, TCP, vsock, a VM's vsock socket, standard input and output, a command",
		ArgsUsage: "FROM TO",
		Description: "Clients come from FROM; for each of them TO is opened, and bytes go both ways until both have ended.\n\n" +
			"Addresses:\n" +
			"   unix-listen:PATH          clients of a UNIX socket          mode=0660 owner=USER:GROUP type= once frame\n" +
			"   unix-connect:PATH         a UNIX socket                     type= wait= frame\n" +
			"   unix-recv:PATH            datagrams (only as FROM)          mode= owner= eager\n" +
			"   uds:PATH:PORT             a guest's port, by the socket of `guestwire vsock --uds-path PATH`,\n" +
			"                             Firecracker or Cloud Hypervisor   wait= frame\n" +
			"   vsock-listen:[CID:]PORT   clients by the kernel's AF_VSOCK  buffer=4M type= once frame\n" +
			"   vsock-connect:CID:PORT    the kernel's AF_VSOCK             buffer= type= wait= frame\n" +
			"   tcp-listen:ADDRESS:PORT   clients of a TCP port             once frame\n" +
			"   tcp-connect:HOST:PORT     a TCP port                        wait= frame\n" +
			"   stdio                     standard input and output         frame\n" +
			"   exec:COMMAND              a command's, run by /bin/sh (the rest of the word, commas and all)\n\n" +
			"Options follow an address after commas:\n" +
			"   type=stream|seqpacket|dgram   of the socket; messages stay whole from one to the other\n" +
			"   frame                         messages on a stream, each behind its length (4 bytes, big-endian)\n" +
			"   wait=30s                      go on trying to connect, to a guest that is starting, say\n" +
			"   once                          serve one client, then end\n" +
			"   eager                         open TO at once, and not when a datagram comes\n" +
			"   buffer=4M                     receive buffer of the kernel's vsock, which bounds what is under way\n\n" +
			"From a host to the sshd of a VM, and from a guest to a socket of its host:\n\n" +
			"   ssh -o ProxyCommand='guestwire bridge stdio uds:/run/vm.vsock:22' root@vm\n" +
			"   guestwire bridge unix-listen:/run/docker.sock,mode=0660 vsock-connect:2:2375\n\n" +
			"A guest's log messages to its host, boundaries kept:\n\n" +
			"   guestwire bridge unix-recv:/dev/log vsock-connect:2:514,frame\n\n" +
			"Signals: TERM and INT stop, USR1 prints statistics.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "max-connections", Value: 1024, Usage: "at most `N` clients at a time; more wait"},
			&cli.IntFlag{Name: "max-message", Value: 1 << 20, Usage: "longest message in `BYTES` (seqpacket, dgram, frame)"},
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL`: debug, info, warn or error"},
		},
		Action:       bridgeAction,
		OnUsageError: usageError,
	}
}

func bridgeAction(c *cli.Context) error {
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	cfg, err := bridgeConfig(c)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	cfg.Log = limited(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	b, err := bridge.New(cfg)
	if err != nil {
		return err
	}
	defer b.Close()
	if b.BoundariesLost() {
		log.Warn("one side has messages and the other a plain stream: their boundaries are lost (option frame on the stream keeps them)")
	}
	if cfg.From.Listens() {
		fmt.Fprintf(os.Stderr, "guestwire bridge: ready on %s\n", b.Where())
	}
	stats := make(chan os.Signal, 1)
	signal.Notify(stats, syscall.SIGUSR1)
	defer signal.Stop(stats)
	go func() {
		for range stats {
			b.Each(func(name string, v uint64) { fmt.Fprintf(os.Stderr, "%s %d\n", name, v) })
		}
	}()
	return b.Run(ctx)
}

func bridgeConfig(c *cli.Context) (cfg bridge.Config, err error) {
	if c.NArg() != 2 {
		return cfg, fmt.Errorf("bridge takes two addresses, FROM and TO, and got %d: for example guestwire bridge unix-listen:/run/a.sock vsock-connect:3:1024 (see guestwire bridge --help)", c.NArg())
	}
	if cfg.From, err = bridge.Parse(c.Args().Get(0)); err != nil {
		return cfg, err
	}
	if cfg.To, err = bridge.Parse(c.Args().Get(1)); err != nil {
		return cfg, err
	}
	cfg.MaxConnections, cfg.MaxMessage = c.Int("max-connections"), c.Int("max-message")
	if cfg.MaxConnections < 1 {
		return cfg, fmt.Errorf("--max-connections %d: use 1 or more", cfg.MaxConnections)
	}
	if cfg.MaxMessage < 1 || cfg.MaxMessage > 64<<20 {
		return cfg, fmt.Errorf("--max-message %d: use 1 to 67108864", cfg.MaxMessage)
	}
	return cfg, nil
}

// limited keeps clients from flooding the log.
func limited(log *slog.Logger) func(string, ...any) {
	var mu sync.Mutex
	warn := logx.Limited(func(s string) { log.Warn(s) }, 20, time.Minute, time.Now)
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		warn(fmt.Sprintf(format, args...))
	}
}
