//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package vring

// The fields of a VERSION_1 ring are little endian (virtio 1.3, 2.4) and are
// accessed in place; on a big-endian host every one would be swapped.
var _ = vring_needs_a_little_endian_host
