package traffic

import (
	"fmt"
	"io"
	"time"
)

// Blast sends n bytes by writes of chunk bytes and waits until the server has counted them; it returns the bytes per second.
func Blast(d Dialer, n int64, chunk int, timeout time.Duration) (float64, error) {
	c, err := d.open(fmt.Sprintf("sink %d", n), timeout)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	if err := repeat(c, n, chunk); err != nil {
		return 0, err
	}
	var got int64
	_, err = fmt.Fscanln(c, &got)
	took := time.Since(start)
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes arrived, want %d", got, n)
	}
	return float64(n) / took.Seconds(), err
}

// Drain takes n bytes that the server sends by writes of chunk bytes; it returns the bytes per second.
func Drain(d Dialer, n int64, chunk int, timeout time.Duration) (float64, error) {
	start := time.Now()
	c, err := d.open(fmt.Sprintf("source %d %d", n, chunk), timeout)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	got, err := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(c, n), make([]byte, maxChunk))
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes arrived, want %d", got, n)
	}
	return float64(n) / time.Since(start).Seconds(), err
}

// Churn opens a connection, has 64 bytes echoed and closes it, n times, one after another.
func Churn(d Dialer, n int, timeout time.Duration) (time.Duration, error) {
	start, b := time.Now(), make([]byte, 64)
	for i := range n {
		c, err := d.open("echo", timeout)
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", i, err)
		}
		_, err = c.Write(b)
		if err == nil {
			_, err = io.ReadFull(c, b)
		}
		c.Close()
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return time.Since(start), nil
}
