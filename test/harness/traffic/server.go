package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server answers on any number of listeners and datagram sockets.
type Server struct {
	mu      sync.Mutex
	changed *sync.Cond
	results map[string]string
}

// NewServer makes a server without listeners.
func NewServer() *Server {
	s := &Server{results: map[string]string{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Conn is a stream whose sending half can be closed by itself: TCP, UNIX, vsock.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Serve answers connections until the listener, whose connections are Conns, is closed.
func (s *Server) Serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: the test that asks for that many fails by itself
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go s.conversation(c.(Conn))
	}
}

func (s *Server) conversation(c Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	r := bufio.NewReaderSize(c, 256<<10)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	var n int64
	var seed uint64
	var key string
	word, args, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "get":
		chunk := defaultChunk
		if k, _ := fmt.Sscan(args, &n, &seed, &chunk); k >= 2 && chunk > 0 && chunk <= maxChunk {
			_ = send(c, seed, n, chunk)
		}
	case "put":
		if sum, err := Sum(r); err == nil {
			fmt.Fprintln(c, sum)
		}
	case "half":
		if _, err := fmt.Sscan(args, &n, &seed, &key); err != nil {
			return
		}
		_ = send(c, seed, n, defaultChunk)
		_ = c.CloseWrite()
		sum, err := Sum(r)
		s.store(key, outcome(sum, err))
	case "hold":
		_, err := io.Copy(io.Discard, r)
		s.store(args, outcome("eof", err))
	case "reset":
		_, _ = c.Write([]byte("x"))
		time.Sleep(50 * time.Millisecond) // let the byte be read before the reset may overtake it
		if l, ok := c.(interface{ SetLinger(int) error }); ok {
			_ = l.SetLinger(0)
		}
	case "sink":
		if _, err := fmt.Sscan(args, &n); err == nil {
			k, _ := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(r, n), make([]byte, maxChunk))
			fmt.Fprintln(c, k)
		}
	case "source":
		var chunk int
		if _, err := fmt.Sscan(args, &n, &chunk); err == nil && chunk > 0 && chunk <= maxChunk {
			_ = repeat(c, n, chunk)
		}
	case "echo":
		_, _ = io.CopyBuffer(onlyWriter{c}, onlyReader{r}, make([]byte, 64<<10))
	case "peer":
		fmt.Fprintln(c, c.RemoteAddr())
	case "result":
		fmt.Fprintln(c, s.Result(args, 5*time.Second))
	}
}

// outcome is what a result says about how a connection ended.
func outcome(ok string, err error) string {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	default:
		return err.Error()
	}
}

func (s *Server) store(key, v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[key] = v
	s.changed.Broadcast()
}

// Result waits for a stored result; "none" when it does not come.
func (s *Server) Result(key string, timeout time.Duration) string {
	end := time.Now().Add(timeout)
	t := time.AfterFunc(timeout, func() { s.mu.Lock(); s.changed.Broadcast(); s.mu.Unlock() })
	defer t.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if v, ok := s.results[key]; ok {
			return v
		}
		if !time.Now().Before(end) {
			return "none"
		}
		s.changed.Wait()
	}
}

// ServeUDP answers datagrams until the socket is closed.
func (s *Server) ServeUDP(c *net.UDPConn) {
	_ = c.SetReadBuffer(4 << 20)
	_ = c.SetWriteBuffer(4 << 20)
	b := make([]byte, 65536)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier answer
		}
		answer := b[:n]
		if n < 16 {
			answer = answerShort(b[:n], from)
		}
		_, _ = c.WriteToUDPAddrPort(answer, from)
	}
}

func answerShort(b []byte, from netip.AddrPort) []byte {
	text := string(b)
	if text == "peer" {
		return []byte(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String())
	}
	var n int
	if _, err := fmt.Sscanf(text, "size %d", &n); err == nil && n >= 0 && n <= 65507 {
		out := make([]byte, n)
		_, _ = io.ReadFull(NewStream(uint64(n), int64(n)), out)
		return out
	}
	return b
}
