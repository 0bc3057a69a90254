package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/cmd/pasta"
	"guestwire/vnet/netns"
)

func pastaCommand() *cli.Command {
	return &cli.Command{
		Name:      "pasta",
		Usage:     "be pasta(1): the same command line, for podman, rootlesskit and scripts",
		ArgsUsage: "[OPTIONS of pasta] [PID | COMMAND ARGS...]",
		Description: "Takes pasta's options, in its spelling (-t8080, -qf), with its defaults, and is guestwire netns otherwise. A link\n" +
			"named pasta to this binary is this subcommand. For podman:\n\n" +
			"   ln -s $(command -v guestwire) ~/.local/libexec/podman/pasta\n" +
			"   printf '[engine]\\nhelper_binaries_dir = [\"%s/.local/libexec/podman\", \"/usr/libexec/podman\"]\\n' $HOME >~/.config/containers/containers.conf\n\n" +
			"docs/pasta.md lists the options, and which of them do nothing here.",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return pastaAction(c.Args().Slice()) },
	}
}

// pastaDaemon tells the second process of a daemon from the first: its descriptor 3
// takes the word that all is ready.
const pastaDaemon, pastaReady = "GUESTWIRE_PASTA_DAEMON", 3

func pastaAction(args []string) error {
	o, err := pasta.Parse(args)
	switch {
	case err != nil:
		return pastaFails(err)
	case o.Help:
		fmt.Println("Usage: pasta [OPTION]... [PID | COMMAND [ARG]...]\n\nguestwire in pasta's place: docs/pasta.md and pasta(1) have the options")
		return nil
	case o.Version:
		fmt.Printf("pasta (guestwire) %s\n", version)
		return nil
	}
	daemon := os.Getenv(pastaDaemon) != ""
	if o.Foreign() && !o.Foreground && !daemon {
		return pastaStart(args)
	}
	os.Unsetenv(pastaDaemon)
	if err := pastaServe(o, daemon); err != nil {
		return pastaFails(err)
	}
	return nil
}

// pastaFails says it as pasta does, and exits as it does.
func pastaFails(err error) error {
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		return err
	}
	fmt.Fprintf(os.Stderr, "pasta: %v\n", err)
	return cli.Exit("", 1)
}

// pastaStart runs the daemon and waits until it is ready. What it has to say until
// then it says through us, so that nobody waits for the end of our standard error
// when we have gone.
func pastaStart(args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"pasta"}, args...)...)
	cmd.Env = append(os.Environ(), pastaDaemon+"=1")
	cmd.ExtraFiles = []*os.File{w} // becomes pastaReady
	cmd.Stderr = struct{ io.Writer }{os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return pastaFails(err)
	}
	w.Close()
	if line, _ := bufio.NewReader(r).ReadString('\n'); line == "ready\n" {
		return nil
	}
	_ = cmd.Wait() // also until all that it said is out
	return cli.Exit("", max(cmd.ProcessState.ExitCode(), 1))
}

func pastaServe(o *pasta.Options, daemon bool) error {
	log, err := pastaLog(o)
	if err != nil {
		return err
	}
	if o.RunAs != "" && os.Geteuid() == 0 {
		log.Warn("--runas has no effect: this goes on as root; start it as the user that it shall be")
	}
	cfg, err := pastaConfig(o, log)
	if err != nil {
		return err
	}
	var target netns.Target
	command := o.Command
	switch {
	case o.Path != "":
		target, err = netns.Parse(o.Path)
	case o.PID != 0:
		target, err = netns.Parse(strconv.Itoa(o.PID))
	case len(command) == 0:
		command = []string{shell()}
	}
	if err != nil {
		return err
	}
	return netnsServe(cfg, &o.Netns, target, command, log, func(forwards, name string) error {
		log.Info("ready on " + name + forwards)
		if o.PIDFile != "" {
			if err := os.WriteFile(o.PIDFile, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
				return err
			}
		}
		if daemon {
			return pastaDetach()
		}
		return nil
	})
}

// pastaDetach lets go of the terminal and of whoever waits for us.
func pastaDetach() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range pastaReady {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	ready := os.NewFile(pastaReady, "ready")
	defer ready.Close()
	_, err = io.WriteString(ready, "ready\n")
	return err
}

func pastaLog(o *pasta.Options) (*slog.Logger, error) {
	to := io.Writer(os.Stderr)
	if o.LogFile != "" {
		f, err := os.OpenFile(o.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		to = f
	}
	return logx.New(to, o.LogLevel)
}

// pastaConfig completes the options by what the host has: addresses, the name of
// the interface, and the gateway's address as a way to the host's loopback.
func pastaConfig(o *pasta.Options, log *slog.Logger) (*config.Netns, error) {
	n := &o.Netns
	host, err := config.ReadHostNet()
	if err != nil {
		return nil, err
	}
	if copies := len(n.Net.Addresses) == 1 && n.Net.Addresses[0] == "host"; copies && !host.V4.IsValid() && !host.V6.IsValid() {
		log.Warn("the host has no address with a default route to copy: the namespace gets one of its own")
		n.Net.Addresses = nil
	}
	if n.IfName == "" {
		n.IfName = host.Interface4
	}
	if n.IfName == "" {
		n.IfName = host.Interface6
	}
	if n.IfName == "" {
		n.IfName = "tap0"
	}
	cfg, err := config.ResolveNetns(n, func() (config.HostNet, error) { return host, nil })
	if err != nil || o.NoMapGW {
		return cfg, err
	}
	for _, gw := range []netip.Addr{cfg.Net.V4.Gateway, cfg.Net.V6.Gateway} {
		if gw.IsValid() && !gw.IsLinkLocalUnicast() {
			cfg.Net.MapHostLoopback = append(cfg.Net.MapHostLoopback, gw)
		}
	}
	return cfg, nil
}
