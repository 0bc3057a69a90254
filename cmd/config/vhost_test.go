package config

import (
	"strings"
	"testing"
)

func TestVhostKernel(t *testing.T) {
	for _, tt := range []struct {
		given string
		want  Vhost
	}{
		{"", Vhost{true, false, -1}},
		{"auto", Vhost{true, false, -1}},
		{"on", Vhost{true, true, -1}},
		{"off", Vhost{false, false, -1}},
		{"fd:7", Vhost{true, true, 7}},
	} {
		n, err := ResolveNetns(&NetnsOptions{VhostKernel: tt.given}, noHost)
		if err != nil || n.Net.Vhost != tt.want {
			t.Errorf("%q: %+v, %v", tt.given, n, err)
		}
	}
	for _, given := range []string{"yes", "fd:", "fd:-1", "fd:x", "fd:4294967296"} {
		if _, err := ResolveNetns(&NetnsOptions{VhostKernel: given}, noHost); err == nil || !strings.Contains(err.Error(), "auto, on, off") {
			t.Errorf("%q: %v", given, err)
		}
	}
}
