package main

import (
	"net"

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

// pour writes to a UNIX stream socket, and ends.
func pour(args []string) error {
	if err := want(args, 3, "PATH N CHUNK"); err != nil {
		return err
	}
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	number := numbers(args)
	b := make([]byte, number(2))
	for left := number(1); left > 0; left -= int64(len(b)) {
		if _, err := c.Write(b[:min(left, int64(len(b)))]); err != nil {
			return err
		}
	}
	return nil
}
