package netns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"guestwire/test/harness/spawn"

	"golang.org/x/sys/unix"
)

// NS is a named network namespace.
type NS struct{ Name string }

// Do runs f on a thread inside the namespace. Sockets made by f belong to the namespace for good; f must not start goroutines that make more.
func (n *NS) Do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, so no other goroutine ever runs inside the namespace by accident.
		runtime.LockOSThread()
		fd, err := unix.Open("/run/netns/"+n.Name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- fmt.Errorf("namespace %s: %w", n.Name, err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter namespace %s: %w", n.Name, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Listen is net.Listen inside the namespace.
func (n *NS) Listen(network, addr string) (l net.Listener, err error) {
	err = n.Do(func() error { l, err = net.Listen(network, addr); return err })
	return l, err
}

// ListenUDP is net.ListenUDP inside the namespace.
func (n *NS) ListenUDP(addr string) (c *net.UDPConn, err error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	err = n.Do(func() error { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(ap)); return err })
	return c, err
}

// Dial is net.Dial inside the namespace; addr must be numeric.
func (n *NS) Dial(network, addr string) (c net.Conn, err error) {
	err = n.Do(func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.Dial(network, addr)
		return err
	})
	return c, err
}

// DialFrom is Dial with the given local address (host:port, port may be 0).
func (n *NS) DialFrom(network, local, addr string) (c net.Conn, err error) {
	ap, err := netip.ParseAddrPort(local)
	if err != nil {
		return nil, err
	}
	err = n.Do(func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = net.UDPAddrFromAddrPort(ap)
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(ap)
		}
		c, err = d.Dial(network, addr)
		return err
	})
	return c, err
}

// Sysctl writes a file below /proc/sys/net, which shows the namespace of the calling thread.
func (n *NS) Sysctl(key, value string) error {
	return n.Do(func() error {
		return os.WriteFile("/proc/sys/net/"+strings.ReplaceAll(key, ".", "/"), []byte(value), 0o644)
	})
}

// Run runs a command inside the namespace and returns what it printed.
func (n *NS) Run(timeout time.Duration, argv ...string) (string, error) {
	return spawn.Run(timeout, spawn.Options{NS: n.Name}, argv...)
}

// ip runs iproute2 inside the namespace.
func (n *NS) ip(args string) error {
	_, err := spawn.Run(10*time.Second, spawn.Options{}, append([]string{"ip", "-n", n.Name}, strings.Fields(args)...)...)
	return err
}
