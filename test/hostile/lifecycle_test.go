package hostile

import (
	"testing"
	"time"

	"guestwire/vring/guestmem"
)

var lifecycleRows = []row{
	{"M13", tableWhileRunning},
	{"M14", regionsWhileRunning},
	{"M15", tableStorm},
	{"M19", baseOfUnstarted},
	{"M20", enableStorm},
	{"M25", reboot},
	{"M26", pause},
	{"M27", backendRestart},
}

// regionsWhileRunning adds a region twice, removes one that is not there, and
// one that rings live in: those stop, nothing else does.
func regionsWhileRunning(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	rs := g.mem.Regions()
	if err := g.f.AddMemReg(rs[0]); err == nil {
		t.Error("a region is taken twice")
	}
	if err := g.f.RemMemReg(guestmem.Region{GPA: 1 << 50, UVA: 1 << 50, Size: 4096, FD: -1}); err == nil {
		t.Error("a region that is not there is removed")
	}
	g.ping()
	_ = g.f.RemMemReg(rs[0]) // the rings are in it
	signal(g.tx.Kick.FD)
	g.leave()
	d.healthy()
}

func tableStorm(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	before, bytes := descriptors(t), mapped(t, g.mem.FD)
	for range 300 {
		must(t, g.f.SetMemTable(g.mem.Regions()))
		must(t, g.f.SetVringCall(1, g.call[1].FD))
		must(t, g.f.SetVringErr(1, g.err[1].FD))
		must(t, g.f.SetVringKick(1, g.tx.Kick.FD))
	}
	if n := mapped(t, g.mem.FD); n != bytes {
		t.Errorf("%d bytes of memory mapped before, %d after", bytes, n)
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
	g.ping()
	g.leave()
	d.healthy()
}

// baseOfUnstarted asks for the base of a ring that was never set up, twice.
func baseOfUnstarted(t *testing.T) {
	d := start(t, nil)
	g := d.frontend(features)
	for range 2 {
		if base, err := g.f.GetVringBase(1); err != nil || base != 0 {
			t.Errorf("base %d, %v", base, err)
		}
	}
	g.leave()
	d.healthy()
}

// enableStorm switches the receive ring off and on. While it is off no frame
// comes, whatever there is to say.
func enableStorm(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for range 200 {
		must(t, g.f.SetVringEnable(0, false))
		must(t, g.f.SetVringEnable(0, true))
		g.receive()
	}
	g.ping()
	must(t, g.f.SetVringEnable(0, false))
	g.receive()
	g.send(arpFor(t, gateway))
	g.silence("a ring that is off", func([]byte) bool { return true })
	must(t, g.f.SetVringEnable(0, true))
	g.ping()
	g.leave()
	d.healthy()
}

// pause stops and starts the rings of the same guest: its flows go on.
func pause(t *testing.T) {
	d := start(t, nil)
	srv := listen(t)
	g := d.guest()
	c := g.connect(srv, 4001)
	peer := srv.accept()
	for i := range g.rings {
		base, err := g.f.GetVringBase(i)
		must(t, err)
		must(t, g.f.SetVringBase(i, base))
	}
	time.Sleep(20 * time.Millisecond)
	for i, drv := range []int{g.rx.Kick.FD, g.tx.Kick.FD} {
		must(t, g.restartRing(i, drv))
	}
	c.send("still here")
	peer.want("still here")
	g.leave()
	d.healthy()
}
