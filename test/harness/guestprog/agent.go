package main

import (
	"fmt"
	"os"

	"guestwire/test/harness/agent"

	"golang.org/x/sys/unix"
)

// runAgent makes the device a transparent byte line and serves it.
func runAgent(args []string) error {
	if err := want(args, 1, "DEVICE"); err != nil {
		return err
	}
	f, err := os.OpenFile(args[0], os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
		t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return agent.Serve(f)
}
