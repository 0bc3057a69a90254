package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	attemptTime = 10 * time.Second // for one attempt to connect
	firstPause  = 20 * time.Millisecond
	longPause   = time.Second
)

// dialer is a side that connects.
type dialer struct{ a Address }

func (d *dialer) where() string { return d.a.String() }
func (d *dialer) close()        {}

// open connects, and while what is there may still come, tries again for Wait.
func (d *dialer) open(ctx context.Context) (opened, error) {
	until := time.Now().Add(d.a.Wait)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		c, err := d.attempt(ctx, until)
		if err == nil {
			return end(c, &d.a)
		}
		left := time.Until(until)
		if left <= 0 || !mayCome(err) {
			return opened{}, err
		}
		select {
		case <-ctx.Done():
			return opened{}, ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

// attempt connects once, and until the given time if that is in the future.
func (d *dialer) attempt(ctx context.Context, until time.Time) (net.Conn, error) {
	limit := attemptTime
	if left := time.Until(until); left > 0 {
		limit = min(limit, left)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var nd net.Dialer
	switch d.a.kind.name {
	case "vsock-connect":
		return dialVsock(ctx, &d.a)
	case "tcp-connect":
		return nd.DialContext(ctx, "tcp", d.a.HostPort)
	case "uds":
		return dialGuest(ctx, d.a.Path, d.a.Port)
	}
	switch d.a.Type {
	case unix.SOCK_SEQPACKET:
		return nd.DialContext(ctx, "unixpacket", d.a.Path)
	case unix.SOCK_DGRAM:
		c, err := nd.DialContext(ctx, "unixgram", d.a.Path)
		if err == nil {
			err = named(c)
		}
		return c, err
	}
	return nd.DialContext(ctx, "unix", d.a.Path)
}

// named gives a datagram socket a name in the abstract namespace, so that who
// gets its datagrams can answer.
func named(c net.Conn) error {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.Bind(int(fd), &unix.SockaddrUnix{}) })
	return errors.Join(cerr, err)
}

// mayCome tells whether an error is one of a server that has not started yet.
func mayCome(err error) bool {
	for _, e := range []unix.Errno{
		unix.ECONNREFUSED, unix.ECONNRESET, unix.ENOENT, unix.EAGAIN, unix.ENODEV,
		unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ETIMEDOUT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, errGuestRefused) || errors.Is(err, context.DeadlineExceeded)
}

var errGuestRefused = errors.New("the guest does not accept")

// maxOK is the longest line that answers CONNECT: "OK 4294967295\r\n".
const maxOK = 15

// dialGuest connects to a port of a guest by the hybrid protocol: CONNECT in, OK
// out, and from then on the connection is the guest's. It reads the line and not
// a byte more.
func dialGuest(ctx context.Context, path string, port uint32) (_ net.Conn, err error) {
	var nd net.Dialer
	c, err := nd.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = fmt.Fprintf(c, "CONNECT %d\n", port) // who has closed may have answered before
	var line []byte
	for one := []byte{0}; err == nil && one[0] != '\n' && len(line) < maxOK; {
		if _, err = c.Read(one); err == nil {
			line = append(line, one[0])
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer to CONNECT: %w", ctx.Err())
	case err != nil: // closed without a word
		return nil, fmt.Errorf("%w (nobody listens on that port, or it is not up yet: wait=30s waits for it)", errGuestRefused)
	case !strings.HasPrefix(string(line), "OK ") || line[len(line)-1] != '\n':
		err = fmt.Errorf("the answer to CONNECT is %q, not OK: that is no vsock socket of a VM", line)
	}
	return c, err
}
