package wire

import "encoding/binary"

// PutEthernet writes an Ethernet header and returns its length, 14.
func PutEthernet(b []byte, dst, src MAC, etherType uint16) int {
	_ = b[EthLen-1]
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
	return EthLen
}

// IPv4Fields are what PutIPv4 writes.
type IPv4Fields struct {
	Src, Dst            Addr
	Proto, TTL, TOS     uint8
	ID                  uint16
	DontFrag, MoreFrags bool
	FragOff             int // bytes, a multiple of 8
	PayloadLen          int // bytes behind this header
}

// PutIPv4 writes an IPv4 header without options, checksum included, and returns
// its length, 20.
func PutIPv4(b []byte, f *IPv4Fields) int {
	_ = b[IPv4Len-1]
	frag := uint16(f.FragOff >> 3)
	if f.DontFrag {
		frag |= 0x4000
	}
	if f.MoreFrags {
		frag |= 0x2000
	}
	b[0], b[1] = 0x45, f.TOS
	binary.BigEndian.PutUint16(b[2:], uint16(IPv4Len+f.PayloadLen))
	binary.BigEndian.PutUint16(b[4:], f.ID)
	binary.BigEndian.PutUint16(b[6:], frag)
	b[8], b[9], b[10], b[11] = f.TTL, f.Proto, 0, 0
	copy(b[12:16], f.Src[12:])
	copy(b[16:20], f.Dst[12:])
	binary.BigEndian.PutUint16(b[10:], Finish(Checksum(0, b[:IPv4Len])))
	return IPv4Len
}

// IPv6Fields are what PutIPv6 writes.
type IPv6Fields struct {
	Src, Dst               Addr
	NextHeader             uint8
	HopLimit, TrafficClass uint8
	FlowLabel              uint32
	PayloadLen             int // bytes behind this header
}

// PutIPv6 writes an IPv6 header and returns its length, 40.
func PutIPv6(b []byte, f *IPv6Fields) int {
	_ = b[IPv6Len-1]
	binary.BigEndian.PutUint32(b[0:], 6<<28|uint32(f.TrafficClass)<<20|f.FlowLabel&0xfffff)
	binary.BigEndian.PutUint16(b[4:], uint16(f.PayloadLen))
	b[6], b[7] = f.NextHeader, f.HopLimit
	copy(b[8:24], f.Src[:])
	copy(b[24:40], f.Dst[:])
	return IPv6Len
}

// PutIPv6Fragment writes an IPv6 fragment header (RFC 8200 4.5); off is in
// bytes. It returns its length, 8.
func PutIPv6Fragment(b []byte, nextHeader uint8, off int, more bool, id uint32) int {
	_ = b[IPv6FragLen-1]
	v := uint16(off) &^ 7
	if more {
		v |= 1
	}
	b[0], b[1] = nextHeader, 0
	binary.BigEndian.PutUint16(b[2:], v)
	binary.BigEndian.PutUint32(b[4:], id)
	return IPv6FragLen
}

// PutUDP writes a UDP header with the given checksum field and returns its
// length, 8; n is the length of the payload.
func PutUDP(b []byte, srcPort, dstPort uint16, n int, csum uint16) int {
	_ = b[UDPLen-1]
	binary.BigEndian.PutUint16(b[0:], srcPort)
	binary.BigEndian.PutUint16(b[2:], dstPort)
	binary.BigEndian.PutUint16(b[4:], uint16(UDPLen+n))
	binary.BigEndian.PutUint16(b[6:], csum)
	return UDPLen
}

// PutICMP writes the 8-byte header of an ICMP or ICMPv6 message with checksum
// 0, rest being its second word (echo: identifier and sequence number). The
// checksum goes to ICMPCsumOff when the message is complete.
func PutICMP(b []byte, typ, code uint8, rest uint32) int {
	_ = b[ICMPLen-1]
	b[0], b[1], b[2], b[3] = typ, code, 0, 0
	binary.BigEndian.PutUint32(b[4:], rest)
	return ICMPLen
}

// PutChecksum writes a checksum field of the L4 header b.
func PutChecksum(b []byte, off int, csum uint16) { binary.BigEndian.PutUint16(b[off:], csum) }
