package hostile

import (
	"testing"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// headerLength: the virtio header has 10 bytes for a legacy driver without merged
// buffers and 12 for all others (virtio 1.3, 5.1.6.1), anew at each negotiation
// of the same session. The one of 20 bytes belongs to HASH_REPORT, which is not
// offered.
func headerLength(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	const hashReport = 1 << 57
	if err := g.f.SetFeatures(vhostuser.FVersion1 | hashReport | vhostuser.VhostUserFProtocolFeatures); err == nil {
		t.Error("HASH_REPORT is taken")
	}
	for i, tt := range []struct {
		features uint64
		header   int
	}{
		{vhostuser.FVersion1, 12},
		{0, 10},
		{vhostuser.FVersion1 | vhostuser.NetFMrgRxbuf, 12},
		{vhostuser.NetFMrgRxbuf, 12},
		{0, 10},
		{vhostuser.FVersion1, 12},
	} {
		must(t, g.f.ResetDevice())
		must(t, g.f.SetFeatures(tt.features|vhostuser.VhostUserFProtocolFeatures))
		var drv [2]*vringtest.Driver
		for q := range g.rings {
			g.rings[q] = g.mem.NewRing(ringSize)
			drv[q] = g.rings[q].NewDriver(vringtest.Features{}, 0)
			must(t, g.startRing(q, drv[q].Kick.FD))
		}
		for range 8 {
			drv[0].Post(rxBuffer)
		}
		drv[1].Send(make([]byte, tt.header), arpFor(t, gateway))
		d.eventually("an answer with a header of its length", func() bool {
			for _, u := range drv[0].Reap() {
				if isARPReply(u.Data[tt.header:]) {
					if n := len(u.Data) - tt.header; n != 60 {
						t.Errorf("negotiation %d: a frame of %d bytes behind a header of %d", i, n, tt.header)
					}
					return true
				}
			}
			return false
		})
	}
	g.leave()
	d.healthy()
}

// noControlQueue: nothing that needs a control queue is offered or taken, and
// there is no third ring to send commands on.
func noControlQueue(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	offer, err := g.f.GetFeatures()
	must(t, err)
	for _, bit := range []uint{17, 18, 19, 20, 21, 22, 23, 2, 53, 57, 60} { // CTRL_VQ, _RX, _VLAN, _RX_EXTRA, GUEST_ANNOUNCE, MQ, CTRL_MAC_ADDR, CTRL_GUEST_OFFLOADS, NOTF_COAL, HASH_REPORT, RSS
		if offer&(1<<bit) != 0 {
			t.Errorf("feature %d is offered: this row must attack the control queue", bit)
		}
		if err := g.f.SetFeatures(features | 1<<bit | vhostuser.VhostUserFProtocolFeatures); err == nil {
			t.Errorf("feature %d is taken", bit)
		}
	}
	kick := vringtest.NewEvent(t).FD
	for name, err := range map[string]error{
		"size": g.f.SetVringNum(2, 64), "base": g.f.SetVringBase(2, 0), "kick": g.f.SetVringKick(2, kick), "call": g.f.SetVringCall(2, kick),
		"enable": g.f.SetVringEnable(2, true), "addresses": g.f.SetVringAddr(vhostuser.VringAddr{Index: 2}),
	} {
		if err == nil {
			t.Errorf("the %s of a third ring is taken", name)
		}
	}
	g.ping()
	g.leave()
	d.healthy()
}
