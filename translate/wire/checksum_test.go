package wire

import (
	"fmt"
	"math/rand"
	"testing"
)

// refSum is RFC 1071's own loop over 16-bit words.
func refSum(sum uint32, b []byte) uint16 {
	s := uint64(sum)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint64(b[i])<<8 | uint64(b[i+1])
	}
	if len(b)&1 == 1 {
		s += uint64(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestChecksumKnown(t *testing.T) {
	// RFC 1071 3: 00 01 f2 03 f4 f5 f6 f7 sum to ddf2.
	if got := Fold(Checksum(0, []byte{0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7})); got != 0xddf2 {
		t.Fatalf("%04x", got)
	}
	if got := FinishUDP(0xffff); got != 0xffff {
		t.Fatalf("a zero UDP checksum is sent as %04x", got)
	}
}

func TestChecksumLengthsAndCuts(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	b := make([]byte, 300)
	for round := range 3 {
		for i := range b {
			b[i] = byte(r.Uint32())
			if round == 2 {
				b[i] = 0xff // every addition carries
			}
		}
		for n := range b {
			init := uint32(r.Intn(0x10000))
			want := refSum(init, b[:n])
			if got := Fold(Checksum(init, b[:n])); got != want {
				t.Fatalf("len %d: %04x, want %04x", n, got, want)
			}
			for range 4 {
				x, y := r.Intn(n+1), r.Intn(n+1)
				x, y = min(x, y), max(x, y)
				if got := Fold(ChecksumSegs(init, [][]byte{b[:x], b[x:y], b[y:n]})); got != want {
					t.Fatalf("len %d cut at %d, %d: %04x, want %04x", n, x, y, got, want)
				}
			}
		}
	}
}

func TestPseudoHeader(t *testing.T) {
	ph4 := []byte{10, 0, 2, 15, 192, 0, 2, 7, 0, 6, 0x12, 0x34}
	if got, want := Fold(PseudoHeader(guest4, remote4, ProtoTCP, 0x1234)), refSum(0, ph4); got != want {
		t.Errorf("v4: %04x, want %04x", got, want)
	}
	ph6 := append(append(append([]byte(nil), guest6[:]...), remote6[:]...), 0, 1, 0x12, 0x34, 0, 0, 0, 17)
	if got, want := Fold(PseudoHeader(guest6, remote6, ProtoUDP, 0x11234)), refSum(0, ph6); got != want {
		t.Errorf("v6: %04x, want %04x", got, want)
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{64, 1460, 65536} {
		buf := make([]byte, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			var s uint32
			for b.Loop() {
				s = Checksum(s, buf)
			}
		})
	}
}
