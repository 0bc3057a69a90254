package vhostuser

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// inherited judges a socket that we were started with, and tells whether it
// listens.
func inherited(fd int) (listening bool, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if domain != unix.AF_UNIX || typ != unix.SOCK_STREAM {
		return false, fmt.Errorf("descriptor %d is not a unix stream socket", fd)
	}
	acc, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return acc != 0, nil
}
