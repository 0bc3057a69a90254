package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"guestwire/guestagent/xdp"
	"guestwire/translate/wire"
)

func agentXDPCommand() *cli.Command {
	link := &cli.StringFlag{Name: "link", Value: "eth0", Usage: "network card `NAME`"}
	queue := &cli.IntFlag{Name: "queue", Usage: "queue `N` of the card"}
	load := []cli.Flag{link, queue,
		&cli.StringFlag{Name: "by", Value: "zero-copy", Usage: "`WAY`: zero-copy (fails where it cannot be had), copy, or syscall (a UDP socket, to compare)"},
		&cli.Uint64Flag{Name: "count", Usage: "end after `N` datagrams"},
		&cli.DurationFlag{Name: "time", Usage: "end after `DURATION`"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON, one object a line"},
	}
	return &cli.Command{
		Name:  "xdp",
		Usage: "AF_XDP on this guest's network card: what it can do, send, receive",
		Subcommands: []*cli.Command{
			{Name: "probe", Usage: "say which conditions of zero copy are met, and what to change", Flags: []cli.Flag{link, queue, &cli.BoolFlag{Name: "json", Usage: "print JSON"}},
				Action: xdpProbeAction, OnUsageError: usageError},
			{Name: "send", Usage: "send UDP datagrams", Flags: append([]cli.Flag{
				&cli.StringFlag{Name: "from", Required: true, Usage: "source `ADDRESS:PORT`"},
				&cli.StringFlag{Name: "to", Required: true, Usage: "destination `ADDRESS:PORT`"},
				&cli.StringFlag{Name: "to-mac", Value: "52:55:0a:00:02:02", Usage: "`MAC` address of the router or the destination"},
				&cli.IntFlag{Name: "size", Value: 64, Usage: "`BYTES` of payload"},
				&cli.IntFlag{Name: "rate", Usage: "datagrams per second `N`", DefaultText: "as fast as can be"}}, load...),
				Action: xdpSendAction, OnUsageError: usageError},
			{Name: "receive", Usage: "receive and count UDP datagrams", Flags: append([]cli.Flag{
				&cli.StringFlag{Name: "at", Required: true, Usage: "`ADDRESS:PORT` of this guest"},
				&cli.BoolFlag{Name: "verify", Usage: "check checksums and payload of datagrams that `agent xdp send` has made"}}, load...),
				Action: xdpReceiveAction, OnUsageError: usageError},
		},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          needsSubcommand("agent xdp"),
	}
}

func xdpProbeAction(c *cli.Context) error {
	card, err := net.InterfaceByName(c.String("link"))
	if err != nil {
		return err
	}
	list, err := xdp.Probe(card.Name, card.Index, c.Int("queue"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(list)
	}
	for _, l := range list {
		fmt.Fprintf(c.App.Writer, "%-16s %-4s %s\n", l.Name, map[bool]string{true: "ok", false: "FAIL"}[l.OK], l.Have)
		if !l.OK {
			fmt.Fprintf(c.App.Writer, "%-21s -> %s\n", "", l.Change)
		}
	}
	return nil
}

// xdpLoad reads what sending and receiving have in common.
func xdpLoad(c *cli.Context) (l xdp.Load, card *net.Interface, err error) {
	by, ok := xdp.ParseBy(c.String("by"))
	if !ok {
		return l, nil, cli.Exit(fmt.Sprintf("--by %q: use zero-copy, copy or syscall", c.String("by")), 2)
	}
	if card, err = net.InterfaceByName(c.String("link")); err != nil {
		return l, nil, err
	}
	return xdp.Load{By: by, Index: card.Index, Queue: c.Int("queue"), Count: c.Uint64("count"), Duration: c.Duration("time")}, card, nil
}

func xdpSendAction(c *cli.Context) error {
	l, card, err := xdpLoad(c)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(c.String("to-mac"))
	if err != nil || len(mac) != 6 || len(card.HardwareAddr) != 6 {
		return cli.Exit(fmt.Sprintf("--to-mac %q: write six bytes, such as 52:55:0a:00:02:02, and choose an Ethernet card", c.String("to-mac")), 2)
	}
	l.Flow.SrcMAC, l.Flow.DstMAC = wire.MAC(card.HardwareAddr), wire.MAC(mac)
	if l.Flow.Src, err = netip.ParseAddrPort(c.String("from")); err != nil {
		return cli.Exit(fmt.Sprintf("--from: %v", err), 2)
	}
	if l.Flow.Dst, err = netip.ParseAddrPort(c.String("to")); err != nil {
		return cli.Exit(fmt.Sprintf("--to: %v", err), 2)
	}
	l.Size, l.Rate = c.Int("size"), c.Int("rate")
	if l.Rate < 0 {
		return cli.Exit("--rate: use 1 or more, or leave it out", 2)
	}
	s, err := xdp.NewSender(l)
	if err != nil {
		return err
	}
	defer s.Close()
	return xdpRun(c, s.ZC, s.Run)
}

func xdpReceiveAction(c *cli.Context) error {
	l, _, err := xdpLoad(c)
	if err != nil {
		return err
	}
	if l.Flow.Dst, err = netip.ParseAddrPort(c.String("at")); err != nil {
		return cli.Exit(fmt.Sprintf("--at: %v", err), 2)
	}
	r, err := xdp.NewReceiver(l, l.Queue+1, c.Bool("verify"))
	if err != nil {
		return err
	}
	defer r.Close()
	return xdpRun(c, r.ZC, r.Run)
}

// xdpLine is what is told once a second and, with Done, at the end.
type xdpLine struct {
	By       string  `json:"by"`
	ZeroCopy bool    `json:"zero_copy"` // as the kernel says
	Seconds  float64 `json:"seconds"`
	PPS      float64 `json:"pps"` // over all that time
	Done     bool    `json:"done"`
	xdp.Count
}

func xdpRun(c *cli.Context, zero bool, run func(context.Context, func(xdp.Count)) (xdp.Count, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	fmt.Fprintln(os.Stderr, "guestwire agent xdp: ready")
	start := time.Now()
	tell := func(n xdp.Count, done bool) {
		l := xdpLine{By: c.String("by"), ZeroCopy: zero, Seconds: time.Since(start).Seconds(), Done: done, Count: n}
		l.PPS = float64(n.Packets) / l.Seconds
		if c.Bool("json") {
			_ = json.NewEncoder(c.App.Writer).Encode(l)
			return
		}
		fmt.Fprintf(c.App.Writer, "%6.1f s  %12d packets  %10.0f pps  bad %d  lost %d  zero copy %t\n", l.Seconds, n.Packets, l.PPS, n.Bad, n.Lost, zero)
	}
	n, err := run(ctx, func(n xdp.Count) { tell(n, false) })
	tell(n, true)
	return err
}
