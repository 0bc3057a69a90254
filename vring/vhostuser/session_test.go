package vhostuser_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/guestmem"
)

func TestBuffersFlow(t *testing.T) {
	for name, share := range map[string]func(b *bench, f *Frontend, v *vm){
		"table": func(b *bench, f *Frontend, v *vm) {
			b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
		},
		"region by region": func(b *bench, f *Frontend, v *vm) {
			b.do(func() error { return f.Share(ProtocolFConfigureMemSlots, v.mem.Regions()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			f, v := b.session(), newVM(t)
			share(b, f, v)
			for i := range 2 {
				b.do(func() error { return f.StartRing(i, v.setup(i, 0)) },
					func() error { return f.SetVringEnable(i, true) })
			}
			b.echo(v, 200) // three times around
			if n := v.call[0].Count(); n == 0 {
				t.Errorf("never called")
			}
			for i := range 2 {
				var base uint16
				b.do(func() (err error) { base, err = f.GetVringBase(i); return })
				if base != 200 {
					t.Errorf("ring %d came to %d, want 200", i, base)
				}
			}
		})
	}
}

// With GPA_ADDRESSES the addresses of rings are guest addresses, and those of
// regions are, too, or say nothing.
func TestGuestAddresses(t *testing.T) {
	b := newBench(t)
	f, v := b.dial(), newVM(t)
	b.do(func() error { _, _, err := f.Negotiate(^uint64(0)&^VhostFLogAll, ^uint64(0)); return err })
	rs := v.mem.Regions()
	for i := range rs {
		rs[i].UVA = 0
	}
	b.do(func() error { return f.SetMemTable(rs) })
	for i := range 2 {
		s, r := v.setup(i, 0), v.ring[i]
		s.Desc, s.Avail, s.Used = r.DescGPA, r.AvailGPA, r.UsedGPA
		b.do(func() error { return f.StartRing(i, s) }, func() error { return f.SetVringEnable(i, true) })
	}
	b.echo(v, 3)
	b.do(func() error { return f.RemMemReg(rs[1]) })
}

func TestSimpleMessages(t *testing.T) {
	b := newBench(t)
	b.dev.MaxMTU, b.dev.NumPairs, b.dev.Config = 9000, 7, []byte{1, 2, 3, 4, 5, 6, 7, 8}
	f := b.session()
	b.dev.Take()

	var n uint64
	b.do(func() (err error) { n, err = f.GetQueueNum(); return })
	if n != 7 {
		t.Errorf("GET_QUEUE_NUM: %d", n)
	}
	b.do(func() (err error) { n, err = f.GetMaxMemSlots(); return })
	if n != guestmem.MaxRegions {
		t.Errorf("GET_MAX_MEM_SLOTS: %d", n)
	}
	b.do(func() error { return f.NetSetMTU(9000) }, func() error { return f.SendRARP([6]byte{2, 0, 0, 0, 0, 5}) })
	b.nack(func() error { return f.NetSetMTU(9001) })
	b.calls("SetMTU(9000)", "RARP(020000000005)", "SetMTU(9001)")
	b.nack(func() error { return f.Send(MsgNetSetMTU, []byte{0x28, 0x23, 1, 0, 0, 0, 0, 0}) }) // 9000 + 65536
	b.calls()

	b.do(func() error { return f.SetStatus(0x8b) }, func() (err error) { n, err = f.GetStatus(); return })
	if n != 0x8b {
		t.Errorf("GET_STATUS: %#x", n)
	}
	var c []byte
	b.do(func() (err error) { c, err = f.GetConfig(2, 4); return })
	if !bytes.Equal(c, []byte{3, 4, 5, 6}) {
		t.Errorf("GET_CONFIG: %x", c)
	}
	b.do(func() error { return f.SetConfig(0, 1, []byte{9}) })
	b.calls("WriteConfig(0, 09)")
}

func TestBackendRequests(t *testing.T) {
	b := newBench(t)
	f := b.session()
	if b.srv.ConfigChanged() {
		t.Errorf("config change sent without a channel")
	}
	keepsFDs(t, func() {
		for range 3 { // the last one counts
			b.do(func() error { return f.SetBackendReqFD() })
		}
		if !b.srv.ConfigChanged() {
			t.Fatalf("config change not sent")
		}
		r, p, err := f.ReadBackendRequest()
		if err != nil || r != BackendConfigChange || len(p) != 0 {
			t.Errorf("got request %d, payload %x, %v", r, p, err)
		}
		f.Close()
		b.turn()
		b.f = b.dial() // as many descriptors as before
	})
	if b.srv.ConfigChanged() {
		t.Errorf("config change sent on a channel of the last session")
	}
}

// What a session has left behind must not be there in the next.
func TestSessionsStartAfresh(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.dev.Take()
	keepsFDs(t, func() {
		f.Close()
		b.turn()
		b.calls("Stop(0)", "Enable(0, false)", "Stop(1)", "Enable(1, false)", "Disconnected()")
		st := b.srv.State()
		if st.Connected || st.Features != 0 || st.ProtocolFeatures != 0 || st.Status != 0 || st.Regions != 0 {
			t.Errorf("left behind: %+v", st)
		}
		for i, r := range st.Rings {
			if r.RingState != (RingState{}) || r.Size != 0 || r.LastAvail != 0 || r.Stats.Pops != 0 {
				t.Errorf("ring %d: %+v", i, r)
			}
		}
		b.start(v) // the same descriptors as the session before
	})
}

// Nothing that a frontend sends is inherited by a program that we start.
func TestCloseOnExec(t *testing.T) {
	b := newBench(t)
	f, _ := b.running()
	b.do(func() error { return f.SetBackendReqFD() })
	kinds, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		p, err := os.ReadFile("/proc/self/fdinfo/" + k.Name())
		to, _ := os.Readlink("/proc/self/fd/" + k.Name())
		if err != nil || !strings.Contains(to, "eventfd") && !strings.Contains(to, "socket") && !strings.Contains(to, "memfd") {
			continue // closed meanwhile, or the test program's own
		}
		var flags uint64
		for _, line := range strings.Split(string(p), "\n") {
			if v, ok := strings.CutPrefix(line, "flags:"); ok {
				flags, _ = strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			}
		}
		if n, _ := strconv.Atoi(k.Name()); flags&unix.O_CLOEXEC == 0 && n > 2 {
			t.Errorf("descriptor %d, %s, is inherited", n, to)
		}
	}
}
