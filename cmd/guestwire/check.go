package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/hostcheck"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:         "check",
		Usage:        "say what this host offers, what is missing, and how to get it",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return cli.Exit(fmt.Sprintf("check takes no arguments; %q is too much", c.Args().First()), 2)
			}
			if !hostcheck.Print(os.Stdout, hostcheck.All()) {
				return cli.Exit("this host lacks something that guestwire cannot do without: see above", 1)
			}
			return nil
		},
	}
}
