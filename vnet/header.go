package vnet

import (
	"encoding/binary"

	"guestwire/vnet/link"
	"guestwire/vring/vhostuser"
)

// The header in front of every frame (virtio 1.3, 5.1.6), little-endian:
//
//	0 flags u8, 1 gso_type u8, 2 hdr_len u16, 4 gso_size u16,
//	6 csum_start u16, 8 csum_offset u16, 10 num_buffers u16
//
// A legacy driver without merged buffers leaves num_buffers out.
const (
	netHdrLen       = 12
	netHdrLenLegacy = 10
)

const (
	flagNeedsCsum = 1
	flagDataValid = 2
)

const (
	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDPL4 = 5
	gsoECN   = 0x80 // a flag beside a TCP type
)

const (
	ethHdrLen  = 14
	vlanTagLen = 4
	minFrame   = 60 // Ethernet without its trailing checksum
)

// netHdr is a private copy of a virtio-net header.
type netHdr struct {
	flags, gsoType                              uint8
	hdrLen, gsoSize, csumStart, csumOff, numBuf uint16
}

func parseNetHdr(b *[netHdrLen]byte) netHdr {
	return netHdr{
		flags:     b[0],
		gsoType:   b[1],
		hdrLen:    binary.LittleEndian.Uint16(b[2:]),
		gsoSize:   binary.LittleEndian.Uint16(b[4:]),
		csumStart: binary.LittleEndian.Uint16(b[6:]),
		csumOff:   binary.LittleEndian.Uint16(b[8:]),
		numBuf:    binary.LittleEndian.Uint16(b[10:]),
	}
}

func (h *netHdr) put(b *[netHdrLen]byte) {
	b[0], b[1] = h.flags, h.gsoType
	binary.LittleEndian.PutUint16(b[2:], h.hdrLen)
	binary.LittleEndian.PutUint16(b[4:], h.gsoSize)
	binary.LittleEndian.PutUint16(b[6:], h.csumStart)
	binary.LittleEndian.PutUint16(b[8:], h.csumOff)
	binary.LittleEndian.PutUint16(b[10:], h.numBuf)
}

// offloads are those that one direction has negotiated.
type offloads struct{ csum, tso4, tso6, ecn, uso bool }

// fromGuest are the offloads that the driver may ask of us.
func fromGuest(features uint64) offloads {
	has := func(bit uint64) bool { return features&bit != 0 }
	csum := has(vhostuser.NetFCsum) // the others depend on it (virtio 1.3, 5.1.3.1)
	o := offloads{
		csum: csum,
		tso4: csum && has(vhostuser.NetFHostTSO4),
		tso6: csum && has(vhostuser.NetFHostTSO6),
		uso:  csum && has(vhostuser.NetFHostUSO),
	}
	o.ecn = (o.tso4 || o.tso6) && has(vhostuser.NetFHostECN)
	return o
}

// toGuest are the offloads that we may ask of the driver.
func toGuest(features uint64) offloads {
	has := func(bit uint64) bool { return features&bit != 0 }
	csum := has(vhostuser.NetFGuestCsum)
	o := offloads{
		csum: csum,
		tso4: csum && has(vhostuser.NetFGuestTSO4),
		tso6: csum && has(vhostuser.NetFGuestTSO6),
		uso:  csum && has(vhostuser.NetFGuestUSO4) && has(vhostuser.NetFGuestUSO6),
	}
	o.ecn = (o.tso4 || o.tso6) && has(vhostuser.NetFGuestECN)
	return o
}

// decode judges the header of a frame of n bytes. It believes what it can check
// against n and the negotiated offloads; hdr_len is a hint that nobody needs,
// DATA_VALID is not the driver's to set (virtio 1.3, 5.1.6.2.1) and both are
// ignored. Whether csum_start is where the L4 header is, the parser of the frame
// finds out.
func (o offloads) decode(h *netHdr, n int) (link.Offload, Drop) {
	var off link.Offload
	if h.flags&flagNeedsCsum != 0 {
		if !o.csum || h.csumStart < ethHdrLen || int(h.csumStart)+int(h.csumOff)+2 > n {
			return off, DropCsum
		}
		off.NeedsCsum, off.CsumStart, off.CsumOff = true, h.csumStart, h.csumOff
	}
	if h.gsoType == gsoNone {
		return off, dropNone
	}
	ok := false
	switch h.gsoType &^ gsoECN {
	case gsoTCPv4:
		off.GSO, ok = link.GSOTCPv4, o.tso4
	case gsoTCPv6:
		off.GSO, ok = link.GSOTCPv6, o.tso6
	case gsoUDPL4:
		off.GSO, ok = link.GSOUDP, o.uso && h.gsoType&gsoECN == 0
	}
	if h.gsoType&gsoECN != 0 {
		off.ECN, ok = true, ok && o.ecn
	}
	if !ok || h.gsoSize == 0 || !off.NeedsCsum {
		return link.Offload{}, DropGSO
	}
	off.SegSize = h.gsoSize
	return off, dropNone
}

// encode makes the header of a frame of n bytes, header bytes of which come
// before the payload. It reports false when the driver has not agreed to what
// off asks for. ECN without GUEST_ECN is merely not marked: the driver then
// repeats CWR in every segment, which costs nothing but precision.
func (o offloads) encode(h *netHdr, off *link.Offload, header, n int) bool {
	*h = netHdr{numBuf: 1}
	switch {
	case off.NeedsCsum:
		if !o.csum || off.CsumStart < ethHdrLen || int(off.CsumStart)+int(off.CsumOff)+2 > n {
			return false
		}
		h.flags, h.csumStart, h.csumOff = flagNeedsCsum, off.CsumStart, off.CsumOff
	case off.DataValid:
		if !o.csum {
			return false
		}
		h.flags = flagDataValid
	}
	ok := true
	switch off.GSO {
	case link.GSONone:
		return true
	case link.GSOTCPv4:
		h.gsoType, ok = gsoTCPv4, o.tso4
	case link.GSOTCPv6:
		h.gsoType, ok = gsoTCPv6, o.tso6
	case link.GSOUDP:
		h.gsoType, ok = gsoUDPL4, o.uso
	default:
		ok = false
	}
	if off.ECN && o.ecn && off.GSO != link.GSOUDP {
		h.gsoType |= gsoECN
	}
	h.hdrLen, h.gsoSize = uint16(header), off.SegSize
	return ok && off.NeedsCsum && off.SegSize != 0
}
