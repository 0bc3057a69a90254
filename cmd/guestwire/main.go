// Command guestwire connects virtual machines to the network: see README.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
)

// version is set by the Makefile (-ldflags -X main.version).
var version = "unreleased"

func main() {
	app := newApp()
	if err := app.Run(personality(os.Args)); err != nil {
		var exit cli.ExitCoder
		if errors.As(err, &exit) {
			if msg := exit.Error(); msg != "" {
				fmt.Fprintln(os.Stderr, "guestwire: "+msg)
			}
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "guestwire: "+err.Error())
		os.Exit(1)
	}
}

func newApp() *cli.App {
	cli.FlagStringer = flagLine
	app := &cli.App{
		Name:    "guestwire",
		Usage:   "connect virtual machines to the network and to host services, without privileges",
		Version: version,
		Description: "Give a VM a network card:\n\n" +
			"   guestwire run -- qemu-system-x86_64 -m 1G -drive file=disk.img\n\n" +
			"or run the backend by itself and point QEMU (or any vhost-user frontend) to it:\n\n" +
			"   guestwire net --socket-path /tmp/vm.sock\n\n" +
			"See what this host offers: guestwire check",
		Commands:                  []*cli.Command{netCommand(), vsockCommand(), bridgeCommand(), runCommand(), daemonCommand(), netnsCommand(), pastaCommand(), agentCommand(), ctlCommand(), workerProcess(), netnsKeeper(), checkCommand(), docCommand()},
		EnableBashCompletion:      true,
		DisableSliceFlagSeparator: true, // commas belong to port specs
		HideHelpCommand:           true,
		ExitErrHandler:            func(*cli.Context, error) {}, // main prints and exits
		OnUsageError:              usageError,
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return cli.Exit(noCommand(c.Args().First(), c.App.VisibleCommands()), 2)
			}
			return cli.ShowAppHelp(c)
		},
	}
	withoutHelpCommand(app.Commands)
	return app
}

// noCommand says which command was meant, or which there are.
func noCommand(name string, commands []*cli.Command) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	if near := config.Nearest(name, names); near != "" {
		return fmt.Sprintf("no command %q: did you mean %s? (see guestwire --help)", name, near)
	}
	return fmt.Sprintf("no command %q: choose one of %s (see guestwire --help)", name, strings.Join(names, ", "))
}

// withoutHelpCommand leaves --help as the one way to ask for help: completion would
// offer the words help and h among arguments.
func withoutHelpCommand(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelpCommand = true
		withoutHelpCommand(c.Subcommands)
	}
}

// personality lets links named guestwire-net and guestwire-vsock be these
// subcommands, since a vhost-user descriptor file names a bare binary, and one named
// pasta that one.
func personality(args []string) []string {
	if len(args) == 0 {
		return []string{"guestwire"}
	}
	if base := filepath.Base(args[0]); base == "pasta" || base == "pasta.avx2" {
		return append([]string{"guestwire", "pasta"}, args[1:]...)
	}
	name, sub, found := strings.Cut(filepath.Base(args[0]), "-")
	if name == "guestwire" && found && (sub == "net" || sub == "vsock") {
		return append([]string{"guestwire", sub}, args[1:]...)
	}
	return args
}
