package tcp

import (
	"fmt"
	"testing"

	"guestwire/translate/flow"
)

// T8: window scale is clamped to 14, and off unless both SYNs have it. T21: SACK
// is offered only when it was, timestamps never.
func TestT8(t *testing.T) {
	for _, tt := range []struct {
		wscale int
		wnd    uint16
		want   uint32 // window that the engine takes from the guest's ACK
		ours   int
	}{
		{-1, 1000, 1000, -1}, {0, 1000, 1000, 5}, {3, 1000, 8000, 5}, {14, 1000, 1000 << 14, 5}, {15, 1000, 1000 << 14, 5}, {255, 1000, 1000 << 14, 5},
	} {
		t.Run(fmt.Sprint(tt.wscale), func(t *testing.T) {
			r := newRig(t)
			c := r.dialWith(side4(1), seg{mss: 1460, wscale: tt.wscale, wnd: tt.wnd})
			if c.first.wscale != tt.ours || c.first.sackOK {
				t.Errorf("SYN-ACK %+v", c.first)
			}
			k := flow.Key{Guest: c.guest, Remote: c.remote, GuestPort: 1, RemotePort: 80, Proto: 6}
			i, _ := r.flows.Lookup(&k)
			if got := r.e.conns.At(r.flows.At(i).Slot).wnd; got != tt.want {
				t.Errorf("window %d, want %d", got, tt.want)
			}
			r.e.ResetAll()
			r.clean()
		})
	}
}

// T20: the guest's MSS is clamped.
func TestT20(t *testing.T) {
	for _, tt := range []struct{ mss, mtu, want int }{
		{0, 1500, 536}, {1, 1500, 256}, {256, 1500, 256}, {1000, 1500, 1000}, {65535, 1500, 1460}, {65535, 9000, 8960}, {1460, 1280, 1240},
	} {
		t.Run(fmt.Sprint(tt.mss, "/", tt.mtu), func(t *testing.T) {
			r := newRig(t, noCaps, mtu(tt.mtu))
			c := r.dialWith(side4(1), seg{mss: tt.mss, wscale: 7, wnd: 65535})
			if c.first.mss != tt.mtu-40 {
				t.Errorf("we announce MSS %d, want %d", c.first.mss, tt.mtu-40)
			}
			c.p.Send(pattern(20000, 1))
			r.k.Run()
			biggest := 0
			for _, s := range r.take(c.side) {
				biggest = max(biggest, len(s.data))
			}
			if biggest != tt.want {
				t.Errorf("segments of %d bytes, want %d", biggest, tt.want)
			}
			r.e.ResetAll()
			r.clean()
		})
	}
}
