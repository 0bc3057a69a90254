package wire

import (
	"encoding/binary"
	"math/bits"
)

// Checksum adds b to a partial sum and returns the partial sum, at most 0xffff.
// b counts as starting at an even offset.
func Checksum(initial uint32, b []byte) uint32 {
	return add16(initial, swap(sumLE(b)))
}

// ChecksumSegs adds the bytes of segs, taken as one string that starts at an
// even offset, to a partial sum.
func ChecksumSegs(sum uint32, segs [][]byte) uint32 {
	odd := false
	for _, s := range segs {
		part := sumLE(s)
		if !odd {
			part = swap(part)
		}
		sum = add16(sum, part)
		if len(s)&1 != 0 {
			odd = !odd
		}
	}
	return sum
}

// PseudoHeader is the partial sum of the pseudo header of RFC 9293 3.1 and RFC
// 8200 8.1; n is the length of L4 header and payload.
func PseudoHeader(src, dst Addr, proto uint8, n int) uint32 {
	var s uint64
	if dst.Is4() {
		s = uint64(binary.BigEndian.Uint32(src[12:])) + uint64(binary.BigEndian.Uint32(dst[12:]))
	} else {
		for i := 0; i < 16; i += 4 {
			s += uint64(binary.BigEndian.Uint32(src[i:])) + uint64(binary.BigEndian.Uint32(dst[i:]))
		}
	}
	s += uint64(proto) + uint64(uint32(n))
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	return uint32(Fold(uint32(s)))
}

// pseudoLE is the pseudo header as wideLE sums it.
func pseudoLE(src, dst *Addr, v6 bool, proto uint8, n int) uint64 {
	s := uint64(proto)<<8 + uint64(bits.ReverseBytes32(uint32(n)))
	le := binary.LittleEndian
	s += uint64(le.Uint32(src[12:])) + uint64(le.Uint32(dst[12:]))
	if v6 {
		s += uint64(le.Uint32(src[0:])) + uint64(le.Uint32(src[4:])) + uint64(le.Uint32(src[8:]))
		s += uint64(le.Uint32(dst[0:])) + uint64(le.Uint32(dst[4:])) + uint64(le.Uint32(dst[8:]))
	}
	return s
}

// Fold reduces a partial sum to 16 bits, not complemented: the value that a
// checksum field holds under Offload.NeedsCsum.
func Fold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return uint16(sum>>16 + sum)
}

// Finish is the complement of the folded sum: the value of a checksum field.
func Finish(sum uint32) uint16 { return ^Fold(sum) }

// FinishUDP is Finish with 0 sent as 0xffff, since 0 says "no checksum" (RFC 768).
func FinishUDP(sum uint32) uint16 {
	if c := Finish(sum); c != 0 {
		return c
	}
	return 0xffff
}

func swap(v uint16) uint16 { return bits.ReverseBytes16(v) }

func add16(a uint32, b uint16) uint32 {
	return uint32(Fold(uint32(Fold(a)) + uint32(b)))
}

// sumLE sums b as little-endian 16-bit words with end-around carry.
func sumLE(b []byte) uint16 { return fold64(wideLE(b)) }

// wideLE is the sum of sumLE before it is folded, at most 33 bits. The one's
// complement sum does not care for the byte order (RFC 1071 2(B)), so wide
// little-endian loads do, and whoever needs network order swaps the result once.
func wideLE(b []byte) uint64 {
	var s, c uint64
	for len(b) >= 64 {
		w := b[:64]
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[0:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[24:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[32:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[40:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[48:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(w[56:]), c)
		b = b[64:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		b = b[8:]
	}
	if len(b) >= 4 {
		s, c = bits.Add64(s, uint64(binary.LittleEndian.Uint32(b)), c)
		b = b[4:]
	}
	var tail uint64
	if len(b) >= 2 {
		tail = uint64(binary.LittleEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		tail += uint64(b[0]) // a last odd byte is the first of a word
	}
	s, c = bits.Add64(s, tail, c)
	s += c
	return s>>32 + s&0xffffffff
}

// fold64 reduces a sum of a few results of wideLE, in their byte order.
func fold64(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}
