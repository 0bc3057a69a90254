package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The two ends of systemd's protocols for services: sd_listen_fds(3) and
// sd_notify(3).

const firstSocket = 3 // SD_LISTEN_FDS_START

// systemdSocket is the socket that we were started with; nil without one.
func systemdSocket() (*os.File, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n < 1 {
		return nil, nil
	}
	if n > 1 {
		return nil, fmt.Errorf("systemd has given %d sockets: one is served", n)
	}
	unix.CloseOnExec(firstSocket)
	return os.NewFile(firstSocket, "systemd"), nil
}

// notifySystemd tells who started us how we are; nobody need listen.
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" || path[0] != '/' && path[0] != '@' {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(state))
}
