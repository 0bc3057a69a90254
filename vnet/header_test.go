package vnet

import (
	"bytes"
	"testing"

	"guestwire/vnet/link"
	"guestwire/vring/vhostuser"
)

// Values of the header fields are those of virtio 1.3, 5.1.6.
func TestDecode(t *testing.T) {
	all := fromGuest(everything)
	only := func(bits uint64) offloads { return fromGuest(bits) }
	csum := link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}
	gso := func(k link.GSO, ecn bool) link.Offload {
		return link.Offload{GSO: k, ECN: ecn, NeedsCsum: true, SegSize: 1448, CsumStart: 34, CsumOff: 16}
	}
	for _, tc := range []struct {
		name string
		o    offloads
		hdr  []byte
		n    int // frame length
		want link.Offload
		drop Drop
	}{
		{"plain", all, hdr(0, 0, 0, 0, 0, 0), 60, link.Offload{}, 0},
		{"plain, nothing negotiated", only(0), hdr(0, 0, 0, 0, 0, 0), 60, link.Offload{}, 0},
		{"checksum", all, hdr(1, 0, 54, 0, 34, 16), 60, csum, 0},
		{"DATA_VALID is not the driver's", all, hdr(2, 0, 0, 0, 0, 0), 60, link.Offload{}, 0},
		{"unknown flags are ignored", all, hdr(0xfc, 0, 0, 0, 0, 0), 60, link.Offload{}, 0},
		{"offsets without the flag are ignored", all, hdr(0, 0, 0xffff, 0xffff, 0xffff, 0xffff), 60, link.Offload{}, 0},
		{"N4 hdr_len lies", all, hdr(1, 0, 0xffff, 0, 34, 16), 60, csum, 0},
		{"N4 field ends with the frame", all, hdr(1, 0, 0, 0, 42, 16), 60, link.Offload{NeedsCsum: true, CsumStart: 42, CsumOff: 16}, 0},
		{"N4 field ends behind the frame", all, hdr(1, 0, 0, 0, 43, 16), 60, link.Offload{}, DropCsum},
		{"N4 sum of offsets over 16 bits", all, hdr(1, 0, 0, 0, 0xffff, 0xffff), 60, link.Offload{}, DropCsum},
		{"N4 start in the Ethernet header", all, hdr(1, 0, 0, 0, 13, 16), 60, link.Offload{}, DropCsum},
		{"N4 not negotiated", only(vhostuser.FVersion1), hdr(1, 0, 0, 0, 34, 16), 60, link.Offload{}, DropCsum},
		{"TSO4", all, hdr(1, 1, 54, 1448, 34, 16), 9000, gso(link.GSOTCPv4, false), 0},
		{"TSO6", all, hdr(1, 4, 54, 1448, 34, 16), 9000, gso(link.GSOTCPv6, false), 0},
		{"USO", all, hdr(1, 5, 54, 1448, 34, 16), 9000, gso(link.GSOUDP, false), 0},
		{"TSO4 with ECN", all, hdr(1, 0x81, 54, 1448, 34, 16), 9000, gso(link.GSOTCPv4, true), 0},
		{"TSO6 with ECN", all, hdr(1, 0x84, 54, 1448, 34, 16), 9000, gso(link.GSOTCPv6, true), 0},
		{"N3 ECN alone", all, hdr(1, 0x80, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 ECN with USO", all, hdr(1, 0x85, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 UFO", all, hdr(1, 3, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 unknown type", all, hdr(1, 2, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 tunnel bits", all, hdr(1, 0x21, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 size 0", all, hdr(1, 1, 54, 0, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 without checksum request", all, hdr(0, 1, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 TSO4 not negotiated", only(vhostuser.NetFCsum | vhostuser.NetFHostTSO6), hdr(1, 1, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 TSO6 not negotiated", only(vhostuser.NetFCsum | vhostuser.NetFHostTSO4), hdr(1, 4, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 USO not negotiated", only(vhostuser.NetFCsum | TSO), hdr(1, 5, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
		{"N3 ECN not negotiated", only(vhostuser.NetFCsum | vhostuser.NetFHostTSO4), hdr(1, 0x81, 54, 1448, 34, 16), 9000, link.Offload{}, DropGSO},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := parseNetHdr((*[netHdrLen]byte)(tc.hdr))
			got, drop := tc.o.decode(&h, tc.n)
			if drop != tc.drop || drop == dropNone && got != tc.want {
				t.Errorf("%+v, %v; want %+v, %v", got, drop, tc.want, tc.drop)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	all := toGuest(everything)
	noECN := toGuest(everything &^ vhostuser.NetFGuestECN)
	gso := func(k link.GSO, ecn bool) link.Offload {
		return link.Offload{GSO: k, ECN: ecn, NeedsCsum: true, SegSize: 1448, CsumStart: 34, CsumOff: 16}
	}
	// num_buffers is 1 until Commit knows better.
	with1 := func(b []byte) []byte { b[10] = 1; return b }
	for _, tc := range []struct {
		name string
		o    offloads
		off  link.Offload
		want []byte // nil: refused
	}{
		{"plain", offloads{}, link.Offload{}, hdr(0, 0, 0, 0, 0, 0)},
		{"checksum", all, link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}, hdr(1, 0, 0, 0, 34, 16)},
		{"valid", all, link.Offload{DataValid: true}, hdr(2, 0, 0, 0, 0, 0)},
		{"TSO4", all, gso(link.GSOTCPv4, false), hdr(1, 1, 54, 1448, 34, 16)},
		{"TSO6", all, gso(link.GSOTCPv6, false), hdr(1, 4, 54, 1448, 34, 16)},
		{"TSO4 with ECN", all, gso(link.GSOTCPv4, true), hdr(1, 0x81, 54, 1448, 34, 16)},
		{"ECN not negotiated", noECN, gso(link.GSOTCPv4, true), hdr(1, 1, 54, 1448, 34, 16)},
		{"USO", all, gso(link.GSOUDP, false), hdr(1, 5, 54, 1448, 34, 16)},
		{"checksum not negotiated", offloads{}, link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}, nil},
		{"valid not negotiated", offloads{}, link.Offload{DataValid: true}, nil},
		{"TSO4 not negotiated", offloads{csum: true, tso6: true}, gso(link.GSOTCPv4, false), nil},
		{"TSO6 not negotiated", offloads{csum: true, tso4: true}, gso(link.GSOTCPv6, false), nil},
		{"USO not negotiated", offloads{csum: true, tso4: true}, gso(link.GSOUDP, false), nil},
		{"offsets behind the frame", all, link.Offload{NeedsCsum: true, CsumStart: 8999, CsumOff: 0}, nil},
		{"no segment size", all, link.Offload{GSO: link.GSOTCPv4, NeedsCsum: true, CsumStart: 34, CsumOff: 16}, nil},
		{"GSO without checksum", all, link.Offload{GSO: link.GSOTCPv4, SegSize: 1448}, nil},
		{"no such type", all, gso(link.GSO(99), false), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h netHdr
			var b [netHdrLen]byte
			ok := tc.o.encode(&h, &tc.off, 54, 9000)
			h.put(&b)
			if ok != (tc.want != nil) || ok && !bytes.Equal(b[:], with1(tc.want)) {
				t.Errorf("%v, % x; want % x", ok, b, tc.want)
			}
		})
	}
}

func FuzzNetHdr(f *testing.F) {
	f.Add(plain(), 60, everything)
	f.Add(hdr(1, 1, 54, 1448, 34, 16), 9000, everything)
	f.Add(hdr(1, 0x84, 54, 1, 65535, 65535), 65589, everything)
	f.Add(hdr(3, 5, 0, 0, 14, 0), 16, uint64(TSO|Csum))
	f.Fuzz(func(t *testing.T, raw []byte, n int, features uint64) {
		if len(raw) != netHdrLen || n < ethHdrLen || n > link.MaxFrame {
			return
		}
		h := parseNetHdr((*[netHdrLen]byte)(raw))
		o := fromGuest(features)
		off, drop := o.decode(&h, n)
		if drop != dropNone {
			return
		}
		switch {
		case off.DataValid,
			off.NeedsCsum && (!o.csum || off.CsumStart < 14 || int(off.CsumStart)+int(off.CsumOff)+2 > n),
			!off.NeedsCsum && (off.CsumStart != 0 || off.CsumOff != 0),
			off.GSO == link.GSONone && (off.SegSize != 0 || off.ECN),
			off.GSO != link.GSONone && (off.SegSize == 0 || !off.NeedsCsum),
			off.ECN && (!o.ecn || off.GSO == link.GSOUDP):
			t.Fatalf("% x of %d bytes with %+v: %+v", raw, n, o, off)
		}
		// What is accepted from a guest, a guest with the same features is sent.
		var back netHdr
		if !o.encode(&back, &off, int(h.hdrLen), n) {
			t.Fatalf("% x: %+v cannot be sent", raw, off)
		}
		if off.NeedsCsum && (back.flags&^flagNeedsCsum != 0 || back.csumStart != h.csumStart || back.csumOff != h.csumOff) || back.gsoType != h.gsoType {
			t.Fatalf("% x came back as %+v", raw, back)
		}
	})
}
