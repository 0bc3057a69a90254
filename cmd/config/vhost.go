package config

import (
	"strconv"
	"strings"
)

// Vhost says whether the kernel's vhost-net moves the frames of a namespace.
type Vhost struct {
	Use      bool // if it can be had
	Required bool // it must be had
	FD       int  // an open /dev/vhost-net; -1: to be opened
}

// vhostKernel reads --vhost-kernel. A descriptor was passed to be used.
func vhostKernel(s string) (Vhost, error) {
	switch s {
	case "", "auto":
		return Vhost{Use: true, FD: -1}, nil
	case "on":
		return Vhost{Use: true, Required: true, FD: -1}, nil
	case "off":
		return Vhost{FD: -1}, nil
	}
	if number, ok := strings.CutPrefix(s, "fd:"); ok {
		if fd, err := strconv.ParseUint(number, 10, 31); err == nil {
			return Vhost{Use: true, Required: true, FD: int(fd)}, nil
		}
	}
	return Vhost{}, wrong("--vhost-kernel", s, "give auto, on, off, or fd:N for an open /dev/vhost-net")
}
