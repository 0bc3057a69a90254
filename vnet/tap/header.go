package tap

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

// The header in front of every frame (virtio 1.3, 5.1.6), little-endian:
//
//	0 flags u8, 1 gso_type u8, 2 hdr_len u16, 4 gso_size u16,
//	6 csum_start u16, 8 csum_offset u16, 10 num_buffers u16 (not ours)
//
// HdrLen is its length in bytes.
const HdrLen = 12

const (
	flagNeedsCsum = 1
	flagDataValid = 2

	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDPL4 = 5
	gsoECN   = 0x80 // a flag beside a TCP type
)

const ethHdrLen = 14

// toGSO are the gso_types of what the translator sends, 0 for none.
var toGSO = [...]uint8{link.GSONone: 0, link.GSOTCPv4: gsoTCPv4, link.GSOTCPv6: gsoTCPv6, link.GSOUDP: gsoUDPL4}

func fromGSO(t uint8) link.GSO {
	for gso, have := range toGSO {
		if have == t {
			return link.GSO(gso)
		}
	}
	return link.GSONone // which Decode refuses: there was a type
}

// Decode judges the header of a frame of n bytes. Whether csum_start is where the
// L4 header is, the parser of the frame finds out.
func Decode(off *link.Offload, h []byte, n int) bool {
	*off = link.Offload{}
	flags, gso := h[0], h[1]
	if flags&flagNeedsCsum != 0 {
		off.NeedsCsum = true
		off.CsumStart, off.CsumOff = binary.LittleEndian.Uint16(h[6:]), binary.LittleEndian.Uint16(h[8:])
		if off.CsumStart < ethHdrLen || int(off.CsumStart)+int(off.CsumOff)+2 > n {
			return false
		}
	}
	if gso == 0 {
		return true
	}
	off.GSO, off.ECN = fromGSO(gso&^gsoECN), gso&gsoECN != 0
	off.SegSize = binary.LittleEndian.Uint16(h[4:])
	return off.GSO != link.GSONone && off.SegSize != 0 && off.NeedsCsum
}

// Encode makes the header of a frame of n bytes, header bytes of which come before
// the payload. It reports false for what no device can do.
func Encode(h []byte, off *link.Offload, header, n int) bool {
	clear(h[:HdrLen])
	switch {
	case n < ethHdrLen:
		return false
	case off.NeedsCsum:
		if off.CsumStart < ethHdrLen || int(off.CsumStart)+int(off.CsumOff)+2 > n {
			return false
		}
		h[0] = flagNeedsCsum
		binary.LittleEndian.PutUint16(h[6:], off.CsumStart)
		binary.LittleEndian.PutUint16(h[8:], off.CsumOff)
	case off.DataValid:
		h[0] = flagDataValid
	}
	if off.GSO == link.GSONone {
		return true
	}
	if int(off.GSO) >= len(toGSO) || !off.NeedsCsum || off.SegSize == 0 {
		return false
	}
	h[1] = toGSO[off.GSO]
	if off.ECN && off.GSO != link.GSOUDP {
		h[1] |= gsoECN
	}
	binary.LittleEndian.PutUint16(h[2:], uint16(header))
	binary.LittleEndian.PutUint16(h[4:], off.SegSize)
	return true
}
