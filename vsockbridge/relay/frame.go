package relay

import "encoding/binary"

// FrameHeader is the size of the length in front of each message on a framed
// stream: a big-endian uint32 that does not count itself. 0 is an empty message.
const FrameHeader = 4

// PutFrame writes the header of a message of n bytes into b.
func PutFrame(b []byte, n int) { binary.BigEndian.PutUint32(b, uint32(n)) }

// Frame looks at the message that begins at b[0]. n is its length without the
// header; whole says that all of it is in b. A length beyond max is !ok: framing
// is lost. While b is shorter than the header n is 0.
func Frame(b []byte, max int) (n int, whole, ok bool) {
	if len(b) < FrameHeader {
		return 0, false, true
	}
	l := binary.BigEndian.Uint32(b)
	if uint64(l) > uint64(max) {
		return 0, false, false
	}
	return int(l), len(b) >= FrameHeader+int(l), true
}
