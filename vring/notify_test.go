package vring_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

// served pops and pushes n chains and publishes them.
func served(t *testing.T, q *vring.DeviceQueue, n int) {
	t.Helper()
	var c vring.Chain
	for range n {
		if !q.Pop(&c) {
			t.Fatalf("nothing to pop: %v", q.Broken())
		}
		q.Push(c.Head, c.WriteLen)
	}
	q.Publish()
}

func ringOfOne(t *testing.T, size uint16, base uint16) *vringtest.Ring {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(size)
	r.Start(base)
	r.SetDesc(0, m.Alloc(64, 1), 64, 0, 0)
	return r
}

func offer(r *vringtest.Ring, n int) { r.Offer(make([]uint16, n)...) }

// The rule of 2.7.7.2: a call is due when the entry with index used_event is
// among those just written.
func TestCallWithEventIdx(t *testing.T) {
	for _, c := range []struct {
		name        string
		base, event uint16
		n           int
		want        uint64
	}{
		{"exactly the entry", 10, 10, 1, 1},
		{"the entry before", 10, 9, 1, 0},
		{"the entry after", 10, 11, 1, 0},
		{"first of a batch", 10, 10, 4, 1},
		{"last of a batch", 10, 13, 4, 1},
		{"behind a batch", 10, 14, 4, 0},
		{"before the batch", 10, 9, 4, 0},
		{"last before the wrap", 65534, 65535, 2, 1},
		{"first after the wrap", 65534, 0, 4, 1},
		{"second after the wrap", 65534, 1, 4, 1},
		{"behind a batch that wraps", 65534, 2, 4, 0},
		{"far away", 10, 40000, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ringOfOne(t, 8, c.base-1)
			call := vringtest.NewEvent(t)
			q := deviceOn(t, r, func(cfg *vring.Config) { cfg.EventIdx, cfg.Base, cfg.CallFD = true, c.base-1, call.FD })
			offer(r, 1)
			r.SetUsedEvent(c.base + 1000)
			served(t, q, 1)
			if call.Count() != 1 {
				t.Error("the first publish after the start must call, whatever used_event says")
			}
			offer(r, c.n)
			r.SetUsedEvent(c.event)
			r.SetAvailFlags(1) // ignored with EVENT_IDX
			served(t, q, c.n)
			if got := call.Count(); got != c.want {
				t.Errorf("%d calls, want %d", got, c.want)
			}
		})
	}
}

func TestCallWithoutEventIdx(t *testing.T) {
	r := ringOfOne(t, 8, 0)
	call := vringtest.NewEvent(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.CallFD = call.FD })
	for i, flags := range []uint16{0, 1, 1, 0, 0xfffe, 0xffff} {
		r.SetAvailFlags(flags)
		r.SetUsedEvent(uint16(i)) // ignored without EVENT_IDX
		offer(r, 3)
		served(t, q, 3)
		if got, want := call.Count(), uint64(1-flags&1); got != want {
			t.Errorf("flags %#x: %d calls for a batch, want %d", flags, got, want)
		}
	}
	q.Publish()
	if call.Count() != 0 {
		t.Error("a call for nothing")
	}
	if s := q.Stats(); s.Calls != 3 || s.CallsSuppressed != 3 || s.Publishes != 6 || s.Pushes != 18 || s.Pops != 18 {
		t.Errorf("stats %+v", s)
	}
}

// Chains published quietly are seen by a driver that looks; the call for all of
// them is decided later, against the wish that the driver has by then.
func TestQuietPublish(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups []int
		event  uint16 // used_event at the time of Signal; the first entry is 11
		want   uint64
	}{
		{"within the first group", []int{2, 2}, 11, 1},
		{"within the last group", []int{2, 2}, 14, 1},
		{"the driver has gone on", []int{2, 2}, 15, 0},
		{"an entry that was decided on before", []int{2, 2}, 10, 0},
		{"more than one round of the ring", []int{8, 8, 1}, 11 + 16, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ringOfOne(t, 8, 10)
			call := vringtest.NewEvent(t)
			q := deviceOn(t, r, func(cfg *vring.Config) { cfg.EventIdx, cfg.Base, cfg.CallFD = true, 10, call.FD })
			offer(r, 1)
			served(t, q, 1) // the first publish calls
			call.Count()
			r.SetUsedEvent(11 + 1000)
			used, quiet := uint16(11), 0
			for _, n := range c.groups {
				var ch vring.Chain
				offer(r, n)
				for range n {
					if !q.Pop(&ch) {
						t.Fatal(q.Broken())
					}
					q.Push(ch.Head, 0)
				}
				if quiet += n; quiet > 8 {
					quiet = n // decided on, since a round of the ring is over
				}
				q.PublishQuietly()
				if used += uint16(n); r.UsedIdx() != used || q.Quiet() != quiet {
					t.Errorf("used.idx %d, want %d; %d quiet, want %d", r.UsedIdx(), used, q.Quiet(), quiet)
				}
			}
			if call.Count() != 0 {
				t.Error("called before Signal")
			}
			r.SetUsedEvent(c.event)
			q.Signal()
			if got := call.Count(); got != c.want || q.Quiet() != 0 {
				t.Errorf("%d calls, want %d; %d left", got, c.want, q.Quiet())
			}
			q.Signal()
			q.Publish()
			if call.Count() != 0 {
				t.Error("a call for nothing")
			}
		})
	}
}

