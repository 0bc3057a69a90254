package proto

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Times of an exchange; see SPEC.md.
const (
	FrameTime  = 5 * time.Second  // from a frame's first byte to its last
	IdleTime   = 60 * time.Second // that the agent waits for a request
	AnswerTime = 10 * time.Second // that the host waits for an answer
)

// Conn is a connection that carries frames.
type Conn struct {
	c  net.Conn
	r  *bufio.Reader
	id uint32 // of the last request
}

// NewConn makes a Conn of a connection, which is its own from then on.
func NewConn(c net.Conn) *Conn { return &Conn{c: c, r: bufio.NewReader(c)} }

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Receive waits for a frame to begin, 0: for ever, and then FrameTime at most for
// the rest. io.EOF is an end between frames.
func (c *Conn) Receive(idle time.Duration) (Frame, error) {
	var until time.Time
	if idle > 0 {
		until = time.Now().Add(idle)
	}
	if err := c.c.SetReadDeadline(until); err != nil {
		return Frame{}, err
	}
	if _, err := c.r.Peek(1); err != nil {
		return Frame{}, err
	}
	if err := c.c.SetReadDeadline(time.Now().Add(FrameTime)); err != nil {
		return Frame{}, err
	}
	return readFrame(c.r)
}

// Send sends a message, which the peer has FrameTime to take.
func (c *Conn) Send(k Kind, id uint32, message any) error {
	b, err := Append(nil, k, id, message)
	if err != nil {
		return err
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(FrameTime)); err != nil {
		return err
	}
	_, err = c.c.Write(b)
	return err
}

// Refusal is what the agent says when it cannot do what it was asked.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return "the agent: " + e.Text }

// Call asks and waits for the answer, AnswerTime at most for everything. A
// *Refusal leaves the connection usable, any other error does not.
func (c *Conn) Call(k Kind, request any, answer Message) error {
	c.id++
	if err := c.Send(k, c.id, request); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	f, err := c.Receive(AnswerTime)
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case f.ID != c.id:
		return bad("an answer to request %d, not %d", f.ID, c.id)
	case f.Kind == No:
		var no Failure
		if err := Reply(f.Body, &no); err != nil {
			return err
		}
		return &Refusal{no.Error}
	case f.Kind != k|Answer:
		return bad("an answer of kind %#x to a request of kind %#x", uint8(f.Kind), uint8(k))
	}
	return Reply(f.Body, answer)
}

// maxLine is the longest line that answers CONNECT: "OK 4294967295\n".
const maxLine = 15

// Dial reaches the agent of a guest by the hybrid protocol, at the --uds-path of
// its vsock device. Devices answer CONNECT by a line, or not (--ok-line never):
// since a frame begins with a byte of 0, the answer to a first ping tells.
func Dial(path string, port uint32, limit time.Duration) (*Conn, error) {
	nc, err := net.DialTimeout("unix", path, limit)
	if err != nil {
		return nil, err
	}
	c := NewConn(nc)
	if err := c.connect(port, limit); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ErrNoAgent says that the guest does not accept.
var ErrNoAgent = errors.New("the guest does not answer: guestwire agent serve does not run in it, or it is still starting")

func (c *Conn) connect(port uint32, limit time.Duration) error {
	if err := c.c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	b, err := Append(fmt.Appendf(nil, "CONNECT %d\n", port), Ping, 0, Empty{})
	if err != nil {
		return err
	}
	_, _ = c.c.Write(b) // who has closed may have answered before
	if err := c.skipLine(); err != nil {
		return err
	}
	f, err := readFrame(c.r)
	switch {
	case err == io.EOF:
		err = fmt.Errorf("what listens in the guest has ended the connection: %w", err)
	case err == nil && (f.Kind != Ping|Answer || f.ID != 0):
		err = bad("the answer to a ping is of kind %#x", uint8(f.Kind))
	}
	return err
}

// skipLine reads the answer to CONNECT, if there is one.
func (c *Conn) skipLine() error {
	first, err := c.r.Peek(1)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("no answer to CONNECT: %w", err)
	case err != nil: // closed without a word
		return ErrNoAgent
	case first[0] != 'O':
		return nil
	}
	for i := range maxLine {
		b, err := c.r.ReadByte()
		switch {
		case err != nil:
			return fmt.Errorf("no answer to CONNECT: %w", err)
		case b == '\n' && i > 2:
			return nil
		case i < 3 && b != "OK "[i]:
			return bad("the answer to CONNECT is not OK")
		}
	}
	return bad("the answer to CONNECT does not end")
}
