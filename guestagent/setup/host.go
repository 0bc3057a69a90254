package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
)

// Host is the host as a source of configurations.
type Host struct {
	Dial     func(context.Context) (net.Conn, error) // nil: by vsock
	Obstacle func(error)                             // told what hinders, when that is something else than the last time; nil: nobody is
}

const (
	attemptTime = 5 * time.Second // for the host to accept, and to send
	firstPause  = 100 * time.Millisecond
	longPause   = 30 * time.Second
)

// Follow hands every configuration that the host sends to take: the present one,
// and the later ones as they come. When the connection ends it connects again,
// after pauses of up to 30 s. It returns nil when take returns false, else the
// last obstacle when ctx has ended.
func (h *Host) Follow(ctx context.Context, take func(*proto.Network) bool) error {
	var last error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		got, err := h.session(ctx, take)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && h.Obstacle != nil && (last == nil || got || err.Error() != last.Error()):
			h.Obstacle(err)
			last = err
		case ctx.Err() == nil || last == nil:
			last = err // not that we have closed it ourselves
		}
		if got {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}

// session is one connection. got says that the host has sent something right.
func (h *Host) session(ctx context.Context, take func(*proto.Network) bool) (got bool, err error) {
	dial := h.Dial
	if dial == nil {
		dial = dialVsock
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	nc, err := dial(attempt)
	if err != nil {
		return false, err
	}
	c := proto.NewConn(nc)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	for wait := attemptTime; ; wait = 0 { // the first is sent at once
		n, err := next(c, wait)
		if err != nil {
			return got, fmt.Errorf("the host's configuration: %w", err)
		}
		got = true
		if !take(n) {
			return true, nil
		}
	}
}

func next(c *proto.Conn, wait time.Duration) (*proto.Network, error) {
	f, err := c.Receive(wait)
	if err != nil {
		return nil, err
	}
	if f.Kind != proto.Config || f.ID != 0 {
		return nil, fmt.Errorf("%w: kind %#x, id %d", proto.ErrFrame, uint8(f.Kind), f.ID)
	}
	n := &proto.Network{}
	return n, proto.Reply(f.Body, n)
}

func dialVsock(ctx context.Context) (net.Conn, error) {
	c, err := vsock.DialContext(ctx, vsock.Host, proto.Port, nil)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENODEV):
		return nil, fmt.Errorf("no vsock (%w): is the driver (vmw_vsock_virtio_transport) loaded, and has the VM a vsock device?", err)
	case errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("the host has no configuration for this guest (%w): `guestwire run` and `daemon` have one for guests with a network card", err)
	}
	return nil, fmt.Errorf("reach the host by vsock: %w", err)
}
