package hostside

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/packet"
)

// The line may come in pieces, and what follows it is the guest's.
func TestConnectLine(t *testing.T) {
	const line, data = "CONNECT 7000\n", "pipelined\nCONNECT 1\n"
	for cut := range len(line + data) {
		r := newRig(t, nil)
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		all := line + data
		if cut > 0 {
			r.write(fd, all[:cut])
			r.idle()
			if cut < len(line) {
				r.asked(0)
			}
		}
		r.write(fd, all[cut:])
		r.idle()
		a := r.asked(1)
		if a.port != 7000 || a.typ != packet.Stream {
			t.Errorf("cut at %d: asked for %+v", cut, a)
		}
		r.want(fd, "", false) // nothing before the guest accepts
		server := r.accept(a)
		r.want(fd, fmt.Sprintf("OK %d\n", a.hostPort), false)
		r.want(server, data, false)
		r.write(server, "answer")
		r.want(fd, "answer", false)
		r.h.Close()
		if len(r.guest.cancelled) != 0 || r.value("connected") != 1 || r.value("pending") != 0 {
			t.Errorf("cut at %d: cancelled %v, counters wrong", cut, r.guest.cancelled)
		}
	}
}

func TestLineForms(t *testing.T) {
	for line, port := range map[string]uint32{
		"CONNECT 0\n": 0, "connect 22\n": 22, "CONNECT  22 \n": 22, "CONNECT 22\r\n": 22, "\tConnect\t22\n": 22,
		"CONNECT 4294967294\n": 4294967294, "CONNECT 0000000000000000000022\n": 22,
	} {
		if got, ok := parseConnect([]byte(line)); !ok || got != port {
			t.Errorf("%q: port %d, %v; want %d", line, got, ok, port)
		}
	}
}

// V12: what is no line closes the connection, without a word.
func TestBadLines(t *testing.T) {
	long := "CONNECT " + strings.Repeat("0", 21) + "22\n" // 32 bytes, the most
	if len(long) != maxLine {
		t.Fatal(len(long))
	}
	for _, c := range []struct {
		name, line string
		port       uint32
		ok         bool
	}{
		{"as long as can be", long, 22, true},
		{"one byte longer", "CONNECT 0" + strings.TrimPrefix(long, "CONNECT "), 0, false},
		{"no newline", strings.Repeat("x", 40), 0, false},
		{"endless port", "CONNECT " + strings.Repeat("1", 4000), 0, false},
		{"port too large", "CONNECT 4294967296\n", 0, false},
		{"any port", "CONNECT 4294967295\n", 0, false},
		{"negative", "CONNECT -1\n", 0, false},
		{"hex", "CONNECT 0x16\n", 0, false},
		{"no port", "CONNECT\n", 0, false},
		{"two ports", "CONNECT 1 2\n", 0, false},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", 0, false},
		{"empty line", "\n", 0, false},
		{"zeros", strings.Repeat("\x00", 32), 0, false},
		{"NUL in the port", "CONNECT 2\x002\n", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			fd := r.dial(r.uds, unix.SOCK_STREAM)
			r.write(fd, c.line)
			r.idle()
			if c.ok {
				if a := r.asked(1); a.port != c.port {
					t.Errorf("port %d, want %d", a.port, c.port)
				}
				return
			}
			r.asked(0)
			r.want(fd, "", true)
			if r.value("bad_lines") != 1 || r.value("pending") != 0 || len(r.log) != 1 {
				t.Errorf("bad_lines %d, pending %d, log %q", r.value("bad_lines"), r.value("pending"), r.log)
			}
		})
	}
}

