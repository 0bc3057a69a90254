package main

import "github.com/urfave/cli/v2"

// agentCommand is what runs inside a guest; every part of it is optional.
func agentCommand() *cli.Command {
	return &cli.Command{
		Name:            "agent",
		Usage:           "inside a guest: set it up, answer the host, lead UNIX sockets to the host, AF_XDP",
		Subcommands:     []*cli.Command{agentSetupCommand(), agentServeCommand(), agentRedirectCommand(), agentXDPCommand()},
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          needsSubcommand("agent"),
	}
}
