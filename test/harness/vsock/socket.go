package vsock

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Host is the CID of the host.
const Host = unix.VMADDR_CID_HOST

// Conn is one AF_VSOCK socket, stream or seqpacket. On the latter a Write is a message and a Read gives one, cut to the buffer.
type Conn struct {
	*os.File
	remote Addr
}

// Addr is a CID and a port.
type Addr struct{ CID, Port uint32 }

// Network is "vsock".
func (Addr) Network() string  { return "vsock" }
func (a Addr) String() string { return fmt.Sprintf("%d:%d", a.CID, a.Port) }

// LocalAddr is the address that the kernel has given.
func (c *Conn) LocalAddr() net.Addr {
	var a Addr
	_ = c.control(func(fd int) error {
		sa, err := unix.Getsockname(fd)
		if vm, ok := sa.(*unix.SockaddrVM); ok {
			a = Addr{vm.CID, vm.Port}
		}
		return err
	})
	return a
}

// RemoteAddr is the peer's.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// CloseWrite ends the sending half.
func (c *Conn) CloseWrite() error {
	return c.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

func (c *Conn) control(f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func socket(kind int) (*os.File, int, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, os.NewSyscallError("socket", err)
	}
	return os.NewFile(uintptr(fd), "vsock"), fd, nil
}

// Dial connects to a port, kind being unix.SOCK_STREAM or unix.SOCK_SEQPACKET. buffer is the size of the receive buffer that is announced as credit, in
// bytes; 0 leaves the kernel's default of 256 KiB. The kernel itself gives up after 2 s.
func Dial(to Addr, kind, buffer int) (*Conn, error) {
	f, fd, err := socket(kind)
	if err != nil {
		return nil, err
	}
	c := &Conn{File: f, remote: to}
	if buffer > 0 {
		err = setBuffer(fd, buffer)
	}
	if err == nil {
		err = c.connect(fd)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("connect vsock %v: %w", to, err)
	}
	return c, nil
}

func setBuffer(fd, n int) error {
	for _, option := range []int{unix.SO_VM_SOCKETS_BUFFER_MAX_SIZE, unix.SO_VM_SOCKETS_BUFFER_SIZE} {
		if err := unix.SetsockoptUint64(fd, unix.AF_VSOCK, option, uint64(n)); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

func (c *Conn) connect(fd int) error {
	err := unix.Connect(fd, &unix.SockaddrVM{CID: c.remote.CID, Port: c.remote.Port})
	if err != unix.EINPROGRESS {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	// The poller calls back once before it waits: the socket is asked, not the call.
	var state error
	err = raw.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(p, 0); n == 0 {
			return false
		}
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if state = err; err == nil && n != 0 {
			state = syscall.Errno(n)
		}
		return true
	})
	if err != nil {
		return err
	}
	return state
}

// Listener accepts on a port of this guest.
type Listener struct {
	*os.File
	addr Addr
}

// Listen opens a port for every CID of this guest, loopback included.
func Listen(port uint32, kind int) (*Listener, error) {
	f, fd, err := socket(kind)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	return &Listener{f, Addr{unix.VMADDR_CID_ANY, port}}, nil
}

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var c *Conn
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		var sa unix.Sockaddr
		var n int
		n, sa, failed = unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if failed == unix.EAGAIN || failed == unix.ECONNABORTED {
			return false
		}
		if failed == nil {
			c = &Conn{File: os.NewFile(uintptr(n), "vsock")}
			if vm, ok := sa.(*unix.SockaddrVM); ok {
				c.remote = Addr{vm.CID, vm.Port}
			}
		}
		return true
	})
	switch {
	case err != nil:
		return nil, net.ErrClosed
	case failed != nil:
		time.Sleep(time.Millisecond)
		return nil, failed
	}
	return c, nil
}

// Addr is the listener's.
func (l *Listener) Addr() net.Addr { return l.addr }
