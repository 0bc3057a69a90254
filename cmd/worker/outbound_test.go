package worker

import (
	"net/netip"
	"strings"
	"testing"

	"guestwire/cmd/config"
)

func TestCheckOutbound(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    config.Net
		says string // "": right
	}{
		{"nothing", config.Net{}, ""},
		{"own address", config.Net{Outbound4: netip.MustParseAddr("127.0.0.1")}, ""},
		{"own interface", config.Net{OutboundIf: [2]string{"lo", "lo"}}, ""},
		{"address of another host", config.Net{Outbound4: netip.MustParseAddr("203.0.113.9")}, `--outbound "203.0.113.9": is no address of this host`},
		{"IPv6 address of another host", config.Net{Outbound6: netip.MustParseAddr("2001:db8::9")}, `--outbound "2001:db8::9"`},
		{"no interface", config.Net{OutboundIf: [2]string{"", "nope0"}}, `--outbound-if6 "nope0": this host has no such interface`},
	} {
		err := checkOutbound(&tt.c)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.says)
		}
	}
}
