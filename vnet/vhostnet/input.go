package vhostnet

import (
	"encoding/binary"

	"guestwire/vnet/link"
	"guestwire/vnet/tap"
	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostkern"
)

const (
	inBatch = 64
	// A batch ends at so many bytes: the kernel needs buffers for the next frames
	// while we work on these.
	batchBytes = 256 << 10

	// What one turn may take before others have theirs.
	turnFrames = 256
	turnBytes  = 2 << 20

	numBuffersAt = 10 // in the header: over how many buffers the frame is spread
)

// input is the ring of frames from the namespace.
type input struct {
	q      *vring.DriverQueue // nil: detached
	frames [inBatch]link.Frame

	// The buffers of the batch, in the order they came, and which they are.
	taken   int
	segs    [inRing][]byte
	cookies [inRing]uint32

	torn bool // the kernel has returned a frame in part
	seg  [1]vring.DriverSeg
}

func (e *Endpoint) layIn() (err error) {
	in := &e.in
	in.torn, in.taken = false, inRing // as if all had just been read
	for i := range in.cookies {
		in.cookies[i] = uint32(i)
	}
	in.q, err = e.layRing(inRingAt, inRing, vhostkern.RX, fromKick)
	return err
}

// readable hands on what the kernel has put into the ring, within the budget of a
// turn. When there is nothing more it asks for a call.
func (e *Endpoint) readable() {
	for frames, bytes := turnFrames, turnBytes; ; {
		n, size := e.take()
		if n > 0 {
			e.stats.Batches++
			e.loop.Worked(eventloop.FromGuest, size)
			e.h.Frames(e.in.frames[:n])
		}
		if e.in.q == nil || e.broken() { // the handler may close us
			return
		}
		empty := e.in.taken == 0
		e.post()
		e.flush() // the answers: a sender may wait for them, and we are not at the end yet
		if empty && !e.in.q.ArmCall() {
			return
		}
		if frames, bytes = frames-n, bytes-size; frames <= 0 || bytes <= 0 {
			e.loop.Again(e.events[fromCall].token)
			return
		}
	}
}

// take takes one batch off the ring: n frames of size bytes. Frames that cannot be
// are among the buffers, but not among the frames.
func (e *Endpoint) take() (n, size int) {
	in := &e.in
	for n < inBatch && size < batchBytes {
		first := in.taken
		length := e.next()
		if length < 0 {
			break
		}
		head := in.segs[first]
		if len(head) < tap.HdrLen {
			e.stats.Header++
			continue
		}
		// All buffers of a frame are returned together (virtio 1.3, 5.1.6.4.1).
		for k := binary.LittleEndian.Uint16(head[numBuffersAt:]); k > 1; k-- {
			more := e.next()
			if more < 0 {
				in.torn = true
				return n, size
			}
			length += more
		}
		f := &in.frames[n]
		f.Len = length - tap.HdrLen
		if f.Len < ethHdrLen || f.Len > link.MaxFrame || !tap.Decode(&f.Off, head, f.Len) {
			e.stats.Header++
			continue
		}
		in.segs[first] = head[tap.HdrLen:]
		f.Segs = in.segs[first:in.taken:in.taken]
		e.stats.TxFrames++
		e.stats.TxBytes += uint64(f.Len)
		size += f.Len
		n++
	}
	return n, size
}

// next takes the next buffer that the kernel has returned, and tells how many bytes
// it has written there, -1 when there is none.
func (e *Endpoint) next() int {
	in := &e.in
	cookie, n, ok := in.q.Used()
	if !ok {
		return -1
	}
	at := inAt + int(cookie)*inBuf
	in.segs[in.taken], in.cookies[in.taken] = e.arena.Mem[at:at+int(n)], cookie
	in.taken++
	return int(n)
}

// post gives the buffers of the batch to the kernel again.
func (e *Endpoint) post() {
	in := &e.in
	for _, cookie := range in.cookies[:in.taken] {
		in.seg[0] = vring.DriverSeg{GPA: e.arena.Addr + inAt + uint64(cookie)*inBuf, Len: inBuf, Write: true}
		in.q.Add(in.seg[:], cookie)
	}
	in.taken = 0
	in.q.Publish()
}
