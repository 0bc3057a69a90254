package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/mdlayher/vsock"
	"github.com/urfave/cli/v2"

	"guestwire/cmd/logx"
	"guestwire/guestagent/proto"
	agent "guestwire/guestagent/serve"
	"guestwire/guestagent/setup"
)

func agentServeCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "answer the host: ping, info, expose, time, setup",
		Description: "Listens on a vsock port of this guest and answers the host (CID 2), nobody else. The host asks by\n\n" +
			"   guestwire ctl agent --uds-path PATH ping | info | expose | time | setup\n\n" +
			"Started by a systemd socket (ListenStream=vsock::1023) it takes that. Setting the clock takes CAP_SYS_TIME,\n" +
			"setting up the network CAP_NET_ADMIN and CAP_SYS_ADMIN.\n\n" +
			"Signals: TERM and INT stop.",
		Flags: []cli.Flag{
			&cli.UintFlag{Name: "port", Value: proto.Port, Usage: "vsock `PORT` to listen on; below 1024 takes CAP_NET_BIND_SERVICE, so that nobody else in the guest can pose as the agent"},
			logFlag(),
		},
		Action:       agentServeAction,
		OnUsageError: usageError,
	}
}

func agentServeAction(c *cli.Context) error {
	if c.NArg() > 0 {
		return cli.Exit(fmt.Sprintf("agent serve takes no arguments, only options; %q is too much", c.Args().First()), 2)
	}
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	port := c.Uint("port")
	if port == 0 || port >= 1<<32-1 {
		return cli.Exit(fmt.Sprintf("--port %d: use 1 to 4294967294", port), 2)
	}
	l, err := agentListener(uint32(port))
	if err != nil {
		return err
	}
	s, err := agent.New(agent.Config{Listener: l, Setup: setup.New(setup.Config{}), Version: version, Log: limited(log), Told: informed(log)})
	if err != nil {
		l.Close()
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	where := l.Addr().String()
	if a, ok := l.Addr().(*vsock.Addr); ok {
		where = fmt.Sprintf("vsock port %d", a.Port)
	}
	fmt.Fprintf(os.Stderr, "guestwire agent serve: ready on %s\n", where)
	notifySystemd("READY=1")
	return s.Run(ctx)
}

func informed(log *slog.Logger) func(string, ...any) {
	return func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }
}

// agentListener is the socket that systemd has given us, else one of our own.
func agentListener(port uint32) (net.Listener, error) {
	f, err := systemdSocket()
	if err != nil || f != nil {
		if err != nil {
			return nil, err
		}
		defer f.Close()
		l, err := vsock.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("the socket from systemd: %w (it has to be ListenStream=vsock::PORT)", err)
		}
		return l, nil
	}
	l, err := agent.Listen(port, 0)
	switch {
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return nil, fmt.Errorf("%w: this kernel has no vsock: modprobe vmw_vsock_virtio_transport", err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w: port %d takes CAP_NET_BIND_SERVICE; run as root or choose --port from 1024 on", err, port)
	}
	return l, err
}
