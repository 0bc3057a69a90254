package vsockbridge

const (
	// skbOverhead is what a packet without payload costs a Linux guest's receive
	// buffer (SKB_TRUESIZE(0)). Kernels of 2026 (7.1, 6.18.32, 6.12.92) reset a
	// connection when as many packets are unread as that fits buf_alloc, however
	// short they are.
	skbOverhead = 576

	// maxPeerAlloc is the most credit of a guest that is used, whatever it
	// offers: far below what would make the 32-bit counters ambiguous.
	maxPeerAlloc = 64 << 20
)

// credit is the flow control of one connection, both directions (virtio 1.3,
// 5.10.6.3). All counters are payload bytes modulo 2^32.
type credit struct {
	// Towards the guest.
	peerAlloc uint32 // buf_alloc as the guest last said, at most maxPeerAlloc
	peerFwd   uint32 // fwd_cnt as the guest last said
	sent      uint32 // tx_cnt

	// Packets that the guest may not have read: those sent up to mark, of which at
	// least one is not read, and those sent behind it.
	mark          uint32
	before, since uint32

	// From the guest.
	alloc     uint32 // our buf_alloc
	received  uint32
	forwarded uint32 // fwd_cnt: what has left us again
	told      uint32 // forwarded as the guest was last told
}

// update takes over what a packet of the guest says. It reports false for
// counters that cannot be: more read than was sent. Counters that are behind
// those of an earlier packet are ignored: a guest's threads may overtake each
// other between making a header and queueing it.
func (c *credit) update(alloc, fwd uint32) bool {
	ahead := fwd - c.peerFwd
	if int32(ahead) < 0 {
		return true
	}
	if ahead > c.sent-c.peerFwd {
		return false
	}
	c.peerAlloc, c.peerFwd = min(alloc, maxPeerAlloc), fwd
	if fwd == c.sent {
		c.mark, c.before, c.since = fwd, 0, 0
	} else if int32(fwd-c.mark) >= 0 {
		c.mark, c.before, c.since = c.sent, c.since, 0
	}
	return true
}

// free returns how many bytes the guest takes now.
func (c *credit) free() uint32 {
	if under := c.sent - c.peerFwd; under < c.peerAlloc {
		return c.peerAlloc - under
	}
	return 0
}

// packets returns how many packets the guest takes now.
func (c *credit) packets() uint32 {
	most := max(c.peerAlloc/skbOverhead, 1)
	if n := c.before + c.since; n < most {
		return most - n
	}
	return 0
}

// send counts one packet of n bytes towards the guest.
func (c *credit) send(n uint32) {
	c.sent += n
	c.since++
}

// accept counts n bytes from the guest. It reports false when they are more than
// the guest has credit for.
func (c *credit) accept(n uint32) bool {
	if under := c.received - c.forwarded; n > c.alloc-under {
		return false
	}
	c.received += n
	return true
}

// held returns how many bytes from the guest have not left us.
func (c *credit) held() uint32 { return c.received - c.forwarded }

// forward counts n bytes that have left us.
func (c *credit) forward(n uint32) { c.forwarded += n }

// due says whether the guest should be told of room by a packet of its own: when
// a quarter of its window has been given back. A Linux guest has no more under
// way than its own buffer holds, whatever we offer, so that counts.
func (c *credit) due() bool {
	window := c.alloc
	if c.peerAlloc != 0 {
		window = min(window, c.peerAlloc)
	}
	return c.forwarded-c.told >= max(window/4, 1)
}

// advertise returns what a packet towards the guest says.
func (c *credit) advertise() (alloc, fwd uint32) {
	c.told = c.forwarded
	return c.alloc, c.forwarded
}