// V12: a client that is slow, silent, or leaves in the middle.
func TestUnfinishedLines(t *testing.T) {
	r := newRig(t, nil)
	before := openFDs(t)
	t.Run("silent", func(t *testing.T) {
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.idle()
		r.pass(1990 * time.Millisecond)
		r.want(fd, "", false)
		r.pass(20 * time.Millisecond)
		r.want(fd, "", true)
	})
	t.Run("a byte now and then", func(t *testing.T) {
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.turn()
		for i := range 4 {
			r.write(fd, "CONNECT 7000\n"[i:i+1])
			r.idle()
			r.pass(490 * time.Millisecond)
		}
		r.want(fd, "", false)
		r.pass(50 * time.Millisecond)
		r.want(fd, "", true)
	})
	for name, leave := range map[string]func(fd int) error{
		"closes":      unix.Close,
		"half closes": func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) },
	} {
		for _, sent := range []string{"", "CONNECT 70"} {
			t.Run(name+" behind "+sent, func(t *testing.T) {
				fd, errno := unixsock.Dial(r.uds, unix.SOCK_STREAM)
				if errno != 0 {
					t.Fatal(errno)
				}
				r.write(fd, sent)
				r.turn()
				leave(fd)
				r.idle()
				unix.Close(fd)
			})
		}
	}
	r.asked(0)
	if r.value("slow_lines") != 2 || r.value("bad_lines") != 4 || r.value("pending") != 0 {
		t.Errorf("slow %d, bad %d, pending %d", r.value("slow_lines"), r.value("bad_lines"), r.value("pending"))
	}
	if n := openFDs(t); n > before+2 { // the two clients that the test still has open
		t.Errorf("%d descriptors, %d before", n, before)
	}
	if n := r.loop.Timers().Len(); n != 0 {
		t.Errorf("%d timers run", n)
	}
}

func TestHalfCloseWhileAsking(t *testing.T) {
	for _, question := range []string{"", "question"} {
		r := newRig(t, nil)
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\n"+question)
		r.turn()
		unix.Shutdown(fd, unix.SHUT_WR)
		r.idle()
		r.pass(3 * time.Second) // the line's time is not the guest's
		server := r.accept(r.asked(1))
		r.want(server, question, true)
		r.write(server, "answer")
		r.want(fd, fmt.Sprintf("OK %d\nanswer", r.asked(1).hostPort), false)
		if len(r.guest.cancelled) != 0 {
			t.Error("cancelled")
		}
	}
}

