package vsockbridge

import (
	"guestwire/vring"
	"guestwire/vsockbridge/packet"
)

const (
	// What the receive ring may be given in one turn before the device queues
	// itself behind the other sources.
	rxChains = 512
	rxBytes  = 2 << 20

	// rxMost is how many chains one read of a host socket may fill.
	rxMost = 128

	// minWant is how many chains a read is given at least: what it does not need
	// goes back, and costs little.
	minWant = 4

	// rxEarly is how many chains are pushed before they are published within a
	// turn: the driver may start on them while more are filled.
	rxEarly = 64

	// serveBytes is how much one connection may send before it is the next one's
	// turn.
	serveBytes = 256 << 10
)

// rx is the receive ring: packets towards the guest.
type rx struct {
	q      *vring.DeviceQueue
	chains [rxMost]vring.Chain
	rooms  [rxMost]int // for payload, in the chains of a read
	pushed int         // chains since the last publish
	left   int         // of the turn's budget, chains
	bytes  int         // and payload
}

func (r *rx) start(q *vring.DeviceQueue) {
	if r.q = q; q != nil {
		q.DisarmKick() // until there is something to send and no chain
	}
}

// outcome is what came of serving a connection.
type outcome uint8

const (
	served  outcome = iota // it has nothing more for the guest, or cannot have
	again                  // it has more, behind the others
	starved                // there are no chains
)

// rxRun gives the guest what connections have for it, for at most one turn's
// budget.
func (d *Device) rxRun() {
	r := &d.rx
	r.left, r.bytes = rxChains, rxBytes
	for d.wanting() {
		if r.left <= 0 || r.bytes <= 0 || r.q.Broken() != nil {
			d.turn.ask(d.loop)
			return
		}
		r.left-- // whoever is served costs something
		if d.resets.n > 0 {
			if !d.sendReset() && !d.refilled() {
				return
			}
			continue
		}
		if d.inbox.waiting() && !d.unpack() {
			if !d.refilled() {
				return
			}
			continue
		}
		c := d.queue.pop(&d.conns)
		if c == nil {
			continue
		}
		switch d.serve(c) {
		case again:
			d.enqueue(c)
		case starved:
			d.queue.putBack(c)
			if !d.refilled() {
				return
			}
		}
	}
}

// wanting says whether there is anything for the guest.
func (d *Device) wanting() bool { return d.queue.head >= 0 || d.resets.n > 0 || d.inbox.waiting() }

// refilled is asked when the receive ring is empty. It has the driver kick when
// it posts chains, and reports true when there are some already.
func (d *Device) refilled() bool {
	q := d.rx.q
	d.counters.RxStarved++
	if q.ArmKick() {
		q.DisarmKick()
		d.publishRx() // it may be what has been pushed that keeps more from being popped
		return true
	}
	return false
}

func (d *Device) publishRx() {
	d.rx.pushed = 0
	d.rx.q.Publish()
}

// chain pops one chain that holds a header. It completes those that do not.
func (r *rx) chain(d *Device) *vring.Chain {
	c := &r.chains[0]
	for r.q.Pop(c) {
		if c.WriteLen >= packet.Size {
			return c
		}
		d.unfit(c)
	}
	return nil
}

// unfit completes a chain in which no packet has room.
func (d *Device) unfit(c *vring.Chain) {
	d.drop(DropRxShort)
	d.rx.push(c, 0)
}

func (r *rx) push(c *vring.Chain, n int) {
	r.q.Push(c.Head, uint32(n))
	r.pushed++
	r.left--
	r.bytes -= n
}

// serve gives the guest what c has for it.
func (d *Device) serve(c *conn) outcome {
	for _, o := range [...]owed{oweRequest, oweResponse, oweReset, oweCreditRequest} {
		if c.owe&o != 0 {
			if !d.say(c, o) {
				return starved
			}
			if o == oweReset {
				d.free(c)
				return served
			}
		}
	}
	out := served
	if c.readable && c.reads() {
		if out = d.pull(c); out != served {
			return out
		}
	}
	for _, o := range [...]owed{oweShutdown, oweCredit} { // data have gone before, and took the credit along
		if c.owe&o != 0 && !d.say(c, o) {
			return starved
		}
	}
	return out
}

// reads says whether the guest is to have what the host socket gives.
func (c *conn) reads() bool {
	return c.state.phase == open && c.fd >= 0 &&
		c.state.guest&packet.ShutdownReceive == 0 && c.state.host&packet.ShutdownSend == 0
}

// say sends one packet without payload. It reports false when there is no chain.
func (d *Device) say(c *conn, o owed) bool {
	chain := d.rx.chain(d)
	if chain == nil {
		return false
	}
	h := d.header(c)
	switch o {
	case oweRequest:
		h.Op = packet.Request
	case oweResponse:
		h.Op = packet.Response
	case oweReset:
		h.Op = packet.Reset
		d.counters.Resets++
	case oweShutdown:
		h.Op, h.Flags = packet.Shutdown, c.state.host
	case oweCredit:
		h.Op = packet.CreditUpdate
		d.counters.CreditUpdates++
	case oweCreditRequest:
		h.Op = packet.CreditRequest
		d.counters.CreditRequests++
	}
	c.owe &^= o
	put(chain, &h)
	d.rx.push(chain, packet.Size)
	d.counters.RxPackets++
	return true
}

// header makes the header of a packet of c towards the guest, which tells of its
// credit whatever it is for.
func (d *Device) header(c *conn) packet.Header {
	alloc, fwd := c.credit.advertise()
	c.owe &^= oweCredit
	return packet.Header{
		SrcCID: uint64(c.peer), DstCID: d.cfg.CID,
		SrcPort: c.peerPort, DstPort: c.port,
		Type: c.typ, BufAlloc: alloc, FwdCnt: fwd,
	}
}

// put writes a header to the start of a chain, which holds it.
func put(c *vring.Chain, h *packet.Header) {
	if seg := c.Writable[0]; len(seg) >= packet.Size {
		h.Put((*[packet.Size]byte)(seg))
		return
	}
	var raw [packet.Size]byte
	h.Put(&raw)
	b := raw[:]
	for _, seg := range c.Writable {
		b = b[copy(seg, b):]
	}
}
