package xdp

import (
	"slices"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	features := func(bits ...int) string {
		b := []byte(strings.Repeat("0", 64))
		for _, i := range bits {
			b[i] = '1'
		}
		return string(b)
	}
	good := facts{driver: "virtio_net", bus: "pci", features: features(2, 15, 33, 40), mtu: 1500, queues: 2, napiTX: true}
	for _, tc := range []struct {
		name  string
		spoil func(*facts)
		queue int
		fails []string
	}{
		{"all", func(*facts) {}, 1, nil},
		{"no bit 33", func(f *facts) { f.features = features(2, 15, 40) }, 0, []string{"access-platform"}},
		{"no bit 40", func(f *facts) { f.features = features(2, 15, 33) }, 0, []string{"ring-reset"}},
		{"TSO without merged buffers", func(f *facts) { f.features = features(2, 7, 33, 40) }, 0, []string{"buffers"}},
		{"TSO with them", func(f *facts) { f.features = features(2, 7, 15, 33, 40) }, 0, nil},
		{"TSO that cannot be switched off", func(f *facts) { f.features = features(8, 15, 33, 40) }, 0, []string{"attach"}},
		{"MTU of passt", func(f *facts) { f.mtu = 65520 }, 0, []string{"mtu"}},
		{"no such queue", func(*facts) {}, 2, []string{"queue"}},
		{"mmio", func(f *facts) { f.bus = "platform" }, 0, []string{"transport"}},
		{"napi_tx off", func(f *facts) { f.napiTX = false }, 0, []string{"napi-tx"}},
		{"another driver", func(f *facts) { *f = facts{driver: "veth", mtu: 1500, queues: 1} }, 0, nil},
	} {
		f := good
		tc.spoil(&f)
		var fails []string
		for _, c := range judge(&f, tc.queue) {
			if !c.OK {
				fails = append(fails, c.Name)
			}
			if c.OK != (c.Change == "") {
				t.Errorf("%s: %s is %t and says %q", tc.name, c.Name, c.OK, c.Change)
			}
		}
		if !slices.Equal(fails, tc.fails) {
			t.Errorf("%s: failed %v, want %v", tc.name, fails, tc.fails)
		}
	}
}
