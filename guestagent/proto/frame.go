package proto

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Port is where the agent listens in the guest, and where the host has the
// guest's configuration.
const Port = 1023

const (
	Version  = 1
	MaxFrame = 1 << 20 // bytes behind the length
	MaxDepth = 8       // of objects and lists within each other

	lengthSize = 4
	headerSize = 8 // behind the length
)

// Kind is what a frame asks for, or answers.
type Kind uint8

const (
	Ping   Kind = 1
	Info   Kind = 2
	Expose Kind = 3
	Time   Kind = 4
	Setup  Kind = 5
	Config Kind = 6

	Answer Kind = 0x80 // with the kind of its request
	No     Kind = 0xff // the answer to what could not be done
)

// Frame is one message with what surrounds it.
type Frame struct {
	Kind Kind
	ID   uint32
	Body []byte // JSON, not yet looked at
}

// ErrFrame is wrapped by every error about a frame or message that is wrong, as
// opposed to a connection that fails.
var ErrFrame = errors.New("not the agent's protocol")

func bad(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, a...))
}

// Append appends the frame of a message to b.
func Append(b []byte, k Kind, id uint32, message any) ([]byte, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return b, err
	}
	n := headerSize + len(body)
	if n > MaxFrame {
		return b, fmt.Errorf("a message of %d bytes is longer than %d", n, MaxFrame)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, Version, byte(k), 0, 0)
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, body...), nil
}

// readFrame reads one frame. An end before its first byte is io.EOF.
func readFrame(r *bufio.Reader) (f Frame, err error) {
	var head [lengthSize + headerSize]byte
	if _, err := io.ReadFull(r, head[:lengthSize]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < headerSize || n > MaxFrame {
		return f, bad("a frame of %d bytes, not %d to %d", n, headerSize, MaxFrame)
	}
	if _, err := io.ReadFull(r, head[lengthSize:]); err != nil {
		return f, torn(err)
	}
	switch h := head[lengthSize:]; {
	case h[0] != Version:
		return f, bad("version %d, not %d: use the same release on both sides", h[0], Version)
	case h[2]|h[3] != 0:
		return f, bad("reserved bytes %x", h[2:4])
	default:
		f.Kind, f.ID = Kind(h[1]), binary.BigEndian.Uint32(h[4:])
	}
	f.Body, err = readBody(r, int(n)-headerSize)
	return f, err
}

// readBody lets memory grow with what has really come.
func readBody(r io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(min(n, 64<<10))
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return nil, torn(err)
	}
	return b.Bytes(), nil
}

func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Message is a body that can tell whether its values are allowed.
type Message interface{ Check() error }

// Request reads the body of a request, all of which must be known.
func Request(body []byte, into Message) error { return decode(body, into, true) }

// Reply reads the body of an answer or of a configuration, of which the other
// side may know more than we do.
func Reply(body []byte, into Message) error { return decode(body, into, false) }

func decode(body []byte, into Message, strict bool) error {
	if err := checkDepth(body); err != nil {
		return err
	}
	if i := bytes.TrimLeft(body, " \t\r\n"); len(i) == 0 || i[0] != '{' {
		return bad("a message is one JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return bad("%v", printable(err.Error()))
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("there is more behind the JSON object")
	}
	if err := into.Check(); err != nil {
		return bad("%v", err)
	}
	return nil
}

// checkDepth bounds nesting before anything is built from it.
func checkDepth(body []byte) error {
	depth, inText := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return bad("nested more than %d deep", MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
