package flow

import (
	"encoding/binary"
	"testing"

	"guestwire/translate/wire"
)

// sipHash is SipHash-c-d as the paper has it (Aumasson, Bernstein 2012, section
// 2), for any message; the table's own is unrolled for one length. With 2 and 4
// rounds it gives the paper's test value, which shows that the reference is right.
func sipHash(c, d int, key [16]byte, m []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rotl := func(x uint64, n uint) uint64 { return x<<n | x>>(64-n) }
	round := func() {
		v[0] += v[1]
		v[2] += v[3]
		v[1] = rotl(v[1], 13)
		v[3] = rotl(v[3], 16)
		v[1] ^= v[0]
		v[3] ^= v[2]
		v[0] = rotl(v[0], 32)
		v[2] += v[1]
		v[0] += v[3]
		v[1] = rotl(v[1], 17)
		v[3] = rotl(v[3], 21)
		v[1] ^= v[2]
		v[3] ^= v[0]
		v[2] = rotl(v[2], 32)
	}
	last := uint64(len(m)) << 56
	for ; len(m) >= 8; m = m[8:] {
		w := binary.LittleEndian.Uint64(m)
		v[3] ^= w
		for range c {
			round()
		}
		v[0] ^= w
	}
	for i, b := range m {
		last |= uint64(b) << (8 * i)
	}
	v[3] ^= last
	for range c {
		round()
	}
	v[0] ^= last
	v[2] ^= 0xff
	for range d {
		round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func TestHashIsSipHash13(t *testing.T) {
	var key [16]byte
	var msg [15]byte
	for i := range key {
		key[i] = byte(i)
	}
	for i := range msg {
		msg[i] = byte(i)
	}
	// Appendix A of the paper.
	if got := sipHash(2, 4, key, msg[:]); got != 0xa129ca6149be45e5 {
		t.Fatalf("reference is wrong: %#x", got)
	}
	k := Key{Guest: wire.Addr{1, 2, 3, 15: 9}, Remote: wire.Addr{0xfe, 0x80, 15: 1}, GuestPort: 0x1234, RemotePort: 443, Proto: 6}
	m := append(append([]byte{}, k.Guest[:]...), k.Remote[:]...)
	m = binary.LittleEndian.AppendUint16(m, k.GuestPort)
	m = binary.LittleEndian.AppendUint16(m, k.RemotePort)
	m = append(m, k.Proto, 0, 0, 0)
	if got, want := newHasher(key).sum(&k), sipHash(1, 3, key, m); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}
