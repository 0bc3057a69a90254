package proto

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// frame lays a frame out as SPEC.md draws it, with any header.
func frame(n uint32, version, kind byte, reserved uint16, id uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, n)
	b = append(b, version, kind)
	b = binary.BigEndian.AppendUint16(b, reserved)
	b = binary.BigEndian.AppendUint32(b, id)
	return string(b) + body
}

func good(kind byte, id uint32, body string) string {
	return frame(uint32(8+len(body)), 1, kind, 0, id, body)
}

func TestAppend(t *testing.T) {
	got, err := Append([]byte("before"), Time, 0x01020304, TimeRequest{Now: 5})
	want := "before" + "\x00\x00\x00\x11" + "\x01\x04\x00\x00" + "\x01\x02\x03\x04" + `{"now":5}`
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	long := Failure{strings.Repeat("x", MaxFrame-headerSize-len(`{"error":""}`))}
	if b, err := Append(nil, No, 1, long); err != nil || len(b) != lengthSize+MaxFrame {
		t.Errorf("the longest frame: %d bytes, %v", len(b), err)
	}
	long.Error += "x"
	if b, err := Append(nil, No, 1, long); err == nil || len(b) != 0 {
		t.Errorf("a frame that is too long: %d bytes, %v", len(b), err)
	}
}

func TestReadFrame(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     error // nil: kind 2, id 7
	}{
		{"whole", good(2, 7, `{}`), nil},
		{"without a body", good(2, 7, ""), nil},
		{"longest", good(2, 7, strings.Repeat(" ", MaxFrame-8)), nil},
		{"nothing", "", io.EOF},
		{"end within the length", "\x00\x00", io.ErrUnexpectedEOF},
		{"end within the header", good(2, 7, "")[:9], io.ErrUnexpectedEOF},
		{"end within the body", good(2, 7, `{}`)[:13], io.ErrUnexpectedEOF},
		{"length 0", frame(0, 1, 2, 0, 7, ""), ErrFrame},
		{"shorter than its header", frame(7, 1, 2, 0, 7, ""), ErrFrame},
		{"one byte too long", frame(MaxFrame+1, 1, 2, 0, 7, ""), ErrFrame},
		{"4 GiB", frame(1<<32-1, 1, 2, 0, 7, ""), ErrFrame},
		{"version 0", frame(10, 0, 2, 0, 7, "{}"), ErrFrame},
		{"version 2", frame(10, 2, 2, 0, 7, "{}"), ErrFrame},
		{"reserved", frame(10, 1, 2, 1, 7, "{}"), ErrFrame},
		{"reserved, high byte", frame(10, 1, 2, 0x8000, 7, "{}"), ErrFrame},
		{"another protocol", "GET / HTTP/1.1\r\n\r\n", ErrFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readFrame(bufio.NewReader(strings.NewReader(c.in)))
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err == nil && (f.Kind != 2 || f.ID != 7 || len(f.Body) != len(c.in)-12) {
				t.Errorf("kind %d, id %d, %d bytes", f.Kind, f.ID, len(f.Body))
			}
		})
	}
}

// A length alone reserves nothing: a client that says 1 MiB and sends nothing
// costs as little as one that says nothing.
func TestLengthReservesNothing(t *testing.T) {
	in := frame(MaxFrame, 1, 2, 0, 7, "{")
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = readFrame(bufio.NewReader(strings.NewReader(in)))
		}
	})
	if r.AllocedBytesPerOp() > 128<<10 {
		t.Errorf("%d bytes for a frame of which one has come", r.AllocedBytesPerOp())
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, in       string
		request, reply bool // accepted
	}{
		{"known", `{"now":1,"how":"step"}`, true, true},
		{"blanks around", " \n{\"now\":1}\t\n", true, true},
		{"unknown member", `{"now":1,"more":[1]}`, false, true},
		{"two objects", `{"now":1}{"now":2}`, false, false},
		{"bytes behind", `{"now":1}x`, false, false},
		{"list", `[{"now":1}]`, false, false},
		{"null", `null`, false, false},
		{"number", `1`, false, false},
		{"empty", ``, false, false},
		{"type", `{"now":"1"}`, false, false},
		{"beyond 64 bits", `{"now":9223372036854775808}`, false, false},
		{"value", `{"now":-1}`, false, false},
		{"how", `{"now":1,"how":"slowly"}`, false, false},
		{"not closed", `{"now":1`, false, false},
		{"8 deep", `{"now":1,"x":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}`, false, true},
		{"9 deep", `{"now":1,"x":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`, false, false},
		{"deep", strings.Repeat(`{"x":`, 100000), false, false},
		{"brackets in text are none", `{"now":1,"x":"` + strings.Repeat(`[{\"`, 100) + `"}`, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m TimeRequest
			if err := Request([]byte(c.in), &m); (err == nil) != c.request {
				t.Errorf("as a request: %v", err)
			} else if err != nil && !errors.Is(err, ErrFrame) {
				t.Errorf("%v is no ErrFrame", err)
			}
			if err := Reply([]byte(c.in), &m); (err == nil) != c.reply {
				t.Errorf("as an answer: %v", err)
			}
		})
	}
}

