package flow

import (
	"encoding/binary"
	"math/bits"
)

// hasher is SipHash-1-3 over a Key, under a secret of 128 bits. One compression
// round per word is what kernels and language runtimes use for hash tables: it
// stops an attacker who sees only timing from aiming keys at one bucket.
type hasher struct{ k0, k1 uint64 }

func newHasher(secret [16]byte) hasher {
	return hasher{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
}

// sum hashes k as a message of 40 bytes: both addresses, then ports and protocol.
func (h hasher) sum(k *Key) uint64 {
	v0, v1 := h.k0^0x736f6d6570736575, h.k1^0x646f72616e646f6d
	v2, v3 := h.k0^0x6c7967656e657261, h.k1^0x7465646279746573

	m := binary.LittleEndian.Uint64(k.Guest[:8])
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(k.Guest[8:])
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(k.Remote[:8])
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	m = binary.LittleEndian.Uint64(k.Remote[8:])
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	m = uint64(k.GuestPort) | uint64(k.RemotePort)<<16 | uint64(k.Proto)<<32
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	m = 40 << 56 // the length closes the message
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m

	v2 ^= 0xff
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
