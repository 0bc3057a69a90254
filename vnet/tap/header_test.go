package tap

import (
	"encoding/hex"
	"testing"

	"guestwire/vnet/link"
)

// Expected bytes are written down from virtio 1.3, 5.1.6, not computed.
func TestHeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		off    link.Offload
		header int
		n      int
		raw    string // "": cannot be
	}{
		{"plain", link.Offload{}, 54, 60, "000000000000000000000000"},
		{"checksum", link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 16}, 54, 60, "010000000000220010000000"},
		{"vouched for", link.Offload{DataValid: true}, 54, 60, "020000000000000000000000"},
		{"TCPv4", link.Offload{GSO: link.GSOTCPv4, SegSize: 1460, NeedsCsum: true, CsumStart: 34, CsumOff: 16}, 54, 65549, "01013600b405220010000000"},
		{"TCPv6 with ECN", link.Offload{GSO: link.GSOTCPv6, ECN: true, SegSize: 1440, NeedsCsum: true, CsumStart: 54, CsumOff: 16}, 74, 9000, "01844a00a005360010000000"},
		{"UDP", link.Offload{GSO: link.GSOUDP, SegSize: 1200, NeedsCsum: true, CsumStart: 34, CsumOff: 6}, 42, 2442, "01052a00b004220006000000"},
		{"short frame", link.Offload{}, 13, 13, ""},
		{"checksum outside", link.Offload{NeedsCsum: true, CsumStart: 34, CsumOff: 25}, 54, 60, ""},
		{"checksum in the Ethernet header", link.Offload{NeedsCsum: true, CsumStart: 13}, 54, 60, ""},
		{"GSO without checksum", link.Offload{GSO: link.GSOTCPv4, SegSize: 1460}, 54, 3000, ""},
		{"GSO without size", link.Offload{GSO: link.GSOTCPv4, NeedsCsum: true, CsumStart: 34, CsumOff: 16}, 54, 3000, ""},
		{"no such GSO", link.Offload{GSO: 9, SegSize: 9, NeedsCsum: true, CsumStart: 34, CsumOff: 16}, 54, 3000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := make([]byte, HdrLen)
			for i := range raw {
				raw[i] = 0xff
			}
			ok := Encode(raw, &tt.off, tt.header, tt.n)
			if ok != (tt.raw != "") {
				t.Fatalf("encode: %v", ok)
			}
			if !ok {
				return
			}
			if got := hex.EncodeToString(raw); got != tt.raw {
				t.Errorf("encode: %s, want %s", got, tt.raw)
			}
			var off link.Offload
			want := tt.off
			want.DataValid = false // is not for the other side to say
			if !Decode(&off, raw, tt.n) || off != want {
				t.Errorf("decode: %+v, want %+v", off, want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, raw := range map[string]string{
		"checksum outside":      "010000000000320010000000",
		"checksum at the start": "010000000000000000000000",
		"GSO without checksum":  "00013600b405000000000000",
		"GSO without size":      "010136000000220010000000",
		"UFO":                   "01032a00b004220006000000",
		"ECN alone":             "01802a00b004220006000000",
		"GSO unknown":           "01072a00b004220006000000",
	} {
		b, _ := hex.DecodeString(raw)
		var off link.Offload
		if Decode(&off, b, 60) {
			t.Errorf("%s: taken as %+v", name, off)
		}
	}
}