// An agent is as trustworthy as its guest: whatever it answers, the call ends, in
// bounded time and without what could harm a terminal.
func TestHostileAgent(t *testing.T) {
	for _, c := range []struct {
		name, answer, want string
		hang               bool // the agent stays
	}{
		{"right", good(0x82, 1, `{"hostname":"vm"}`), "", false},
		{"refusal", good(0xff, 1, `{"error":"no rights"}`), "the agent: no rights", false},
		{"refusal with escapes", good(0xff, 1, `{"error":"\u001b[2J"}`), "cannot be printed", false},
		{"escapes as they are", good(0x82, 1, "{\"hostname\":\"\x1b[2J\"}"), "invalid character", false},
		{"direction change", good(0x82, 1, `{"hostname":"a\u202eb"}`), "cannot be printed", false},
		{"long name", good(0x82, 1, `{"hostname":"`+strings.Repeat("x", 257)+`"}`), "at most 256", false},
		{"many links", good(0x82, 1, `{"links":[`+strings.Repeat("{},", 256)+`{}]}`), "too many", false},
		{"huge", frame(1<<31, 1, 0x82, 0, 1, ""), "bytes, not 8 to", true},
		{"other version", frame(10, 9, 0x82, 0, 1, "{}"), "version 9, not 1", true},
		{"wrong id", good(0x82, 2, "{}"), "request 2, not 1", true},
		{"wrong kind", good(0x81, 1, "{}"), "kind 0x81", true},
		{"the question itself", good(2, 1, "{}"), "kind 0x2 ", true},
		{"nested", good(0x82, 1, strings.Repeat(`{"links":`, 1000)), "nested", true},
		{"end", "", "EOF", false},
		{"half an answer", good(0x82, 1, `{"hostname":"vm"}`)[:20], "unexpected EOF", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, agent := net.Pipe()
			go func() {
				_, _ = readFrame(bufio.NewReader(agent))
				_, _ = agent.Write([]byte(c.answer))
				if !c.hang {
					agent.Close()
				}
			}()
			defer agent.Close()
			var got GuestInfo
			err := NewConn(host).Call(Info, Empty{}, &got)
			switch {
			case c.want == "" && (err != nil || got.Hostname != "vm"):
				t.Errorf("%v, %+v", err, got)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			case err != nil && err.Error() != printable(err.Error()):
				t.Errorf("an error that cannot be printed: %q", err)
			}
		})
	}
}

// now is a connection whose deadlines have all passed: what would wait, ends.
type now struct{ net.Conn }

func (c now) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		return c.Conn.SetReadDeadline(t)
	}
	return c.Conn.SetReadDeadline(time.Unix(1, 0))
}

// Every wait has a limit.
func TestDeadlines(t *testing.T) {
	for name, sent := range map[string]string{"silence": "", "one byte": "\x00", "endless body": frame(MaxFrame, 1, 0x82, 0, 1, "{")} {
		t.Run(name, func(t *testing.T) {
			host, agent := net.Pipe()
			defer agent.Close()
			r := bufio.NewReader(host)
			if sent != "" {
				go func() { _, _ = agent.Write([]byte(sent)) }()
				if _, err := r.Peek(len(sent)); err != nil {
					t.Fatal(err)
				}
			}
			c := &Conn{c: now{host}, r: r}
			if _, err := c.Receive(time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v, want a deadline", err)
			}
		})
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte(good(1, 1, "{}") + good(5, 2, `{"config":{"addresses":["10.0.2.15/24"],"mtu":1500}}`)))
	f.Add([]byte(good(3, 1, `{"target":"tcp:127.0.0.1:80"}`)))
	f.Add([]byte(good(0x82, 1, `{"links":[{"name":"eth0","addresses":["a/1"]}],"exposed":[{"port":1}]}`)))
	f.Add([]byte(frame(MaxFrame+1, 1, 1, 0, 1, "")))
	messages := func() []Message {
		return []Message{&Empty{}, &Failure{}, &Pong{}, &GuestInfo{}, &ExposeRequest{}, &Exposed{}, &TimeRequest{}, &TimeSet{}, &SetupRequest{}, &Changed{}, &Network{}}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			fr, err := readFrame(r)
			if err != nil {
				break
			}
			for _, m := range messages() {
				if Request(fr.Body, m) != nil {
					continue
				}
				// What is accepted can be said again, and is accepted again.
				b, err := Append(nil, fr.Kind, fr.ID, m)
				if err != nil {
					continue // it grew, by escapes
				}
				again, err := readFrame(bufio.NewReader(bytes.NewReader(b)))
				if err != nil || again.Kind != fr.Kind || again.ID != fr.ID {
					t.Fatalf("%+v became %+v, %v", fr, again, err)
				}
				if err := Request(again.Body, m); err != nil {
					t.Fatalf("%q became %q: %v", fr.Body, again.Body, err)
				}
			}
		}
	})
}
