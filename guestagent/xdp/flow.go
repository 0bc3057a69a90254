package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"guestwire/translate/wire"
)

// Flow is what the datagrams of a Sender have in common. Both addresses are of
// one IP version.
type Flow struct {
	SrcMAC, DstMAC wire.MAC
	Src, Dst       netip.AddrPort
}

// Sizes of a datagram's payload in bytes: it begins with its number (8 bytes,
// big-endian), then come the low bytes of its own offsets.
const (
	MinPayload = 8
	MaxPayload = 1472 // with IPv4 headers in an MTU of 1500; 20 less with IPv6

	udpLen = 8
)

// template is a frame whose datagrams differ in their number alone.
type template struct {
	frame   []byte
	payload int    // where it begins
	sum     uint32 // the checksum's, without the number
}

func newTemplate(f *Flow, size int) (t template, err error) {
	src, dst := f.Src.Addr().Unmap(), f.Dst.Addr().Unmap()
	most := MaxPayload
	if dst.Is6() {
		most -= 20
	}
	switch {
	case src.Is4() != dst.Is4() || !src.IsValid():
		return t, fmt.Errorf("xdp: %v and %v are not of one IP version", src, dst)
	case size < MinPayload || size > most:
		return t, fmt.Errorf("xdp: payload of %d bytes: use %d to %d", size, MinPayload, most)
	}
	from, to := wire.FromNetip(src), wire.FromNetip(dst)
	b := make([]byte, wire.EthLen+40+udpLen+size)
	n := wire.EthLen
	if dst.Is4() {
		wire.PutEthernet(b, f.DstMAC, f.SrcMAC, wire.EtherIPv4)
		n += wire.PutIPv4(b[n:], &wire.IPv4Fields{Src: from, Dst: to, Proto: wire.ProtoUDP, TTL: 64, DontFrag: true, PayloadLen: udpLen + size})
	} else {
		wire.PutEthernet(b, f.DstMAC, f.SrcMAC, wire.EtherIPv6)
		n += wire.PutIPv6(b[n:], &wire.IPv6Fields{Src: from, Dst: to, NextHeader: wire.ProtoUDP, HopLimit: 64, PayloadLen: udpLen + size})
	}
	l4 := n
	n += wire.PutUDP(b[n:], f.Src.Port(), f.Dst.Port(), size, 0)
	fill(b[n : n+size])
	t = template{frame: b[:n+size], payload: n}
	t.sum = wire.Checksum(wire.PseudoHeader(from, to, wire.ProtoUDP, udpLen+size), b[l4:n+size])
	return t, nil
}

func fill(payload []byte) {
	clear(payload[:MinPayload])
	for i := MinPayload; i < len(payload); i++ {
		payload[i] = byte(i)
	}
}

// number makes b, which has been a copy of the template, datagram seq: the number
// and the checksum, which is known from it.
func (t *template) number(b []byte, seq uint64) {
	p := b[t.payload:]
	binary.BigEndian.PutUint64(p, seq)
	wire.PutChecksum(b, t.payload-2, wire.FinishUDP(wire.Checksum(t.sum, p[:MinPayload])))
}

// datagram returns the payload of a frame that a Program has led here, as long as
// its UDP header says; false for what is no such frame.
func datagram(frame []byte) ([]byte, bool) {
	if len(frame) < wire.EthLen+20+udpLen {
		return nil, false
	}
	at := wire.EthLen
	switch binary.BigEndian.Uint16(frame[12:]) {
	case wire.EtherIPv4:
		at += int(frame[at]&15) * 4
	case wire.EtherIPv6:
		at += 40
	default:
		return nil, false
	}
	if len(frame) < at+udpLen {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(frame[at+4:]))
	if n < udpLen || at+n > len(frame) {
		return nil, false
	}
	return frame[at+udpLen : at+n], true
}

// intact says whether a payload is as a Sender has made it.
func intact(payload []byte) bool {
	if len(payload) < MinPayload {
		return false
	}
	for i := MinPayload; i < len(payload); i++ {
		if payload[i] != byte(i) {
			return false
		}
	}
	return true
}
