package vsock

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Pings are small requests on blocking sockets by one thread that does nothing else: what is measured is the way, not Go's poller and scheduler.
const pingSize = 64

// PingServer accepts on the listening socket fd, one connection after another, and sends back what comes until the client closes.
func PingServer(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := make([]byte, pingSize)
	for {
		c, err := accept(fd)
		if err != nil {
			return os.NewSyscallError("accept", err)
		}
		for {
			n, err := unix.Read(c, b)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				break
			}
			if _, err := unix.Write(c, b[:n]); err != nil {
				break
			}
		}
		unix.Close(c)
	}
}

func accept(fd int) (int, error) {
	for {
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != unix.EINTR && err != unix.ECONNABORTED {
			return c, err
		}
	}
}

// Connector opens a blocking connection to a PingServer.
type Connector func() (fd int, err error)

// ToHost connects from a guest to a port of CID 2.
func ToHost(port uint32) Connector {
	return func() (int, error) {
		for {
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return -1, os.NewSyscallError("socket", err)
			}
			if err = unix.Connect(fd, &unix.SockaddrVM{CID: Host, Port: port}); err == nil {
				return fd, nil
			}
			unix.Close(fd)
			if err != unix.EINTR { // a signal of Go's runtime undoes a connect
				return -1, os.NewSyscallError("connect", err)
			}
		}
	}
}

// ToGuest connects by the hybrid protocol at path to a port of the guest behind it.
func ToGuest(path string, port uint32) Connector {
	return func() (int, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, os.NewSyscallError("socket", err)
		}
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
			_, err = unix.Write(fd, fmt.Appendf(nil, "CONNECT %d\n", port))
		}
		var line [32]byte // the server does not speak first, so nothing stands behind the line
		n := 0
		for err == nil && (n == 0 || line[n-1] != '\n') {
			var k int
			if k, err = read(fd, line[n:]); k == 0 && err == nil {
				err = unix.ECONNRESET
			}
			n += k
		}
		if err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("CONNECT %d: %w", port, err)
		}
		return fd, nil
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		if n, err := unix.Read(fd, b); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// ping sends b and waits for as much.
func ping(fd int, b []byte) error {
	if _, err := unix.Write(fd, b); err != nil {
		return os.NewSyscallError("write", err)
	}
	for n := 0; n < len(b); {
		k, err := read(fd, b[n:])
		if err != nil || k == 0 {
			return fmt.Errorf("read: %d bytes, %v", k, err)
		}
		n += k
	}
	return nil
}

// Pings measures n round trips on one connection; it returns the times in order of length.
func Pings(connect Connector, n int) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := connect()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	times, b := make([]time.Duration, n), make([]byte, pingSize)
	for i := range times {
		start := time.Now()
		if err := ping(fd, b); err != nil {
			return nil, fmt.Errorf("round trip %d: %w", i, err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times, nil
}

// PingEach opens a connection, makes one round trip and closes it, n times, one after another.
func PingEach(connect Connector, n int) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, start := make([]byte, pingSize), time.Now()
	for i := range n {
		fd, err := connect()
		if err == nil {
			err = ping(fd, b)
			unix.Close(fd)
		}
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return time.Since(start), nil
}

// ListenUNIX opens a blocking UNIX socket for a PingServer.
func ListenUNIX(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen on %s: %w", path, err)
	}
	return fd, nil
}

// ListenGuest opens a blocking vsock port of this guest for a PingServer.
func ListenGuest(port uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	return fd, nil
}
