package hostside

import (
	"testing"

	"guestwire/vsockbridge/packet"
)

// ForwardCID takes what no rule takes, in place of the sockets behind UDSPath.
// The sockets themselves are only for guests to open: this is about where to.
func TestForwardCID(t *testing.T) {
	rule, err := ParseConnect("vsock:7=unix:/run/seven")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		forward uint32
		port    uint32
		typ     packet.Type
		to      string
		ours    bool
	}{
		{1, 7, packet.Stream, "unix:/run/seven", false},
		{1, 7, packet.SeqPacket, "vsock:1:7", false},
		{9, 4294967294, packet.Stream, "vsock:9:4294967294", false},
		{0, 8, packet.Stream, "unix:/run/uds_8", true},
	} {
		h := &Host{c: Config{UDSPath: "/run/uds", Connect: []Rule{rule}, ForwardCID: tt.forward}}
		if to, ours := h.target(tt.port, tt.typ); to.String() != tt.to || ours != tt.ours {
			t.Errorf("forward to %d, port %d (%v): got %v %v, want %s %v", tt.forward, tt.port, tt.typ, to, ours, tt.to, tt.ours)
		}
	}
}
