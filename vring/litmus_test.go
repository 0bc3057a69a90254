package vring_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

// rounds runs first and second against each other on two threads, again and
// again, meeting at a barrier before each round so that they really race. Then
// settle runs alone, on the thread of second, with what first returned.
func rounds(t *testing.T, prepare func(round int), first func() bool, second func(), settle func(round int, first bool)) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("needs two processors to race")
	}
	const most = 300000
	var start, done atomic.Uint32
	var result, stop atomic.Bool
	go func() {
		rng := rand.New(rand.NewPCG(3, 3))
		for round := uint32(1); round <= most; round++ {
			for start.Load() != round {
				if stop.Load() {
					return
				}
			}
			spin(rng.IntN(40))
			result.Store(first())
			done.Store(round)
		}
	}()
	defer stop.Store(true)
	rng := rand.New(rand.NewPCG(4, 4))
	n := 0
	for end := time.Now().Add(250 * time.Millisecond); n < most && (n%64 != 0 || time.Now().Before(end)); n++ {
		prepare(n)
		start.Store(uint32(n) + 1)
		spin(rng.IntN(600)) // the other sees the start about as late
		second()
		for done.Load() != uint32(n)+1 {
		}
		settle(n, result.Load())
	}
	t.Logf("%d rounds", n)
}

//go:noinline
func spin(n int) {
	for range n {
		runtime.KeepAlive(n)
	}
}

// The store-buffering litmus of the ring: one side makes something available and
// looks whether the other wants to be told, while the other says so and looks
// whether there is something. Whatever the interleaving, one of them must see
// the other; each needs a full fence between its store and its load.
func TestLitmusWakeUp(t *testing.T) {
	segs := []vring.DriverSeg{{GPA: vringtest.BaseGPA, Len: 8}}
	var c vring.Chain
	var heard bool
	verdict := func(t *testing.T, round int, told bool) {
		if !heard && !told {
			t.Fatalf("round %d: neither side saw the other; both would sleep for ever", round)
		}
	}
	t.Run("kick", func(t *testing.T) {
		p, drv := litmusPair(t)
		rounds(t,
			func(int) { drv.Add(segs, 0) },
			func() bool { n := drv.Stats().Kicks; drv.Publish(); return drv.Stats().Kicks > n },
			func() { heard = p.dev.ArmKick() },
			func(round int, told bool) {
				verdict(t, round, told)
				served(t, p.dev, 1)
				drv.Used()
			})
	})
	t.Run("call", func(t *testing.T) {
		p, drv := litmusPair(t)
		rounds(t,
			func(int) { drv.Add(segs, 0); drv.Publish(); p.dev.Pop(&c); p.dev.Push(c.Head, 0) },
			func() bool { n := p.dev.Stats().Calls; p.dev.Publish(); return p.dev.Stats().Calls > n },
			func() { heard = drv.ArmCall() },
			func(round int, told bool) {
				verdict(t, round, told)
				drv.Used()
			})
	})
}

// impatience is how often the litmus looks for an index: often enough to see it
// the moment it comes, not for ever when the other thread is not running.
const impatience = 2000

// The message-passing litmus: who sees an index sees what it stands for.
func TestLitmusContent(t *testing.T) {
	var c vring.Chain
	t.Run("avail", func(t *testing.T) {
		p, drv := litmusPair(t)
		var segs []vring.DriverSeg
		ok := false
		rounds(t,
			func(round int) {
				// One to three buffers, so that entries of the avail ring change.
				segs = make([]vring.DriverSeg, 1+round%3)
				for i := range segs {
					segs[i] = vring.DriverSeg{GPA: vringtest.BaseGPA, Len: 1 + uint32(round)%4096}
				}
			},
			func() bool { _, ok := drv.Add(segs, 0); drv.Publish(); return ok },
			func() {
				ok = false
				for tries := 0; !ok && tries < impatience; tries++ {
					ok = p.dev.Pop(&c)
				}
			},
			func(round int, _ bool) {
				want := segs[0].Len * uint32(len(segs))
				if !ok && !p.dev.Pop(&c) || c.ReadLen != want {
					t.Fatalf("round %d: popped %d bytes, want %d: %v", round, c.ReadLen, want, p.dev.Broken())
				}
				p.dev.Push(c.Head, 0)
				p.dev.Publish()
				drv.Used()
			})
	})
	t.Run("used", func(t *testing.T) {
		p, drv := litmusPair(t)
		var written uint32
		ok := false
		rounds(t,
			func(int) {
				drv.Add([]vring.DriverSeg{{GPA: vringtest.BaseGPA, Len: 4096, Write: true}}, 0)
				drv.Publish()
				p.dev.Pop(&c)
			},
			func() bool {
				p.dev.Push(c.Head, c.WriteLen-uint32(p.dev.LastAvail())%4096)
				p.dev.Publish()
				return true
			},
			func() {
				ok = false
				for tries := 0; !ok && tries < impatience; tries++ {
					_, written, ok = drv.Used()
				}
			},
			func(round int, _ bool) {
				if !ok {
					_, written, ok = drv.Used()
				}
				if want := 4096 - uint32(round)%4096; !ok || written != want {
					t.Fatalf("round %d: %d bytes came back, want %d: %v", round, written, want, drv.Broken())
				}
			})
	})
}

// litmusPair is a device and a driver with EVENT_IDX that signal each other, one
// chain behind the unconditional first call.
func litmusPair(t *testing.T) (*pair, *vring.DriverQueue) {
	p := newPair(t, 16, vringtest.Features{EventIdx: true}, 0)
	p.dev.SetCall(vringtest.NewEvent(t).FD)
	cfg := p.ring.DriverConfig()
	cfg.EventIdx, cfg.CallFD = true, vringtest.NewEvent(t).FD
	drv, err := vring.NewDriverQueue(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, drv
}