// Whoever leaves with nothing said is given up; what was said is delivered.
func TestLeavesWhileAsking(t *testing.T) {
	for _, c := range []struct {
		name, listener, sent string
		noticed              bool // before the guest answers
		delivered            string
	}{
		{"hybrid, silent", "", "CONNECT 1\n", true, ""},
		{"hybrid, silent, in the turn of the answer", "", "CONNECT 1\n", false, ""},
		{"hybrid, with data", "", "CONNECT 1\ndata", true, "data"},
		{"hybrid, with data, in the turn of the answer", "", "CONNECT 1\ndata", false, "data"},
		{"rule, silent", "rule", "", true, ""},
		{"rule, with data", "rule", "log line", true, "log line"},
		{"rule, with data, in the turn of the answer", "rule", "log line", false, "log line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var path string
			r := newRig(t, func(cf *Config) {
				path = cf.UDSPath + ".rule"
				cf.Listen = []Rule{{Host: Address{Network: Unix, Path: path}, Port: 9, Type: packet.Stream}}
			})
			if c.listener == "" {
				path = r.uds
			}
			before := openFDs(t)
			fd, errno := unixsock.Dial(path, unix.SOCK_STREAM)
			if errno != 0 {
				t.Fatal(errno)
			}
			r.write(fd, c.sent)
			r.turn()
			a := r.asked(1)
			unix.Close(fd)
			if c.noticed {
				r.idle()
			}
			if c.delivered == "" && c.noticed {
				if len(r.guest.cancelled) != 1 || r.guest.cancelled[0] != a.hostPort {
					t.Errorf("cancelled %v, want [%d]", r.guest.cancelled, a.hostPort)
				}
			} else {
				server, ok := r.h.Accepted(a.cookie, a.hostPort)
				if ok != (c.delivered != "") || len(r.guest.cancelled) != 0 {
					t.Errorf("handed over %v, cancelled %v", ok, r.guest.cancelled)
				}
				if ok {
					r.want(server, c.delivered, true)
					unix.Close(server)
				}
			}
			if n := openFDs(t); n != before || r.value("pending") != 0 {
				t.Errorf("%d descriptors, %d before; %d pending", n, before, r.value("pending"))
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	for _, why := range []unix.Errno{unix.ECONNREFUSED, unix.ETIMEDOUT, unix.ECONNRESET} {
		r := newRig(t, nil)
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\nx")
		r.turn()
		r.h.Refused(r.asked(1).cookie, why)
		r.want(fd, "", true)
		if len(r.guest.cancelled) != 0 || r.value("refused") != 1 {
			t.Errorf("%v: cancelled %v, refused %d", why, r.guest.cancelled, r.value("refused"))
		}
	}
	r := newRig(t, nil)
	for i, errno := range []unix.Errno{unix.ENOTCONN, unix.EAGAIN} {
		r.guest.errno = errno
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\n")
		r.idle()
		r.want(fd, "", true)
		if r.value("refused") != uint64(i+1) {
			t.Errorf("%v: refused %d", errno, r.value("refused"))
		}
	}
	r.guest.errno = 0
	r.h.Attach(nil) // as before Attach
	fd := r.dial(r.uds, unix.SOCK_STREAM)
	r.write(fd, "CONNECT 1\n")
	r.idle()
	r.want(fd, "", true)
}

// wait= asks again: the guest is not there, refuses, does not answer, accepts.
func TestWait(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Wait = time.Second })
	r.guest.errno = unix.ENOTCONN
	fd := r.dial(r.uds, unix.SOCK_STREAM)
	r.write(fd, "CONNECT 1\ndata")
	r.idle()
	r.pass(100 * time.Millisecond)
	r.want(fd, "", false)
	if n := r.value("retries"); n != 2 { // after 20 and 60 ms
		t.Errorf("%d retries", n)
	}
	r.guest.errno = 0
	r.pass(40 * time.Millisecond) // 140 ms
	r.h.Refused(r.asked(1).cookie, unix.ECONNREFUSED)
	r.idle()
	r.asked(1)
	r.pass(160 * time.Millisecond)
	server := r.accept(r.asked(2))
	r.want(fd, fmt.Sprintf("OK %d\n", r.asked(2).hostPort), false)
	r.want(server, "data", false)

	t.Run("in vain", func(t *testing.T) {
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.guest.errno = unix.ENOTCONN
		r.write(fd, "CONNECT 1\n")
		r.turn()
		r.pass(990 * time.Millisecond)
		r.want(fd, "", false)
		r.pass(30 * time.Millisecond)
		r.want(fd, "", true)
	})
	t.Run("client leaves meanwhile", func(t *testing.T) {
		fd, _ := unixsock.Dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\n")
		r.turn()
		unix.Close(fd)
		r.idle()
		if r.value("left_early") != 1 || r.value("pending") != 0 {
			t.Errorf("left_early %d, pending %d", r.value("left_early"), r.value("pending"))
		}
	})
	if n := r.loop.Timers().Len(); n != 0 || len(r.guest.cancelled) != 0 {
		t.Errorf("%d timers run, cancelled %v", n, r.guest.cancelled)
	}
}

func TestOKLine(t *testing.T) {
	for _, c := range []struct {
		o    OKLine
		port uint32
		want string
	}{
		{OKAlways, 1 << 30, "OK 1073741824\n"}, {OKAlways, 5, "OK 5\n"},
		{OKNever, 5, ""},
		{OKShort, 1<<30 + 77, "OK 77\n"}, {OKShort, 0xffffffff, "OK 65535\n"}, {OKShort, 1 << 30, "OK 0\n"},
	} {
		r := newRig(t, func(cf *Config) { cf.OKLine = c.o })
		r.guest.next = c.port - 1
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\n")
		r.turn()
		server := r.accept(r.asked(1))
		r.write(server, "SSH-2.0")
		r.want(fd, c.want+"SSH-2.0", false)
		if c.o == OKShort && len(c.want) > len("OK 65535\n") {
			t.Errorf("%q is longer than systemd-ssh-proxy looks", c.want)
		}
	}
	for s, want := range map[string]OKLine{"always": OKAlways, "never": OKNever, "short": OKShort} {
		if got, err := ParseOKLine(s); got != want || err != nil {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := ParseOKLine("yes"); err == nil || !strings.Contains(err.Error(), "always, never") {
		t.Errorf("error %v", err)
	}
}

func TestSeqpacket(t *testing.T) {
	r := newRig(t, nil)
	path := r.uds + "_seqpacket"
	fd := r.dial(path, unix.SOCK_SEQPACKET)
	r.write(fd, "CONNECT 7\n")
	r.write(fd, "one")
	r.write(fd, "two")
	r.idle()
	a := r.asked(1)
	if a.port != 7 || a.typ != packet.SeqPacket {
		t.Errorf("asked for %+v", a)
	}
	server := r.accept(a)
	b := make([]byte, 100)
	if n, err := unix.Read(fd, b); string(b[:max(n, 0)]) != fmt.Sprintf("OK %d\n", a.hostPort) {
		t.Errorf("read %q, %v", b[:max(n, 0)], err)
	}
	for _, want := range []string{"one", "two"} {
		if n, err := unix.Read(server, b); string(b[:max(n, 0)]) != want {
			t.Errorf("message %q, %v; want %q", b[:max(n, 0)], err, want)
		}
	}
	for name, m := range map[string]string{
		"more behind the line": "CONNECT 7\nlost", "long": "CONNECT 7\n" + strings.Repeat("x", 100), "no line": "hello\n", "huge": strings.Repeat("x", 60000),
	} {
		fd := r.dial(path, unix.SOCK_SEQPACKET)
		r.write(fd, m)
		r.idle()
		r.asked(1)
		if _, eof := r.read(fd); !eof {
			t.Errorf("%s: not closed", name)
		}
	}
}

// At most 64 clients wait for the guest; the others wait in the backlog, and
// nothing spins.
func TestPendingLimit(t *testing.T) {
	r := newRig(t, nil)
	var fds []int
	for range maxPending + 6 {
		fd := r.dial(r.uds, unix.SOCK_STREAM)
		r.write(fd, "CONNECT 1\n")
		fds = append(fds, fd)
	}
	for range 10 {
		r.turn()
	}
	r.idle()
	r.asked(maxPending)
	for i := range 6 {
		r.accept(r.guest.asks[i])
	}
	r.idle()
	r.asked(maxPending + 6)
	r.want(fds[0], fmt.Sprintf("OK %d\n", r.guest.asks[0].hostPort), false)
	r.want(fds[6], "", false)

	before := len(r.guest.cancelled)
	r.h.Close()
	if n := len(r.guest.cancelled) - before; n != maxPending || r.value("pending") != 0 {
		t.Errorf("Close cancelled %d of %d, %d pending", n, maxPending, r.value("pending"))
	}
	r.want(fds[6], "", true)
}

// Cookies are used again and lead to the right client.
func TestManyClients(t *testing.T) {
	r := newRig(t, nil)
	before := openFDs(t)
	for i := range 500 {
		fd, errno := unixsock.Dial(r.uds, unix.SOCK_STREAM)
		if errno != 0 {
			t.Fatal(errno)
		}
		r.write(fd, fmt.Sprintf("CONNECT %d\n%d", i, i))
		r.turn()
		a := r.asked(i + 1)
		if i%3 == 0 {
			r.h.Refused(a.cookie, unix.ECONNREFUSED)
		} else {
			server, ok := r.h.Accepted(a.cookie, a.hostPort)
			if !ok || a.port != uint32(i) {
				t.Fatalf("client %d: %v, %+v", i, ok, a)
			}
			r.want(server, fmt.Sprint(i), false)
			unix.Close(server)
		}
		unix.Close(fd)
	}
	if n := openFDs(t); n != before || len(r.h.clients) != 1 {
		t.Errorf("%d descriptors, %d before; %d seats", n, before, len(r.h.clients))
	}
}
