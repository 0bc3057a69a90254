package traffic

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// Stream is a reader of n pseudo-random bytes that depend on the seed alone (SplitMix64).
type Stream struct {
	state uint64
	left  int64
	word  [8]byte
	have  int
}

// NewStream returns the first n bytes of stream seed.
func NewStream(seed uint64, n int64) *Stream { return &Stream{state: seed, left: n} }

func (s *Stream) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Read fills p, however it is cut, with the same sequence of bytes.
func (s *Stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > s.left {
		p = p[:s.left]
	}
	n := 0
	for n < len(p) {
		if s.have == 0 && len(p)-n >= 8 {
			binary.LittleEndian.PutUint64(p[n:], s.next())
			n += 8
			continue
		}
		if s.have == 0 {
			binary.LittleEndian.PutUint64(s.word[:], s.next())
			s.have = 8
		}
		c := copy(p[n:], s.word[8-s.have:])
		s.have -= c
		n += c
	}
	s.left -= int64(n)
	return n, nil
}

// Sum is how results are written: the number of bytes and their SHA-256.
func Sum(r io.Reader) (string, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(onlyWriter{h}, r, make([]byte, 256<<10))
	return fmt.Sprintf("%d %s", n, hex.EncodeToString(h.Sum(nil))), err
}

// SumOf is the Sum of the first n bytes of stream seed.
func SumOf(seed uint64, n int64) string {
	s, _ := Sum(NewStream(seed, n))
	return s
}

// onlyWriter and onlyReader hide ReadFrom and WriteTo, so that io.CopyBuffer uses the buffer it is given.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

// Sizes of the writes of a sender, in bytes.
const (
	defaultChunk = 256 << 10
	maxChunk     = 1 << 20
)

// send writes n bytes of stream seed, chunk at a time.
func send(w io.Writer, seed uint64, n int64, chunk int) error {
	_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{NewStream(seed, n)}, make([]byte, chunk))
	return err
}

// repeat writes n bytes that cost nothing to make, chunk at a time.
func repeat(w io.Writer, n int64, chunk int) error {
	b := make([]byte, chunk)
	for ; n > 0; n -= int64(chunk) {
		if _, err := w.Write(b[:min(n, int64(chunk))]); err != nil {
			return err
		}
	}
	return nil
}
