package wire

import "guestwire/vnet/link"

// Payload appends to dst the bytes [off, off+n) of the frame, as slices of its
// segments. It does not allocate when dst has room for them. What lies beyond
// the frame is left out.
func Payload(dst [][]byte, f *link.Frame, off, n int) [][]byte {
	for _, s := range f.Segs {
		if n <= 0 {
			break
		}
		if off >= len(s) {
			off -= len(s)
			continue
		}
		s = s[off:]
		off = 0
		if len(s) > n {
			s = s[:n]
		}
		n -= len(s)
		dst = append(dst, s)
	}
	return dst
}

// Copy copies bytes of the frame from off on into b and returns how many there
// were.
func Copy(b []byte, f *link.Frame, off int) int {
	n := 0
	for _, s := range f.Segs {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		n += copy(b[n:], s[off:])
		off = 0
		if n == len(b) {
			break
		}
	}
	return n
}
