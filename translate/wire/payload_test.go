package wire

import (
	"bytes"
	"testing"
)

func TestPayload(t *testing.T) {
	data := []byte("0123456789abcdef")
	for _, cuts := range [][]int{nil, {4}, {1, 1, 2, 8}, {0, 15}} {
		f := frame(data, cuts...)
		for off := 0; off <= len(data)+1; off++ {
			for n := 0; n <= len(data)+2-off; n++ {
				want := data[min(off, len(data)):min(off+n, len(data))]
				if got := bytes.Join(Payload(nil, f, off, n), nil); !bytes.Equal(got, want) {
					t.Fatalf("cuts %v [%d:+%d]: %q, want %q", cuts, off, n, got, want)
				}
				b := make([]byte, n)
				if k := Copy(b, f, off); !bytes.Equal(b[:k], want) {
					t.Fatalf("copy, cuts %v [%d:+%d]: %q, want %q", cuts, off, n, b[:k], want)
				}
			}
		}
	}
}
