package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/hostcheck"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:         "check",
		Usage:        "say what this host offers, what is missing, and how to get it",
		OnUsageError: usageError,
		Action: func(*cli.Context) error {
			if !hostcheck.Print(os.Stdout, hostcheck.All()) {
				return cli.Exit("this host lacks something that guestwire cannot do without: see above", 1)
			}
			return nil
		},
	}
}
