package vhostnet

import (
	"guestwire/vnet/link"
	"guestwire/vnet/tap"
	"guestwire/vring"
	"guestwire/vring/vhostkern"
)

// What lies in the arena: the rings, the buffers from the namespace, the slots
// towards it. Each of the three areas of a ring has a page of its own, so that what
// one side writes shares no cache line with what the other does.
const (
	page = 4096

	inRing  = 128 // entries; a page holds 256 descriptors
	outRing = 128

	// inBuf is a buffer from the namespace: two hold the largest packet of IPv4 with
	// the headers before it. (With 8 KiB, the kernel's work for each buffer shows.)
	inBuf = 32<<10 + 64
	// outSlot has room for the largest frame and its header.
	outSlot = (tap.HdrLen + link.MaxFrame + 63) &^ 63

	inRingAt  = 0
	outRingAt = inRingAt + 3*page
	inAt      = outRingAt + 3*page
	outAt     = inAt + inRing*inBuf
	arenaSize = (outAt + outRing*outSlot + page - 1) &^ (page - 1)
)

// layRing makes the driver side of a ring whose memory begins at at, from nothing.
func (e *Endpoint) layRing(at, size, index, kick int) (*vring.DriverQueue, error) {
	mem := e.arena.Mem[at : at+3*page]
	clear(mem)
	return vring.NewDriverQueue(vring.Config{
		Index: index, Size: uint16(size), EventIdx: true,
		Desc: mem[:page], Avail: mem[page : 2*page], Used: mem[2*page:],
		CallFD: e.events[kick].fd, ErrFD: -1,
	})
}

// ring is what the kernel is told of a ring.
func (e *Endpoint) ring(at, size, kick, call int) vhostkern.Ring {
	addr := e.arena.Addr + uint64(at)
	return vhostkern.Ring{
		Size: uint16(size), Desc: addr, Avail: addr + page, Used: addr + 2*page,
		Kick: e.events[kick].fd, Call: e.events[call].fd, Err: e.events[complaint].fd,
	}
}
