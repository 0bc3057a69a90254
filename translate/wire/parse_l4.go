package wire

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

// layer4 parses the n bytes of L4 header and payload at L4Off.
func (p *Packet) layer4(f *link.Frame, n int) Verdict {
	p.PayloadOff, p.PayloadLen = p.L4Off, n
	switch {
	case p.Proto == ProtoTCP:
		return p.tcp(f, n)
	case p.Proto == ProtoUDP:
		return p.udp(f, n)
	case p.Proto == ProtoICMP && !p.V6, p.Proto == ProtoICMPv6 && p.V6:
		return p.icmp(f, n)
	}
	if f.Off.NeedsCsum || f.Off.GSO != link.GSONone {
		return Offload
	}
	return OK
}

func (p *Packet) tcp(f *link.Frame, n int) Verdict {
	h, v := p.l4header(n, TCPLen)
	if v != OK {
		return v
	}
	hl := int(h[12]>>4) * 4
	if hl < TCPLen || hl > n {
		return L4Header
	}
	if hl > len(h) {
		return HeadersLong
	}
	if v := p.offload(f, n, TCPCsumOff, link.GSOTCPv4, link.GSOTCPv6); v != OK {
		return v
	}
	p.SrcPort = binary.BigEndian.Uint16(h[0:])
	p.DstPort = binary.BigEndian.Uint16(h[2:])
	t := &p.TCP
	t.Seq = Seq(binary.BigEndian.Uint32(h[4:]))
	t.Ack = Seq(binary.BigEndian.Uint32(h[8:]))
	t.Flags = Flags(h[13])
	t.Window = binary.BigEndian.Uint16(h[14:])
	p.PayloadOff += hl
	p.PayloadLen -= hl
	t.MSS, t.WScale, t.SACKPermitted, t.TS, t.NSACK = 0, -1, false, false, 0
	if hl > TCPLen && !t.options(h[TCPLen:hl]) {
		return L4Header
	}
	return OK
}

// options walks the options; every step goes ahead by at least one byte. It
// reports false for an option whose length is a lie. Options of a known kind
// with a wrong length are skipped (RFC 9293 3.1).
func (t *TCPHeader) options(b []byte) bool {
	for len(b) > 0 {
		if b[0] == optEnd {
			return true
		}
		if b[0] == optNop {
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		t.option(b[0], b[2:b[1]])
		b = b[b[1]:]
	}
	return true
}

func (t *TCPHeader) option(kind uint8, v []byte) {
	switch {
	case kind == optMSS && len(v) == 2:
		t.MSS = binary.BigEndian.Uint16(v)
	case kind == optWScale && len(v) == 1:
		t.WScale = int8(min(v[0], 127))
	case kind == optSACKPermitted && len(v) == 0:
		t.SACKPermitted = true
	case kind == optTimestamps && len(v) == 8:
		t.TS = true
		t.TSVal = binary.BigEndian.Uint32(v)
		t.TSEcr = binary.BigEndian.Uint32(v[4:])
	case kind == optSACK && len(v)%8 == 0:
		t.NSACK = uint8(min(len(v)/8, len(t.SACK)))
		for i := range t.SACK[:t.NSACK] {
			t.SACK[i][0] = Seq(binary.BigEndian.Uint32(v[8*i:]))
			t.SACK[i][1] = Seq(binary.BigEndian.Uint32(v[8*i+4:]))
		}
	}
}

func (p *Packet) udp(f *link.Frame, n int) Verdict {
	h, v := p.l4header(n, UDPLen)
	if v != OK {
		return v
	}
	size := int(binary.BigEndian.Uint16(h[4:]))
	if size == 0 && f.Off.GSO != link.GSONone {
		size = n
	}
	if size < UDPLen || size > n {
		return L4Header
	}
	if f.Off.NeedsCsum || f.Off.GSO != link.GSONone || !p.noUDPChecksum(h) {
		if v := p.offload(f, size, UDPCsumOff, link.GSOUDP, link.GSOUDP); v != OK {
			return v
		}
	} else if p.V6 { // RFC 8200 8.1: a zero checksum is not allowed
		return Checksums
	}
	p.SrcPort = binary.BigEndian.Uint16(h[0:])
	p.DstPort = binary.BigEndian.Uint16(h[2:])
	p.PayloadOff += UDPLen
	p.PayloadLen = size - UDPLen
	return OK
}

func (p *Packet) noUDPChecksum(h []byte) bool { return h[6]|h[7] == 0 }

func (p *Packet) icmp(f *link.Frame, n int) Verdict {
	h, v := p.l4header(n, ICMPLen)
	if v != OK {
		return v
	}
	if v := p.offload(f, n, ICMPCsumOff, link.GSONone, link.GSONone); v != OK {
		return v
	}
	p.ICMPType, p.ICMPCode = h[0], h[1]
	p.SrcPort = binary.BigEndian.Uint16(h[4:])
	p.DstPort = 0
	p.ICMPSeq = binary.BigEndian.Uint16(h[6:])
	p.PayloadOff += ICMPLen
	p.PayloadLen -= ICMPLen
	return OK
}

// l4header is the copied part of the L4 header, at least size bytes of it.
func (p *Packet) l4header(n, size int) ([]byte, Verdict) {
	if n < size {
		return nil, L4Header
	}
	if p.HeadLen < p.L4Off+size {
		return nil, HeadersLong
	}
	return p.Head[p.L4Off:p.HeadLen], OK
}

// offload compares what the frame's offload says with what the headers say, and
// verifies the checksum of the n bytes at L4Off if nobody vouches for it.
func (p *Packet) offload(f *link.Frame, n, csumOff int, gso4, gso6 link.GSO) Verdict {
	o := &f.Off
	if o.GSO != link.GSONone {
		want := gso4
		if p.V6 {
			want = gso6
		}
		if o.GSO != want || !o.NeedsCsum || o.SegSize == 0 {
			return Offload
		}
	}
	if o.NeedsCsum {
		if int(o.CsumStart) != p.L4Off || int(o.CsumOff) != csumOff {
			return Offload
		}
		return OK
	}
	if o.DataValid || p.checksumRight(f, n) {
		return OK
	}
	return Checksums
}

// checksumRight reads the whole packet once. Its result is about the bytes read
// then; the headers are summed in the copy, so that what was verified is what
// was parsed.
func (p *Packet) checksumRight(f *link.Frame, n int) bool {
	var s uint64
	if p.Proto != ProtoICMP {
		s = pseudoLE(&p.Src, &p.Dst, p.V6, p.Proto, n)
	}
	end := p.L4Off + n
	if end <= p.HeadLen {
		return fold64(s+wideLE(p.Head[p.L4Off:end])) == 0xffff
	}
	s += wideLE(p.Head[p.L4Off:p.HeadLen])
	odd := false // HeadSize and every L4Off are even
	off, n := p.HeadLen, end-p.HeadLen
	for _, seg := range f.Segs {
		if off >= len(seg) {
			off -= len(seg)
			continue
		}
		seg = seg[off:]
		off = 0
		if len(seg) > n {
			seg = seg[:n]
		}
		part := sumLE(seg)
		if odd {
			part = swap(part)
		}
		s += uint64(part)
		odd = odd != (len(seg)&1 != 0)
		if n -= len(seg); n == 0 {
			break
		}
	}
	return fold64(s) == 0xffff
}
