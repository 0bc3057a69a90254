package pcap

import "encoding/binary"

// Blocks of pcapng (draft-ietf-opsawg-pcapng): every block is
//
//	0 type u32, 4 total length u32, body, total length u32
//
// padded to four bytes. Written little-endian; the byte-order magic says so.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6

	byteOrderMagic = 0x1a2b3c4d
	linkEthernet   = 1

	optEnd     = 0
	optComment = 1
	optTsresol = 9 // of an interface block
	optFlags   = 2 // of a packet block

	flagInbound  = 1
	flagOutbound = 2

	packetFixed = 28 + 12 + 4 // header, options, trailing length
)

const comment = "frames as they crossed a virtio-net device: with offloads, super-frames are whole and checksums may be partial"

// header returns the section and interface blocks that a file begins with.
func header(snap int) []byte {
	le := binary.LittleEndian
	var b []byte
	b = le.AppendUint32(b, byteOrderMagic)
	b = le.AppendUint16(b, 1) // version 1.0
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, ^uint64(0)) // section length not known
	b = option(b, optComment, comment)
	b = le.AppendUint32(b, optEnd)
	file := block(nil, blockSection, b)

	b = le.AppendUint32(b[:0], linkEthernet)
	b = le.AppendUint32(b, uint32(snap))
	b = option(b, optTsresol, "\x09") // nanoseconds
	b = le.AppendUint32(b, optEnd)
	return block(file, blockInterface, b)
}

func block(file []byte, kind uint32, body []byte) []byte {
	n := uint32(12 + len(body))
	file = binary.LittleEndian.AppendUint32(file, kind)
	file = binary.LittleEndian.AppendUint32(file, n)
	file = append(file, body...)
	return binary.LittleEndian.AppendUint32(file, n)
}

func option(b []byte, code uint16, value string) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// packetLen is the length of the block of a packet with n recorded bytes.
func packetLen(n int) int { return packetFixed + (n+3)&^3 }

// packet appends the block of a packet of full bytes, snap of which are taken
// from segs.
func packet(b []byte, now int64, flags uint32, segs [][]byte, snap, full int) []byte {
	le := binary.LittleEndian
	total := uint32(packetLen(snap))
	b = le.AppendUint32(b, blockPacket)
	b = le.AppendUint32(b, total)
	b = le.AppendUint32(b, 0) // interface
	b = le.AppendUint32(b, uint32(now>>32))
	b = le.AppendUint32(b, uint32(now))
	b = le.AppendUint32(b, uint32(snap))
	b = le.AppendUint32(b, uint32(full))
	left := snap
	for _, s := range segs {
		k := min(left, len(s))
		b = append(b, s[:k]...)
		left -= k
	}
	b = append(b, zeros[:-snap&3]...)
	b = le.AppendUint16(b, optFlags)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, optEnd)
	return le.AppendUint32(b, total)
}

var zeros [4]byte
