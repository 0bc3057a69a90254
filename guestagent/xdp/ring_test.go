package xdp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// kernel is the other side of a fake ring: the test writes and reads the bytes
// where linux/if_xdp.h says that the kernel does.
type kernel struct {
	mem []byte
	o   unix.XDPRingOffset
}

const fakeEntries = 8

func fake[T entry](t *testing.T, wire int) (ring[T], kernel) {
	t.Helper()
	k := kernel{mem: alignedBytes(512 + fakeEntries*wire), o: unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 256}}
	r, err := newRing[T](k.mem, k.o, fakeEntries)
	if err != nil {
		t.Fatal(err)
	}
	return r, k
}

// alignedBytes is memory at a multiple of 8, as a mapping's is.
func alignedBytes(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	return mem // of a test: goes with the process
}

func (k kernel) u32(at uint64) uint32      { return binary.NativeEndian.Uint32(k.mem[at:]) }
func (k kernel) set(at uint64, v uint32)   { binary.NativeEndian.PutUint32(k.mem[at:], v) }
func (k kernel) u64(at uint64) uint64      { return binary.NativeEndian.Uint64(k.mem[at:]) }
func (k kernel) set64(at uint64, v uint64) { binary.NativeEndian.PutUint64(k.mem[at:], v) }

func TestProducer(t *testing.T) {
	r, k := fake[uint64](t, 8)
	for _, start := range []uint32{0, 5, 1<<32 - 3} { // indices run freely, also over 2^32
		k.set(k.o.Producer, start)
		k.set(k.o.Consumer, start)
		r.ours, r.theirs = start, start
		if n := r.room(fakeEntries + 1); n != fakeEntries {
			t.Fatalf("from %d: room %d in an empty ring", start, n)
		}
		for i := range fakeEntries {
			r.put(i, 1000+uint64(i))
		}
		if k.u32(k.o.Producer) != start {
			t.Fatal("visible before submit")
		}
		r.submit(fakeEntries)
		if got := k.u32(k.o.Producer); got != start+fakeEntries {
			t.Fatalf("producer %d, want %d", got, start+fakeEntries)
		}
		for i := range uint32(fakeEntries) {
			at := k.o.Desc + uint64((start+i)%fakeEntries)*8
			if got := k.u64(at); got != 1000+uint64(i) {
				t.Errorf("entry %d is %d", i, got)
			}
		}
		if n := r.room(1); n != 0 {
			t.Fatalf("room %d in a full ring", n)
		}
		k.set(k.o.Consumer, start+3)
		if n := r.room(1); n != 3 {
			t.Fatalf("room %d after 3 were taken", n)
		}
	}
}

func TestConsumer(t *testing.T) {
	r, k := fake[unix.XDPDesc](t, 16)
	for _, start := range []uint32{0, 7, 1<<32 - 2} {
		k.set(k.o.Producer, start)
		r.ours, r.theirs = start, start
		if n := r.ready(); n != 0 {
			t.Fatalf("%d ready in an empty ring", n)
		}
		for i := range uint32(5) {
			at := k.o.Desc + uint64((start+i)%fakeEntries)*16
			k.set64(at, uint64(i)*2048+256)
			k.set(at+8, 60+i)
		}
		k.set(k.o.Producer, start+5)
		if n := r.ready(); n != 5 {
			t.Fatalf("%d ready of 5", n)
		}
		for i := range 5 {
			if d := r.at(i); d.Addr != uint64(i)*2048+256 || d.Len != 60+uint32(i) {
				t.Errorf("entry %d: %+v", i, d)
			}
		}
		r.release(5)
		if got := k.u32(k.o.Consumer); got != start+5 {
			t.Errorf("consumer %d", got)
		}
	}
	k.set(k.o.Producer, r.ours+1000)
	if n := r.ready(); n != fakeEntries {
		t.Errorf("%d ready in a ring of %d", n, fakeEntries)
	}
	if r.needsWakeup() {
		t.Error("wake-up wanted by nobody")
	}
	k.set(k.o.Flags, 1) // XDP_RING_NEED_WAKEUP
	if !r.needsWakeup() {
		t.Error("wake-up not seen")
	}
}

func TestRingOutsideMapping(t *testing.T) {
	mem := alignedBytes(4096)
	good := unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 256}
	for name, tc := range map[string]struct {
		size int
		o    func(*unix.XDPRingOffset)
	}{
		"no power of two":    {12, func(*unix.XDPRingOffset) {}},
		"no entries":         {0, func(*unix.XDPRingOffset) {}},
		"entries beyond":     {512, func(*unix.XDPRingOffset) {}},
		"descriptors beyond": {8, func(o *unix.XDPRingOffset) { o.Desc = 4096 - 8 }},
		"producer beyond":    {8, func(o *unix.XDPRingOffset) { o.Producer = 4096 }},
		"consumer far":       {8, func(o *unix.XDPRingOffset) { o.Consumer = 1<<64 - 4 }},
		"flags misaligned":   {8, func(o *unix.XDPRingOffset) { o.Flags = 129 }},
	} {
		o := good
		tc.o(&o)
		if _, err := newRing[uint64](mem, o, tc.size); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := newRing[uint64](mem, good, 8); err != nil {
		t.Error(err)
	}
}
