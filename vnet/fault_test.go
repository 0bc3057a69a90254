package vnet

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/guestmem"
)

// TestTruncatedMemory is M11: a frontend that cuts off guest memory breaks its
// own rings. The handler's call returns, the process lives, other memory works.
func TestTruncatedMemory(t *testing.T) {
	const size = 1 << 20
	fd, err := unix.MemfdCreate("truncated", unix.MFD_CLOEXEC) // not to be sealed
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	table, err := guestmem.Map([]guestmem.Region{{GPA: 0, UVA: 1 << 32, Size: size, FD: fd}})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	queue := func(r *rig, i int, at uint64) *vring.DeviceQueue {
		// One buffer of 64 KiB at 128 KiB, writable for ring 0, offered four times.
		desc := table.Slice(at, 16*16)
		put := []byte{0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, byte(2 * (1 - i)), 0, 0, 0}
		copy(desc, put)
		avail := table.Slice(at+0x1000, 6+2*16)
		avail[2] = 4
		q, err := vring.NewDeviceQueue(vring.Config{Index: i, Size: 16, Mem: table, Desc: desc, Avail: avail,
			Used: table.Slice(at+0x2000, 6+8*16), CallFD: -1, ErrFD: -1})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for name, use := range map[string]func(ep link.Endpoint, cut func()){
		"in Commit": func(ep link.Endpoint, cut func()) {
			s := ep.Reserve(54, 1000, 1)
			s[0].Used = 1000
			cut()
			ep.Commit(1)
		},
		"in Reserve": func(ep link.Endpoint, cut func()) {
			cut()
			if s := ep.Reserve(54, 1000, 1); len(s) != 0 {
				t.Error("slots in memory that is gone")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, noRing)
			r.stop()
			r.d.Start(rxQueue, queue(r, rxQueue, 0))
			r.d.Start(txQueue, queue(r, txQueue, 0x8000))
			r.tx.Kick.Count()
			use(r.ep(), func() { unix.Ftruncate(fd, 0) })
			defer unix.Ftruncate(fd, size)
			r.loop.Turn(0)
			if r.h.Up() || r.d.Stats().Faults == 0 {
				t.Errorf("link up %v, stats %+v", r.h.Up(), r.d.Stats().Counters)
			}
			if s := r.loop.Stats(); s.Panics != 0 {
				t.Errorf("%d panics reached the loop", s.Panics)
			}
			r.stop()
			r.reboot() // with memory that is there
			r.traffic()
		})
	}
	t.Run("in Flush", func(t *testing.T) {
		r := newRig(t, noRing)
		r.stop()
		r.d.Start(rxQueue, queue(r, rxQueue, 0))
		r.d.Start(txQueue, queue(r, txQueue, 0x8000))
		r.settle()
		r.ep().Reserve(54, 0, 1)
		r.ep().Commit(1)
		unix.Ftruncate(fd, 0)
		defer unix.Ftruncate(fd, size)
		r.loop.Turn(0)
		r.loop.Turn(0)
		if r.h.Up() || r.loop.Stats().Panics != 1 {
			t.Errorf("link up %v, %d panics", r.h.Up(), r.loop.Stats().Panics)
		}
		r.stop()
		r.reboot()
		r.traffic()
		if len(r.reap()) != 1 {
			t.Error("nothing is published any more")
		}
	})
	t.Run("in the kick", func(t *testing.T) {
		r := newRig(t, noRing)
		r.stop()
		r.d.Start(rxQueue, queue(r, rxQueue, 0))
		r.d.Start(txQueue, queue(r, txQueue, 0x8000)) // asks for a turn
		unix.Ftruncate(fd, 0)
		defer unix.Ftruncate(fd, size)
		r.loop.Turn(0)
		r.loop.Turn(0)
		if r.h.Up() || r.loop.Stats().Panics != 1 {
			t.Errorf("link up %v, %d panics", r.h.Up(), r.loop.Stats().Panics)
		}
		r.stop()
		r.reboot()
		r.traffic()
	})
}

// TestHandlerPanic: a panic that is no fault of memory is the loop's to handle,
// also when it passes through Reserve's and Commit's guard.
func TestHandlerPanic(t *testing.T) {
	r := newRig(t, noRing)
	r.h.OnFrames = func([]link.Frame) { panic(errors.New("bug")) }
	r.tx.Send(plain(), pattern(60, 1))
	r.d.turn.ask(r.loop)
	r.loop.Turn(0)
	if r.loop.Stats().Panics != 1 || r.h.Up() {
		t.Errorf("%d panics, link up %v", r.loop.Stats().Panics, r.h.Up())
	}
	r.h.OnFrames = nil
	r.stop()
	r.reboot()
	r.h.Reset()
	r.traffic()
	if r.h.Count != 1 {
		t.Error("the device does not work after it was set up anew")
	}
}

// TestClose gives the registration and the descriptor back.
func TestClose(t *testing.T) {
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	d, err := New(Config{}, &linktest.Handler{}, loop)
	if err != nil {
		t.Fatal(err)
	}
	fd := d.turn.fd
	d.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("descriptor is open: %v", err)
	}
}
