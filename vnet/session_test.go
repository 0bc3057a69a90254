package vnet

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// session is a Device behind a real vhost-user server, and a frontend.
type session struct {
	tb   testing.TB
	loop *eventloop.Loop
	h    *linktest.Handler
	d    *Device
	path string
	f    *vhostuser.Frontend
	mem  *vringtest.Memory
	drv  [queues]*vringtest.Driver
	call *vringtest.Event
}

func newSession(t *testing.T) *session {
	s := &session{tb: t, h: &linktest.Handler{}, path: filepath.Join(t.TempDir(), "s"),
		mem: vringtest.NewMemory(t, 4<<20), call: vringtest.NewEvent(t)}
	var err error
	if s.loop, err = eventloop.New(eventloop.NewClock()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.loop.Close)
	if s.d, err = New(Config{Profile: ProfileUML, MAC: [6]byte{2, 0, 0, 0, 0, 9}}, s.h, s.loop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.d.Close)
	srv, err := vhostuser.NewServer(s.loop, s.d, vhostuser.ServerConfig{Path: s.path, FD: -1, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return s
}

// do runs a step of the frontend, which blocks, beside the loop.
func (s *session) do(step func() error) {
	s.tb.Helper()
	done := make(chan error, 1)
	go func() {
		done <- step()
		s.loop.Do(func() {})
	}()
	for {
		s.loop.Turn(time.Second)
		select {
		case err := <-done:
			if err != nil {
				s.tb.Fatal(err)
			}
			return
		default:
		}
	}
}

func (s *session) connect() {
	s.tb.Helper()
	f, err := vhostuser.DialFrontend(s.path)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(f.Close)
	s.f = f
	s.do(func() error {
		_, _, err := f.Negotiate(^uint64(0)&^vhostuser.VhostFLogAll, ^uint64(0)&^vhostuser.ProtocolFGPAAddresses)
		return err
	})
	s.do(func() error { return f.SetMemTable(s.mem.Regions()) })
}

// boot sets the rings up as a driver that starts anew does.
func (s *session) boot() {
	for i := range s.drv {
		r := s.mem.NewRing(128)
		s.drv[i] = r.NewDriver(vringtest.Features{EventIdx: true, InOrder: true}, 0)
	}
	s.start([queues]uint16{})
}

func (s *session) start(base [queues]uint16) {
	s.tb.Helper()
	for i, d := range s.drv {
		r := d.Ring
		s.do(func() error {
			return s.f.StartRing(i, vhostuser.RingSetup{Size: uint32(r.Size), Desc: s.mem.UVA(r.DescGPA), Avail: s.mem.UVA(r.AvailGPA),
				Used: s.mem.UVA(r.UsedGPA), Log: r.UsedGPA, Base: base[i], Kick: d.Kick.FD, Call: s.call.FD, Err: -1})
		})
	}
}

func (s *session) enable(on bool) {
	for i := range s.drv {
		s.do(func() error { return s.f.SetVringEnable(i, on) })
	}
}

func (s *session) stop() (base [queues]uint16) {
	for i := range s.drv {
		s.do(func() (err error) { base[i], err = s.f.GetVringBase(i); return err })
	}
	return base
}

// traffic passes a frame each way.
func (s *session) traffic(when string) {
	s.tb.Helper()
	s.h.Reset()
	s.drv[rxQueue].Post(2048)
	out, in := pattern(60, 1), pattern(80, 2)
	s.drv[txQueue].Send(plain(), out)
	deadline := time.Now().Add(5 * time.Second)
	for s.h.Count == 0 && time.Now().Before(deadline) {
		s.loop.Turn(10 * time.Millisecond)
	}
	if s.h.Count != 1 || !bytes.Equal(s.h.Got[0].Data, out) {
		s.tb.Fatalf("%s: %d frames from the guest, drops %v", when, s.h.Count, s.d.Stats().Drops)
	}
	if !link.Send(s.h.EP(), in[:54], in[54:], link.Offload{}) {
		s.tb.Fatalf("%s: no room", when)
	}
	s.loop.Turn(0)
	if u := s.drv[rxQueue].Reap(); len(u) != 1 || !bytes.Equal(u[0].Data[12:], in) {
		s.tb.Fatalf("%s: the driver got %d frames", when, len(u))
	}
}

func (s *session) linkUps(when string, n int, fresh bool) {
	s.tb.Helper()
	if len(s.h.Ups) != n || !s.h.Up() || s.h.Ups[n-1].Fresh != fresh {
		s.tb.Fatalf("%s: link came up %d times, want %d; %+v", when, len(s.h.Ups), n, s.h.Ups)
	}
}

// TestSession takes one frontend through boot, pause, reboot as QEMU does it, and
// replaces it by another.
func TestSession(t *testing.T) {
	s := newSession(t)
	s.connect()
	s.do(func() error { return s.f.NetSetMTU(9000) })
	var cfg []byte
	s.do(func() (err error) { cfg, err = s.f.GetConfig(0, 12); return err })
	if want := []byte{2, 0, 0, 0, 0, 9, 1, 0, 1, 0, 0x28, 0x23}; !bytes.Equal(cfg, want) {
		t.Errorf("config % x", cfg)
	}
	s.boot()
	s.enable(true)
	s.linkUps("boot", 1, true)
	if c := s.h.Ups[0].Caps; c.MTU != 9000 || !c.TSO4 || !c.USO || !c.Csum {
		t.Errorf("caps %+v", c)
	}
	s.traffic("boot")

	s.start(s.stop())
	s.linkUps("pause", 2, false)
	s.traffic("pause")

	s.do(func() error { return s.f.SetMemTable(s.mem.Regions()) })
	s.traffic("memory mapped anew")

	// QEMU 7.2 enables the rings while they are stopped, and not again.
	s.do(func() error { return s.f.SetStatus(0) })
	s.stop()
	s.enable(true)
	s.boot()
	s.linkUps("reboot", 3, true)
	s.traffic("reboot")

	s.f.Close()
	for s.h.Up() {
		s.loop.Turn(time.Second)
	}
	s.connect()
	s.boot()
	s.enable(true)
	s.linkUps("another frontend", 4, true)
	s.traffic("another frontend")
	if s.loop.Stats().Panics != 0 {
		t.Errorf("%d panics", s.loop.Stats().Panics)
	}
}
