package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// UDPSizes are the datagram sizes that EchoSizes tries: the ends of the range, and those around the edges of Ethernet frames and fragments.
var UDPSizes = []int{1, 2, 3, 17, 100, 511, 512, 1000, 1399, 1400, 1452, 1453, 1472, 1473, 1474, 2000, 2960, 2961, 4096, 8191, 8192, 16384, 32768, 60000, 65000, 65506, 65507}

// EchoSizes sends one datagram of each size over c and wants each back unchanged. Datagrams may be lost: each is tried three times.
func EchoSizes(c net.Conn, sizes []int) error {
	got := make([]byte, 65536)
	for _, n := range sizes {
		sent := make([]byte, n)
		_, _ = io.ReadFull(NewStream(uint64(n)<<8, int64(n)), sent)
		if err := echoOne(c, sent, got); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}

func echoOne(c net.Conn, sent, got []byte) error {
	var err error
	for range 3 {
		_, err = c.Write(sent)
		if errors.Is(err, syscall.EMSGSIZE) {
			continue // a router's "too big" for the try before: from now on the kernel cuts
		}
		if err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		for {
			var n int
			n, err = c.Read(got)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EMSGSIZE) {
				break // lost: send again
			}
			if err != nil {
				return err
			}
			if bytes.Equal(got[:n], sent) {
				return nil
			}
			if n == len(sent) {
				return errors.New("echoed bytes differ")
			}
		}
	}
	return err
}

// AskUDP sends text and returns the answer; three tries.
func AskUDP(c net.Conn, text string) (string, error) {
	b := make([]byte, 65536)
	var err error
	for range 3 {
		if _, err = io.WriteString(c, text); err != nil {
			return "", err
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		var n int
		if n, err = c.Read(b); err == nil {
			return strings.TrimSpace(string(b[:n])), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return "", err
}
