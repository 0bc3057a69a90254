package main

import (
	"guestwire/test/harness/traffic"
)

// dgrams sends datagrams to a UNIX socket: of any size up to MAX, or all of size MAX and the same bytes.
func dgrams(args []string) error {
	if err := want(args, 4, "PATH N SEED MAX [fixed]"); err != nil {
		return err
	}
	number := numbers(args)
	return traffic.SendDatagrams(args[0], number(1), uint64(number(2)), int(number(3)), len(args) > 4)
}
