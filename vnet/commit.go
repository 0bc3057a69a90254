package vnet

import (
	"runtime"

	"guestwire/vnet/link"
	"guestwire/vring"
)

// Commit implements link.Endpoint.
//
// Chains are completed in ring order whether or not IN_ORDER is negotiated, and
// a driver takes every completed chain for part of a frame. So when a slot that
// is not the last leaves chains over (a merged frame that came out shorter than
// reserved), the frames behind it are moved up into them, which costs a copy.
// Who fills all slots but the last, as a TCP stream does, or reserves what one
// buffer holds, never pays it. What is left over at the end goes back to the
// ring.
func (d *Device) Commit(k int) {
	r := &d.rx
	if r.open == 0 {
		return // the ring went away under the reservation
	}
	defer d.guard()
	at := 0 // next chain to complete
	for i := range min(k, r.open) {
		at = d.deliver(i, at)
	}
	if r.popped > at && r.short {
		// The kick that was asked for comes with the next new buffer, and if all of
		// the driver's are here there is none to come.
		d.rxAgain()
	}
	r.q.Rewind(r.popped - at)
	r.popped, r.open = 0, 0
	if r.pushed >= rxEarly {
		r.publish()
	}
}

// deliver completes the frame of slot i into the chains from at on and returns
// the chain behind it.
func (d *Device) deliver(i, at int) int {
	r := &d.rx
	s, p := &r.slots[i], &r.priv[i]
	n := r.header + s.Used
	var h netHdr
	if s.Used < 0 || s.Used > r.payload || n < ethHdrLen || !r.off.encode(&h, &s.Off, r.header, n) {
		d.drops[DropRxOffload]++
		return at
	}
	if at != p.first {
		at = d.skipUnfit(at, p.first)
	}
	total := r.hdr + max(n, minFrame)
	chains := r.span(at, total)
	h.numBuf = uint16(chains)
	var raw [netHdrLen]byte
	h.put(&raw)
	if at == p.first && p.head != nil {
		copy(p.head, raw[:r.hdr])
		copy(p.head[r.hdr:], s.Header)
		if n < minFrame {
			w := writer{chains: r.chains[at:]}
			w.skip(r.hdr + n)
			w.write(zeros[:minFrame-n])
		}
	} else {
		d.move(i, at, raw[:r.hdr])
	}
	for left := uint32(total); at < p.first+p.n && chains > 0; chains-- {
		c := &r.chains[at]
		used := min(c.WriteLen, left)
		r.q.Push(c.Head, used)
		left -= used
		at++
		r.pushed++
	}
	d.link.RxFrames++
	d.link.RxBytes += uint64(n)
	return at
}

// span returns how many chains from at on hold n bytes.
func (r *rx) span(at, n int) (chains int) {
	for ; n > 0; at++ {
		n -= int(r.chains[at].WriteLen)
		chains++
	}
	return chains
}

// skipUnfit completes, empty, the chains before end in which no frame can start.
// They were gathered into the middle of one.
func (d *Device) skipUnfit(at, end int) int {
	r := &d.rx
	for at < end && int(r.chains[at].WriteLen) < r.hdr {
		d.drops[DropRxShort]++
		r.q.Push(r.chains[at].Head, 0)
		r.pushed++
		at++
	}
	return at
}

// move writes the whole frame of slot i into the chains from at on, which are
// the slot's own or lie before them. The copy runs forward and its destination
// never passes its source: both are walked in ring order, and the destination
// starts first.
func (d *Device) move(i, at int, hdr []byte) {
	r := &d.rx
	s := &r.slots[i]
	if at == r.priv[i].first {
		// In its place, but the headers lie in pieces.
		w := writer{chains: r.chains[at:]}
		w.write(hdr)
		w.write(s.Header)
		w.skip(s.Used)
		w.write(zeros[:max(minFrame-r.header-s.Used, 0)])
		return
	}
	d.counters.RxMoved++
	w := writer{chains: r.chains[at:]}
	w.write(hdr)
	w.write(s.Header)
	left := s.Used
	for _, seg := range s.Payload {
		k := min(left, len(seg))
		w.write(seg[:k])
		left -= k
	}
	w.write(zeros[:max(minFrame-r.header-s.Used, 0)])
}

// zeros pad a frame to the least that Ethernet carries; drivers and stacks
// behind bridges take shorter ones for runts.
var zeros [minFrame]byte

// writer walks the writable bytes of consecutive chains, which must suffice.
type writer struct {
	chains []vring.Chain
	seg    int // in chains[0]
	off    int // in the segment
}

func (w *writer) write(b []byte) {
	for len(b) > 0 {
		n := copy(w.room(), b)
		b = b[n:]
		w.off += n
	}
}

func (w *writer) skip(n int) {
	for n > 0 {
		k := min(n, len(w.room()))
		n -= k
		w.off += k
	}
}

// room returns what is left of the segment, or the next that has bytes.
func (w *writer) room() []byte {
	for {
		if segs := w.chains[0].Writable; w.seg < len(segs) {
			if w.off < len(segs[w.seg]) {
				return segs[w.seg][w.off:]
			}
			w.seg++
		} else {
			w.chains = w.chains[1:]
			w.seg = 0
		}
		w.off = 0
	}
}

// guard recovers a memory fault in Reserve and Commit, which run under whatever
// source the handler serves: a frontend that truncates guest memory must break
// this device, not a flow. Any other panic goes on to the loop.
func (d *Device) guard() {
	v := recover()
	if v == nil {
		return
	}
	if _, fault := v.(interface{ Addr() uintptr }); !fault {
		panic(v)
	}
	if _, ok := v.(runtime.Error); !ok {
		panic(v)
	}
	d.rx.open, d.rx.popped = 0, 0
	d.breakRings()
	d.turn.ask(d.loop) // LinkDown must not come from under the handler's feet
}

var _ link.Endpoint = (*Device)(nil)
