package serve

import (
	"fmt"
	"net"
	"os"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

const backlog = 128

// Listen listens on a port of this guest's vsock, 0: one of the kernel's choice.
// buffer is how many bytes a connection may have under way to us, 0: the kernel's
// default. It is set before there is a connection, which inherits it: made smaller
// later, it would be exceeded by what the host has been allowed to send, and the
// kernel would drop that.
func Listen(port uint32, buffer int) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "vsock")
	defer f.Close() // of which FileListener has a copy
	if port == 0 {
		port = unix.VMADDR_PORT_ANY
	}
	if buffer > 0 {
		// The most first, since the size is cut to it.
		for _, option := range []int{unix.SO_VM_SOCKETS_BUFFER_MAX_SIZE, unix.SO_VM_SOCKETS_BUFFER_SIZE} {
			if err := unix.SetsockoptUint64(fd, unix.AF_VSOCK, option, uint64(buffer)); err != nil {
				return nil, fmt.Errorf("a buffer of %d bytes: %w", buffer, err)
			}
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return vsock.FileListener(f)
}
