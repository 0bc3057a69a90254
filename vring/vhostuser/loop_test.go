package vhostuser_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser/vhostusertest"
	"guestwire/vring/vringtest"
)

// The whole of it as it is used: a loop on its own thread with a real clock, a
// frontend and a driver on another, eventfds in between.
func TestServedByARunningLoop(t *testing.T) {
	l, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dev := vhostusertest.New(2)
	dev.Echo = true
	path := filepath.Join(t.TempDir(), "s")
	s, err := NewServer(l, dev, ServerConfig{Path: path, FD: -1})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- l.Run() }()
	defer func() {
		l.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	}()

	for _, session := range []string{"first", "second"} {
		f, err := DialFrontend(path)
		if err != nil {
			t.Fatal(err)
		}
		v := &vm{mem: vringtest.NewMemory(t, 1<<20, 1<<20)}
		features, protocol, err := f.Negotiate(^uint64(0)&^VhostFLogAll, allProtocol)
		if err == nil {
			err = f.Share(protocol, v.mem.Regions())
		}
		if err != nil || features&RingFEventIdx == 0 {
			t.Fatalf("features %s: %v", FeatureNames(features), err)
		}
		for i := range 2 {
			v.newRing(t, i)
			r := v.setup(i, 0)
			r.Call = v.call[0].FD // one for both, so that one wait will do
			if err := f.StartRing(i, r); err != nil {
				t.Fatal(err)
			}
			if err := f.SetVringEnable(i, true); err != nil {
				t.Fatal(err)
			}
		}
		const total = 5000
		sent, got, moved := 0, 0, false
		for got < total {
			for {
				if _, ok := v.drv[0].Post(64); !ok {
					break
				}
			}
			for sent < total {
				if _, ok := v.drv[1].Send(fmt.Appendf(nil, "%s %d", session, sent)); !ok {
					break
				}
				sent++
			}
			used, freed := v.drv[0].Reap(), v.drv[1].Reap()
			for _, u := range used {
				if want := fmt.Sprintf("%s %d", session, got); string(u.Data) != want {
					t.Fatalf("got %q, want %q", u.Data, want)
				}
				got++
			}
			idle := len(used)+len(freed) == 0 && !v.drv[0].Q.ArmCall() && !v.drv[1].Q.ArmCall()
			if idle && !v.call[0].Wait(5*time.Second) {
				t.Fatalf("no call after %d of %d", got, total)
			}
			if got >= total/2 && !moved { // memory moves under the rings
				moved = true
				if err := f.RemMemReg(v.mem.Regions()[1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 2 {
			if base, err := f.GetVringBase(i); err != nil || i == 1 && base != total {
				t.Errorf("ring %d: base %d, %v", i, base, err)
			}
		}
		f.Close()
	}
}

// A kick costs nothing but its system calls.
func TestKickDoesNotAllocate(t *testing.T) {
	b := newBench(t)
	_, v := b.running()
	b.dev.Kicks[1] = 0
	if n := testing.AllocsPerRun(200, func() {
		kick(v, 1)
		b.loop.Turn(0)
	}); n != 0 {
		t.Errorf("%v allocations for a kick", n)
	}
	if b.dev.Kicks[1] < 200 {
		t.Errorf("%d kicks came through", b.dev.Kicks[1])
	}
}
