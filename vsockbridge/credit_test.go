package vsockbridge

import (
	"math/rand/v2"
	"testing"
)

// TestCreditToGuest: what the guest's counters allow, also around 2^32.
func TestCreditToGuest(t *testing.T) {
	for _, start := range []uint32{0, 1<<32 - 700} {
		c := credit{sent: start, peerFwd: start, mark: start}
		check := func(what string, ok, want bool, free uint32) {
			t.Helper()
			if ok != want || c.free() != free {
				t.Errorf("from %d, %s: %v, %d free, want %v, %d", start, what, ok, c.free(), want, free)
			}
		}
		check("first", c.update(1000, start), true, 1000)
		c.send(1000)
		check("full", true, true, 0)
		check("read", c.update(1000, start+400), true, 400)
		check("late", c.update(5000, start+300), true, 400)
		check("shrunk below what is under way (V7)", c.update(500, start+400), true, 0)
		check("grown again", c.update(2000, start+400), true, 1400)
		check("more read than sent (V7)", c.update(2000, start+1001), false, 1400)
		check("without bounds (V7)", c.update(1<<32-1, start+1000), true, maxPeerAlloc)
		check("withdrawn", c.update(0, start+1000), true, 0)
	}
}

// TestCreditPackets: a Linux guest of 2026 resets when so many packets are
// unread as its buffer has room for skbs; the bound may be up to two windows too
// careful, never too lax.
func TestCreditPackets(t *testing.T) {
	const alloc = 256 << 10
	var c credit
	c.update(alloc, 0)
	if n := c.packets(); n != 455 {
		t.Fatalf("%d packets for 256 KiB, want 455", n)
	}
	var unread []uint32
	rnd := rand.New(rand.NewPCG(1, 2))
	blocked := 0
	for range 200_000 {
		if n := uint32(1 + rnd.IntN(200)); c.packets() > 0 && c.free() >= n {
			c.send(n)
			unread = append(unread, n)
		} else {
			blocked++
		}
		if len(unread) > 455 {
			t.Fatalf("%d packets are unread", len(unread))
		}
		if k := rnd.IntN(len(unread) + 1); rnd.IntN(300) == 0 {
			fwd := c.peerFwd
			for _, n := range unread[:k] {
				fwd += n
			}
			unread = unread[k:]
			if !c.update(alloc, fwd) {
				t.Fatal("refused")
			}
		}
	}
	if c.update(alloc, c.sent); c.packets() != 455 {
		t.Errorf("%d packets when all is read", c.packets())
	}
	if blocked == 0 {
		t.Error("never blocked: the test is of nothing")
	}
}

// TestCreditFromGuest: a guest is held to what it was given, and told of room in
// quarters of the window that it really uses.
func TestCreditFromGuest(t *testing.T) {
	c := credit{alloc: 1 << 20, received: 1<<32 - 5, forwarded: 1<<32 - 5, told: 1<<32 - 5}
	c.update(256<<10, 0)
	if !c.accept(1<<20) || c.accept(1) {
		t.Fatal("the bound is not the bound (V6)")
	}
	if c.forward(64<<10 - 1); c.due() {
		t.Error("told too early")
	}
	if c.forward(1); !c.due() {
		t.Error("not told at a quarter of 256 KiB")
	}
	if alloc, fwd := c.advertise(); alloc != 1<<20 || fwd != 64<<10-5 || c.due() {
		t.Errorf("told %d, %d", alloc, fwd)
	}
	if !c.accept(64<<10) || c.accept(1) || c.held() != 1<<20 {
		t.Error("what was given back is not there")
	}
}
