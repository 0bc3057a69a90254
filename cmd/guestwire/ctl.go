package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// ctlCommand talks to what is running.
func ctlCommand() *cli.Command {
	return &cli.Command{
		Name:            "ctl",
		Usage:           "talk to what is running: a guest's agent",
		Subcommands:     []*cli.Command{ctlAgentCommand()},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          needsSubcommand("ctl"),
	}
}

// needsSubcommand is the action of a command that does nothing by itself.
func needsSubcommand(name string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() > 0 {
			return cli.Exit(fmt.Sprintf("%s: no command %q (see guestwire %s --help)", name, c.Args().First(), name), 2)
		}
		return cli.ShowSubcommandHelp(c)
	}
}
