package traffic

import (
	"io"
	"net"
)

// Sizes are the sizes of datagrams of at most max bytes that n bytes of stream seed are cut into: all sizes alike when fixed, else any, so that both ends
// know them.
func Sizes(seed uint64, n int64, max int, fixed bool) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for s := NewStream(^seed, n); n > 0; {
			size := int64(max)
			if !fixed {
				size = 1 + int64(s.next()%uint64(max))
			}
			size = min(size, n)
			if !yield(int(size)) {
				return
			}
			n -= size
		}
	}
}

// SendDatagrams sends n bytes of stream seed to a UNIX datagram socket. A full socket makes it wait.
func SendDatagrams(path string, n int64, seed uint64, max int, fixed bool) error {
	c, err := net.Dial("unixgram", path)
	if err != nil {
		return err
	}
	defer c.Close()
	s, b := NewStream(seed, n), make([]byte, max)
	for size := range Sizes(seed, n, max, fixed) {
		if !fixed || s.left == n { // what is always the same need be made but once
			if _, err := io.ReadFull(s, b[:size]); err != nil {
				return err
			}
		}
		if _, err := c.Write(b[:size]); err != nil {
			return err
		}
	}
	return nil
}
