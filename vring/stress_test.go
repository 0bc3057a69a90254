package vring_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

// TestStress runs driver and device on two threads, over two mappings of one
// memory, and lets both sleep whenever they find nothing. A lost wake-up, a
// descriptor seen before its content or a used element before its data ends it.
// The race detector is blind to mapped memory; this is the test of the ordering.
func TestStress(t *testing.T) {
	chains := 20000
	if testing.Short() {
		chains = 10000
	}
	for _, f := range []vringtest.Features{{}, {EventIdx: true}, {InOrder: true}, {EventIdx: true, Indirect: true, InOrder: true}} {
		for _, size := range []uint16{1, 8, 256} {
			t.Run(fmt.Sprintf("%d/%+v", size, f), func(t *testing.T) { stress(t, size, f, chains) })
		}
	}
}

const (
	patience = 5 * time.Second // far longer than any delay of the machine
	record   = 64              // bytes of each buffer
)

func stress(t *testing.T, size uint16, f vringtest.Features, chains int) {
	m := vringtest.NewMemory(t, 1<<20)
	r := m.NewRing(size)
	call, kick := vringtest.NewEvent(t), vringtest.NewEvent(t)
	dc := r.Config(m.Table())
	dc.EventIdx, dc.Indirect, dc.InOrder, dc.CallFD = f.EventIdx, f.Indirect, f.InOrder, call.FD
	dev, err := vring.NewDeviceQueue(dc)
	if err != nil {
		t.Fatal(err)
	}
	vc := r.DriverConfig()
	vc.EventIdx, vc.Indirect, vc.InOrder, vc.CallFD = f.EventIdx, f.Indirect, f.InOrder, kick.FD
	if f.Indirect {
		n := uint64(size) * 2 * 16
		vc.TablesGPA = m.Alloc(n, 16)
		vc.Tables = m.Bytes(vc.TablesGPA, n)
	}
	drv, err := vring.NewDriverQueue(vc)
	if err != nil {
		t.Fatal(err)
	}
	s := &stressRun{chains: chains, write: size != 1 || f.Indirect, descs: 1}
	if s.write && !f.Indirect {
		s.descs = 2
	}
	for range size {
		s.slots = append(s.slots, m.Alloc(2*record, 64))
	}
	done := make(chan string, 1)
	go func() {
		runtime.LockOSThread()
		msg := s.device(dev, kick)
		s.stop.Store(msg != "")
		done <- msg
	}()
	msg := s.driver(drv, m, call)
	s.stop.Store(msg != "" || s.stop.Load())
	if other := <-done; other != "" {
		msg = other
	}
	if msg != "" {
		t.Fatalf("%s; device %v %+v, driver %v %+v", msg, dev.Broken(), dev.Stats(), drv.Broken(), drv.Stats())
	}
	if st := dev.Stats(); st.Pushes != uint64(chains) || st.Calls+st.CallsSuppressed != st.Publishes {
		t.Errorf("stats %+v", st)
	}
}

type stressRun struct {
	chains int
	write  bool // chains have a second, writable buffer
	descs  int  // descriptors a chain takes from the ring
	slots  []uint64
	stop   atomic.Bool
}

// driver adds numbered chains and checks the answers, in order.
func (s *stressRun) driver(d *vring.DriverQueue, m *vringtest.Memory, call *vringtest.Event) string {
	rng := rand.New(rand.NewPCG(1, 1))
	slots := s.slots
	added, taken := 0, 0
	for taken < s.chains {
		for n := rng.IntN(len(s.slots)) + 1; n > 0 && added < s.chains; n-- {
			gpa := slots[added%len(slots)]
			segs := []vring.DriverSeg{{GPA: gpa, Len: record}, {GPA: gpa + record, Len: record, Write: true}}
			if !s.write {
				segs = segs[:1]
			}
			if added-taken == len(slots) || d.Free() < s.descs {
				break
			}
			fill(m.Bytes(gpa, record), uint64(added))
			if _, ok := d.Add(segs, uint32(added)); !ok {
				return "no room for a chain"
			}
			added++
		}
		d.Publish()
		for any := false; ; any = true {
			cookie, written, ok := d.Used()
			if !ok {
				if !any && d.ArmCall() {
					continue
				}
				if !any && !call.Wait(patience) {
					return fmt.Sprintf("driver: no call, %d of %d taken, %d added", taken, s.chains, added)
				}
				d.DisarmCall()
				break
			}
			if cookie != uint32(taken) {
				return fmt.Sprintf("driver: chain %d came back, want %d", cookie, taken)
			}
			if s.write {
				gpa := slots[taken%len(slots)] + record
				if written != record || !filled(m.Bytes(gpa, record), ^uint64(taken)) {
					return fmt.Sprintf("driver: chain %d came back with %d bytes or without its data", taken, written)
				}
			}
			taken++
		}
		if s.stop.Load() && taken < s.chains {
			return "driver: the device stopped"
		}
	}
	return ""
}

// device answers numbered chains, in order.
func (s *stressRun) device(q *vring.DeviceQueue, kick *vringtest.Event) string {
	rng := rand.New(rand.NewPCG(2, 2))
	cs := make([]vring.Chain, 64)
	for seen := 0; seen < s.chains; {
		n := q.PopBatch(cs[:1+rng.IntN(len(cs))])
		if n == 0 {
			if q.Broken() != nil {
				return "device: broken"
			}
			if !q.ArmKick() && !kick.Wait(patience) {
				return fmt.Sprintf("device: no kick, %d of %d seen", seen, s.chains)
			}
			q.DisarmKick()
			continue
		}
		if k := rng.IntN(8); k == 0 && n > 1 { // give some back: they come again
			q.Rewind(n / 2)
			n -= n / 2
		}
		for i := range n {
			c := &cs[i]
			if len(c.Readable) != 1 || !filled(c.Readable[0], uint64(seen)) {
				return fmt.Sprintf("device: chain %d is not complete", seen)
			}
			if s.write {
				fill(c.Writable[0], ^uint64(seen))
			}
			q.Push(c.Head, c.WriteLen)
			seen++
			if rng.IntN(4) == 0 {
				q.Publish()
			}
		}
		q.Publish()
	}
	return ""
}

// fill writes v all over b, which is shared memory: plain words of our own.
func fill(b []byte, v uint64) {
	for i := 0; i < len(b); i += 8 {
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
}

func filled(b []byte, v uint64) bool {
	for i := 0; i < len(b); i += 8 {
		for k := range 8 {
			if b[i+k] != byte(v>>(8*k)) {
				return false
			}
		}
	}
	return true
}
