package wire

import "encoding/binary"

// TCPFields are what PutTCP writes. The zero value has no options.
type TCPFields struct {
	SrcPort, DstPort uint16
	Seq, Ack         Seq
	Flags            Flags
	Window           uint16 // already scaled
	Checksum         uint16 // of the field; usually filled in later

	MSS           uint16 // 0: no option
	HasWScale     bool
	WScale        uint8 // with HasWScale
	SACKPermitted bool
	NSACK         int       // 0..4 blocks of SACK
	SACK          [4][2]Seq // left and right edge
}

// TCP option kinds (RFC 9293 3.1, RFC 7323, RFC 2018).
const (
	optEnd           = 0
	optNop           = 1
	optMSS           = 2
	optWScale        = 3
	optSACKPermitted = 4
	optSACK          = 5
	optTimestamps    = 8
)

// Len is the length in bytes of the header that PutTCP writes, 20 to 60.
func (f *TCPFields) Len() int {
	n := TCPLen
	if f.MSS != 0 {
		n += 4
	}
	if f.HasWScale {
		n += 4
	}
	if f.SACKPermitted {
		n += 4
	}
	if f.NSACK > 0 {
		n += 4 + 8*f.NSACK
	}
	return n
}

// PutTCP writes a TCP header with its options, each padded in front to a
// 4-byte boundary, and returns its length.
func PutTCP(b []byte, f *TCPFields) int {
	n := f.Len()
	b = b[:n]
	binary.BigEndian.PutUint16(b[0:], f.SrcPort)
	binary.BigEndian.PutUint16(b[2:], f.DstPort)
	binary.BigEndian.PutUint32(b[4:], uint32(f.Seq))
	binary.BigEndian.PutUint32(b[8:], uint32(f.Ack))
	b[12], b[13] = uint8(n/4)<<4, uint8(f.Flags)
	binary.BigEndian.PutUint16(b[14:], f.Window)
	binary.BigEndian.PutUint16(b[16:], f.Checksum)
	b[18], b[19] = 0, 0
	o := b[TCPLen:]
	if f.MSS != 0 {
		o[0], o[1] = optMSS, 4
		binary.BigEndian.PutUint16(o[2:], f.MSS)
		o = o[4:]
	}
	if f.HasWScale {
		o[0], o[1], o[2], o[3] = optNop, optWScale, 3, f.WScale
		o = o[4:]
	}
	if f.SACKPermitted {
		o[0], o[1], o[2], o[3] = optNop, optNop, optSACKPermitted, 2
		o = o[4:]
	}
	if f.NSACK > 0 {
		o[0], o[1], o[2], o[3] = optNop, optNop, optSACK, uint8(2+8*f.NSACK)
		for i, blk := range f.SACK[:f.NSACK] {
			binary.BigEndian.PutUint32(o[4+8*i:], uint32(blk[0]))
			binary.BigEndian.PutUint32(o[8+8*i:], uint32(blk[1]))
		}
	}
	return n
}
