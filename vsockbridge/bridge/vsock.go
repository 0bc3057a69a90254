package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/mdlayher/socket"
	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// Streams are opened by package vsock, which knows nothing else; seqpacket sockets
// by package socket, on which it rests.

func (a *Address) isVsock() bool { return strings.HasPrefix(a.kind.name, "vsock") }

func listenVsock(a *Address) (net.Listener, error) {
	if a.Type == unix.SOCK_STREAM {
		l, err := vsock.ListenContextID(a.CID, a.Port, nil)
		return l, explainVsock(err)
	}
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_SEQPACKET, 0, "vsock", nil)
	if err != nil {
		return nil, explainVsock(err)
	}
	if err = c.Bind(&unix.SockaddrVM{CID: a.CID, Port: a.Port}); err == nil {
		err = c.Listen(backlog)
	}
	if err != nil {
		c.Close()
		return nil, explainVsock(err)
	}
	return packetListener{c}, nil
}

func dialVsock(ctx context.Context, a *Address) (net.Conn, error) {
	if a.Type == unix.SOCK_STREAM {
		c, err := vsock.DialContext(ctx, a.CID, a.Port, nil)
		if err != nil {
			return nil, explainVsock(err)
		}
		return c, nil
	}
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_SEQPACKET, 0, "vsock", nil)
	if err != nil {
		return nil, explainVsock(err)
	}
	if _, err := c.Connect(ctx, &unix.SockaddrVM{CID: a.CID, Port: a.Port}); err != nil {
		c.Close()
		return nil, explainVsock(err)
	}
	return packetConn{c}, nil
}

// packetListener is a seqpacket socket as a net.Listener.
type packetListener struct{ *socket.Conn }

func (l packetListener) Accept() (net.Conn, error) {
	c, _, err := l.Conn.Accept(context.Background(), 0)
	if err != nil {
		return nil, err
	}
	return packetConn{c}, nil
}

func (l packetListener) Addr() net.Addr { return &vsock.Addr{} }

// packetConn is a seqpacket connection as far as it must look like a net.Conn to
// be handed to the relay.
type packetConn struct{ *socket.Conn }

func (c packetConn) LocalAddr() net.Addr  { return &vsock.Addr{} }
func (c packetConn) RemoteAddr() net.Addr { return &vsock.Addr{} }

// setBuffer sets the size of a connection's receive buffer, which the peer learns
// at once. The most that is allowed goes up before.
func setBuffer(fd int, n uint64) error {
	err := unix.SetsockoptUint64(fd, unix.AF_VSOCK, unix.SO_VM_SOCKETS_BUFFER_MAX_SIZE, n)
	if err == nil {
		err = unix.SetsockoptUint64(fd, unix.AF_VSOCK, unix.SO_VM_SOCKETS_BUFFER_SIZE, n)
	}
	return err
}

// explainVsock adds what to do about an error.
func explainVsock(err error) error {
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: this kernel has no AF_VSOCK loaded (modprobe vsock; in a guest vmw_vsock_virtio_transport, on a host vhost_vsock, for one machine alone vsock_loopback)", err)
	case errors.Is(err, unix.ESOCKTNOSUPPORT):
		return fmt.Errorf("%w: the device or the kernel lacks this type of vsock socket", err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: no transport for this CID (a guest reaches 2, the host; a host with vhost_vsock its guests; 1 needs vsock_loopback)", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: the CID is not this machine's (leave it out to listen on every one)", err)
	}
	return err
}