func TestSetCall(t *testing.T) {
	r := ringOfOne(t, 8, 0)
	one, two := vringtest.NewEvent(t), vringtest.NewEvent(t)
	q := deviceOn(t, r, func(c *vring.Config) { c.CallFD = one.FD })
	q.SetCall(-1) // masked
	offer(r, 1)
	served(t, q, 1)
	if one.Count() != 0 {
		t.Error("called on a descriptor that was taken away")
	}
	q.SetCall(two.FD)
	if two.Count() != 1 {
		t.Error("a new call descriptor must be signalled once: the call may have been lost")
	}
	offer(r, 1)
	served(t, q, 1)
	if one.Count() != 0 || two.Count() != 1 {
		t.Error("called on the wrong descriptor")
	}
}

// A call descriptor may be a pipe or a stream socket (UML); a call must arrive on
// it as bytes, and an end that is gone must do no harm.
func TestCallOnAPipe(t *testing.T) {
	for name, open := range map[string]func() (p [2]int, err error){
		"pipe":   func() (p [2]int, err error) { err = unix.Pipe2(p[:], unix.O_CLOEXEC); return },
		"socket": func() ([2]int, error) { return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := open()
			if err != nil {
				t.Fatal(err)
			}
			r := ringOfOne(t, 8, 0)
			q := deviceOn(t, r, func(c *vring.Config) { c.CallFD = p[1] })
			offer(r, 1)
			served(t, q, 1)
			var b [64]byte
			if n, err := unix.Read(p[0], b[:]); n != 8 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
			for range 40000 { // nobody reads: full, and still no wait
				offer(r, 1)
				served(t, q, 1)
			}
			unix.Close(p[0])
			offer(r, 1)
			served(t, q, 1)
			if r.UsedIdx() != 40002 {
				t.Errorf("used.idx is %d", r.UsedIdx())
			}
			q.SetCall(-1)
			unix.Close(p[1])
		})
	}
}

func TestArmKickFlags(t *testing.T) {
	r := ringOfOne(t, 8, 0)
	q := deviceOn(t, r, nil)
	q.DisarmKick()
	if r.UsedFlags() != 1 {
		t.Errorf("used.flags is %d, want NO_NOTIFY", r.UsedFlags())
	}
	offer(r, 1)
	served(t, q, 1)
	if r.UsedFlags() != 1 || r.UsedIdx() != 1 {
		t.Errorf("publishing changed the flags to %d, the index to %d", r.UsedFlags(), r.UsedIdx())
	}
	if q.ArmKick() || r.UsedFlags() != 0 || r.UsedIdx() != 1 {
		t.Errorf("used.flags is %d, idx %d after arming", r.UsedFlags(), r.UsedIdx())
	}
	offer(r, 1)
	if !q.ArmKick() {
		t.Error("the chain that came meanwhile is not reported")
	}
}

func TestArmKickEventIdx(t *testing.T) {
	r := ringOfOne(t, 8, 65530)
	q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx, c.Base = true, 65530 })
	q.DisarmKick()
	if r.UsedFlags() != 0 {
		t.Error("with EVENT_IDX used.flags must stay 0")
	}
	for i := range 20 {
		at := uint16(65530 + i)
		if q.ArmKick() || r.AvailEvent() != at {
			t.Fatalf("avail_event is %d, want %d", r.AvailEvent(), at)
		}
		if q.ArmKickBeyond(3) || r.AvailEvent() != at+3 {
			t.Fatalf("avail_event is %d, want %d", r.AvailEvent(), at+3)
		}
		if q.ArmKickBeyond(100) || r.AvailEvent() != at+7 {
			t.Fatalf("avail_event is %d; more than the ring holds never comes", r.AvailEvent())
		}
		offer(r, 1)
		served(t, q, 1)
	}
	if n := q.Stats().KicksWanted; n != 60 {
		t.Errorf("%d kicks wanted, want 60", n)
	}
}

// A backend that starts on a used ring left behind by another one must not stay
// without kicks, and goes on with its index.
func TestStartOnUsedRing(t *testing.T) {
	r := ringOfOne(t, 8, 0)
	first := deviceOn(t, r, nil)
	offer(r, 2)
	served(t, first, 2)
	first.DisarmKick()
	second := deviceOn(t, r, func(c *vring.Config) { c.Base = first.LastAvail() })
	second.ArmKick()
	if r.UsedFlags() != 0 || r.UsedIdx() != 2 {
		t.Errorf("flags %d, idx %d", r.UsedFlags(), r.UsedIdx())
	}
	offer(r, 1)
	served(t, second, 1)
	if r.UsedIdx() != 3 {
		t.Errorf("used.idx is %d, want 3", r.UsedIdx())
	}
}

// TestRevokeKick: a kick that was asked for is not asked for any more, and may be
// again.
func TestRevokeKick(t *testing.T) {
	for _, eventIdx := range []bool{true, false} {
		m := vringtest.NewMemory(t, 1<<20)
		r := m.NewRing(8)
		d := r.NewDriver(vringtest.Features{EventIdx: eventIdx}, 0)
		q := deviceOn(t, r, func(c *vring.Config) { c.EventIdx = eventIdx })
		send := func() uint64 {
			d.Send(make([]byte, 12), make([]byte, 60))
			return d.Kick.Count()
		}
		q.ArmKick()
		if send() != 1 {
			t.Errorf("EVENT_IDX %v: no kick when armed", eventIdx)
		}
		served(t, q, 1)
		q.ArmKick()
		q.RevokeKick()
		if send() != 0 {
			t.Errorf("EVENT_IDX %v: a kick that was revoked", eventIdx)
		}
		served(t, q, 1)
		q.RevokeKick()
		if q.ArmKick() {
			t.Errorf("EVENT_IDX %v: an empty ring has more", eventIdx)
		}
		if send() != 1 {
			t.Errorf("EVENT_IDX %v: no kick when armed again", eventIdx)
		}
	}
}
