package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Dialer opens a connection to the server under test; host-side callers give one that dials inside a namespace.
type Dialer func() (net.Conn, error)

func (d Dialer) open(request string, timeout time.Duration) (Conn, error) {
	c, err := d()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(c, request+"\n"); err != nil {
		c.Close()
		return nil, err
	}
	return c.(Conn), nil
}

// Get downloads n bytes of stream seed and checks them.
func Get(d Dialer, n int64, seed uint64, timeout time.Duration) error {
	return GetIn(d, n, seed, defaultChunk, timeout)
}

// GetIn is Get from a server that writes chunk bytes at a time.
func GetIn(d Dialer, n int64, seed uint64, chunk int, timeout time.Duration) error {
	c, err := d.open(fmt.Sprintf("get %d %d %d", n, seed, chunk), timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	sum, err := Sum(c)
	return compare(sum, seed, n, err)
}

// Put uploads n bytes of stream seed, half-closes and checks the server's sum, which comes back through the half that is still open.
func Put(d Dialer, n int64, seed uint64, timeout time.Duration) error {
	return PutIn(d, n, seed, defaultChunk, timeout)
}

// PutIn is Put by writes of chunk bytes.
func PutIn(d Dialer, n int64, seed uint64, chunk int, timeout time.Duration) error {
	c, err := d.open("put", timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := send(c, seed, n, chunk); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	return compare(strings.TrimSpace(string(answer)), seed, n, err)
}

// Half lets the server close its half first: all it sent must arrive with an end of stream, and what we send afterwards must arrive there.
func Half(d Dialer, n int64, seed uint64, key string, timeout time.Duration) error {
	c, err := d.open(fmt.Sprintf("half %d %d %s", n, seed, key), timeout)
	if err != nil {
		return err
	}
	sum, err := Sum(c)
	if err := compare(sum, seed, n, err); err != nil {
		c.Close()
		return fmt.Errorf("before the half-close: %w", err)
	}
	err = send(c, seed+1, n, defaultChunk)
	c.Close()
	if err != nil {
		return fmt.Errorf("after the half-close: %w", err)
	}
	sum, err = Ask(d, "result "+key, timeout)
	if err := compare(sum, seed+1, n, err); err != nil {
		return fmt.Errorf("after the half-close, at the server: %w", err)
	}
	return nil
}

// ResetByServer checks that a reset of the server reaches us as one, after the data before it.
func ResetByServer(d Dialer, timeout time.Duration) error {
	c, err := d.open("reset", timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("want a reset, got %d bytes and %v", len(b), err)
	}
	return nil
}

// ResetByClient resets a connection and checks that the server saw it.
func ResetByClient(d Dialer, key string, timeout time.Duration) error {
	c, err := d.open("hold "+key, timeout)
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // the server must be reading by then
	_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
	c.Close()
	got, err := Ask(d, "result "+key, timeout)
	if err != nil || got != "reset" {
		return fmt.Errorf("server saw %q (%v), want reset", got, err)
	}
	return nil
}

// Refused checks that a connection to a closed port is refused; vsock has a reset for that.
func Refused(d Dialer) error {
	c, err := d()
	if err == nil {
		c.Close()
		return errors.New("connected, want a refusal")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("want a refusal, got %w", err)
	}
	return nil
}

// Ask sends a request line and returns the answer line.
func Ask(d Dialer, request string, timeout time.Duration) (string, error) {
	c, err := d.open(request, timeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Parallel opens n connections, all at once, and when all are open sends size bytes through each and back.
func Parallel(d Dialer, n, size int, timeout time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	open := make([]Conn, n)
	each := func(f func(i int) error) error {
		for i := range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if errs[i] == nil {
					errs[i] = f(i)
				}
			}()
		}
		wg.Wait()
		failed := errors.Join(errs...)
		if failed == nil {
			return nil
		}
		count, first := 0, error(nil)
		for _, err := range errs {
			if err != nil {
				if count++; first == nil {
					first = err
				}
			}
		}
		return fmt.Errorf("%d of %d connections failed, the first with: %w", count, n, first)
	}
	defer func() {
		for _, c := range open {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err := each(func(i int) (err error) { open[i], err = d.open("echo", timeout); return err }); err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	return each(func(i int) error {
		sent, got := make([]byte, size), make([]byte, size)
		_, _ = io.ReadFull(NewStream(uint64(i), int64(size)), sent)
		go func() { _, _ = open[i].Write(sent) }()
		if _, err := io.ReadFull(open[i], got); err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return errors.New("echoed bytes differ")
		}
		return nil
	})
}

func compare(got string, seed uint64, n int64, err error) error {
	if err != nil {
		return fmt.Errorf("after %q: %w", got, err)
	}
	if want := SumOf(seed, n); got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}
