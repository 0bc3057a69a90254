package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// dialer opens connections to HOST:PORT by TCP, to unix:PATH, or to vsock:CID:PORT, there with a receive buffer of that many bytes unless 0.
func dialer(to string, buffer int) traffic.Dialer {
	if path, ok := strings.CutPrefix(to, "unix:"); ok {
		return func() (net.Conn, error) { return net.Dial("unix", path) }
	}
	rest, ok := strings.CutPrefix(to, "vsock:")
	if !ok {
		return func() (net.Conn, error) { return net.DialTimeout("tcp", to, 20*time.Second) }
	}
	return func() (net.Conn, error) {
		a, err := address(strings.Split(rest, ":"))
		if err != nil {
			return nil, err
		}
		return vsock.Dial(a, unix.SOCK_STREAM, buffer)
	}
}

func address(words []string) (a vsock.Addr, err error) {
	if len(words) < 2 {
		return a, errors.New("want CID and port")
	}
	for i, to := range []*uint32{&a.CID, &a.Port} {
		n, err := strconv.ParseUint(words[i], 10, 32)
		if err != nil {
			return a, err
		}
		*to = uint32(n)
	}
	return a, nil
}

func serveVSock(arg string) error {
	port, err := strconv.ParseUint(arg, 10, 32)
	if err != nil {
		return err
	}
	l, err := vsock.Listen(uint32(port), unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	if m, err := vsock.Listen(uint32(port)+1, unix.SOCK_SEQPACKET); err == nil { // not every device offers it
		go echoMessages(m)
	}
	fmt.Println("serving")
	traffic.NewServer().Serve(l)
	return nil
}

func echoMessages(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 1<<20); ; {
				n, err := c.Read(b)
				if err != nil || n == 0 {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// seqpacket sends messages and compares their echo: each comes back whole and alone.
func seqpacket(args []string) error {
	a, err := address(args)
	if err != nil {
		return err
	}
	c, err := vsock.Dial(a, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	got := make([]byte, 1<<20)
	// Several messages are on the way at once; the sizes are those around a page, a receive buffer of the guest, a packet and a socket's buffer.
	for i, sizes := range [][]int{{1}, {1, 2, 3, 1, 5}, {3731, 3732, 3733}, {4096, 1, 4096}, {65535, 65536, 65537}, {100, 150000, 100}} {
		for k, n := range sizes {
			if _, err := c.Write(message(i, k, n)); err != nil {
				return fmt.Errorf("send %d bytes: %w", n, err)
			}
		}
		for k, size := range sizes {
			n, err := c.Read(got)
			if err != nil {
				return fmt.Errorf("receive the echo of %d bytes: %w", size, err)
			}
			if !bytes.Equal(got[:n], message(i, k, size)) {
				return fmt.Errorf("of a message of %d bytes came %d others", size, n)
			}
		}
	}
	return nil
}

// message is n bytes that differ from those of other messages.
func message(i, k, n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(traffic.NewStream(uint64(i*100+k), int64(n)), b)
	return b
}

// slowly makes connections whose reader takes 64 KiB at a time and pauses for 20 ms behind each: the sender has to wait for it.
func slowly(d traffic.Dialer) traffic.Dialer {
	return func() (net.Conn, error) {
		c, err := d()
		if err != nil {
			return nil, err
		}
		return slowConn{c.(traffic.Conn)}, nil
	}
}

type slowConn struct{ traffic.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Read(b[:min(len(b), 64<<10)])
}

// pings prints the p50 and p99 of N round trips, and how long N connections with one each take, in microseconds.
func pings(args []string) error {
	if err := want(args, 2, "PORT N"); err != nil {
		return err
	}
	number := numbers(args)
	to, n := vsock.ToHost(uint32(number(0))), int(number(1))
	times, err := vsock.Pings(to, n)
	if err != nil {
		return err
	}
	each, err := vsock.PingEach(to, n)
	if err != nil {
		return err
	}
	fmt.Println(times[n/2].Microseconds(), times[n*99/100].Microseconds(), each.Microseconds())
	return nil
}

func servePings(args []string) error {
	if err := want(args, 1, "PORT"); err != nil {
		return err
	}
	fd, err := vsock.ListenGuest(uint32(numbers(args)(0)))
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return vsock.PingServer(fd)
}

// sink prints the bytes per second from the first to the last that came.
func sink(args []string) error {
	if err := want(args, 1, "PORT"); err != nil {
		return err
	}
	l, err := vsock.Listen(uint32(numbers(args)(0)), unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("serving")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	var first, last time.Time
	total := 0
	for b := make([]byte, 1<<20); ; {
		n, err := c.Read(b)
		if n > 0 {
			if last = time.Now(); total == 0 {
				first = last
			}
			total += n
		}
		if err != nil {
			break
		}
	}
	fmt.Printf("%.0f bytes a second\n", float64(total)/last.Sub(first).Seconds())
	return nil
}
