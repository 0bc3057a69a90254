package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// agentCommand is what runs inside a guest; every part of it is optional.
func agentCommand() *cli.Command {
	return &cli.Command{
		Name:            "agent",
		Usage:           "inside a guest: set it up, answer the host, lead UNIX sockets to the host",
		Subcommands:     []*cli.Command{},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return cli.Exit(fmt.Sprintf("agent: no command %q (see guestwire agent --help)", c.Args().First()), 2)
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}
