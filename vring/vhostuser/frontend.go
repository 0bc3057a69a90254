package vhostuser

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ReplyTimeout is how long a Frontend waits for a reply before it gives up.
const ReplyTimeout = 5 * time.Second

// NackError is a refusal that the backend answered with.
type NackError struct {
	Request Request
	Code    uint64
}

func (e *NackError) Error() string {
	return fmt.Sprintf("vhostuser: %v refused (%d)", e.Request, e.Code)
}

// ErrTimeout says that a reply did not come in time.
var ErrTimeout = errors.New("vhostuser: no reply in time")

// ErrClosed says that the backend closed the connection.
var ErrClosed = errors.New("vhostuser: connection closed by the backend")

// Frontend is the VMM's end of the protocol: a blocking client, with one method
// per message. It belongs to one goroutine.
type Frontend struct {
	// NeedReply asks for an acknowledgement of every message that has no reply
	// of its own. Set it after negotiating ProtocolFReplyAck; without it a
	// refused message goes unnoticed.
	NeedReply bool

	fd  int
	req int // our end of the backend request channel, -1: none
}

// DialFrontend connects to a listening backend.
func DialFrontend(path string) (*Frontend, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("vhostuser: connect to %s: %w", path, err)
	}
	return NewFrontendFD(fd), nil
}

// NewFrontendFD uses a connected blocking socket, which it then owns.
func NewFrontendFD(fd int) *Frontend {
	f := &Frontend{fd: fd, req: -1}
	f.SetTimeout(ReplyTimeout)
	return f
}

// SetTimeout changes how long replies are waited for.
func (f *Frontend) SetTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	return unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

// FD returns the socket.
func (f *Frontend) FD() int { return f.fd }

// Close leaves the backend.
func (f *Frontend) Close() {
	for _, fd := range [...]*int{&f.fd, &f.req} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// Raw sends bytes and descriptors as they are, in one sendmsg.
func (f *Frontend) Raw(p []byte, fds ...int) error {
	var oob []byte
	if len(fds) != 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		n, err := unix.SendmsgN(f.fd, p, oob, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EPIPE || err == unix.ECONNRESET:
			return ErrClosed
		case err != nil:
			return fmt.Errorf("vhostuser: sendmsg: %w", err)
		case n == len(p):
			return nil
		}
		p, oob = p[n:], nil
	}
}

// Message returns the wire form of a request.
func Message(r Request, flags uint32, payload []byte) []byte {
	h := Header{Request: r, Flags: version | flags, Size: uint32(len(payload))}
	return append(h.Append(make([]byte, 0, headerSize+len(payload))), payload...)
}

// NeedReply is the header flag that asks for an acknowledgement.
const NeedReply = flagNeedReply

// ReadReply reads one message from the backend.
func (f *Frontend) ReadReply() (Header, []byte, error) { return readMessage(f.fd) }

func readMessage(fd int) (Header, []byte, error) {
	var head [headerSize]byte
	if err := readFull(fd, head[:]); err != nil {
		return Header{}, nil, err
	}
	h := parseHeader(head[:])
	if h.Size > maxPayload {
		return h, nil, fmt.Errorf("vhostuser: reply of %d bytes", h.Size)
	}
	p := make([]byte, h.Size)
	return h, p, readFull(fd, p)
}

func readFull(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(fd, p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return ErrTimeout
		case err == unix.ECONNRESET || err == nil && n == 0:
			return ErrClosed
		case err != nil:
			return fmt.Errorf("vhostuser: read: %w", err)
		default:
			p = p[n:]
		}
	}
	return nil
}

// Send sends a request that has no reply of its own, and waits for the
// acknowledgement if NeedReply is set.
func (f *Frontend) Send(r Request, payload []byte, fds ...int) error {
	flags := uint32(0)
	if f.NeedReply {
		flags = flagNeedReply
	}
	if err := f.Raw(Message(r, flags, payload), fds...); err != nil {
		return err
	}
	if !f.NeedReply {
		return nil
	}
	p, err := f.reply(r)
	if err != nil {
		return err
	}
	return ack(r, p)
}

func ack(r Request, p []byte) error {
	if len(p) != 8 {
		return fmt.Errorf("vhostuser: acknowledgement of %v has %d bytes", r, len(p))
	}
	if code := order.Uint64(p); code != 0 {
		return &NackError{r, code}
	}
	return nil
}

// Ask sends a request that has a reply of its own and returns the reply's
// payload. A user-mode Linux asks for acknowledgements of these as well, which
// changes nothing; so does this one when NeedReply is set.
func (f *Frontend) Ask(r Request, payload []byte, fds ...int) ([]byte, error) {
	flags := uint32(0)
	if f.NeedReply {
		flags = flagNeedReply
	}
	if err := f.Raw(Message(r, flags, payload), fds...); err != nil {
		return nil, err
	}
	return f.reply(r)
}

func (f *Frontend) reply(r Request) ([]byte, error) {
	h, p, err := f.ReadReply()
	switch {
	case err != nil:
		return nil, err
	case h.Request != r:
		return nil, fmt.Errorf("vhostuser: reply to %v, asked %v", h.Request, r)
	case h.Flags != version|flagReply:
		return nil, fmt.Errorf("vhostuser: reply to %v has flags %#x", r, h.Flags)
	}
	return p, nil
}

func (f *Frontend) askU64(r Request) (uint64, error) {
	p, err := f.Ask(r, nil)
	if err != nil {
		return 0, err
	}
	if len(p) != 8 {
		return 0, fmt.Errorf("vhostuser: reply to %v has %d bytes", r, len(p))
	}
	return order.Uint64(p), nil
}

func (f *Frontend) sendU64(r Request, v uint64, fds ...int) error {
	return f.Send(r, order.AppendUint64(nil, v), fds...)
}

func (f *Frontend) sendState(r Request, index, num uint32) error {
	return f.Send(r, vringState(index, num))
}

func vringState(index, num uint32) []byte {
	return order.AppendUint32(order.AppendUint32(nil, index), num)
}
