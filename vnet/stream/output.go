package stream

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

const (
	outSize  = 512 << 10
	outSlots = 256 // the most slots that one reservation has
)

// output is the bounded buffer towards the guest. Bytes [from, to) are committed
// and not yet written; an open reservation lies behind them.
type output struct {
	buf      []byte
	from, to int

	slots           [outSlots]link.Slot
	segs            [outSlots][1][]byte
	open            int // slots of the reservation
	header, payload int
	stride          int // bytes of buffer per slot

	short bool // a reservation came back short: Writable is owed
}

func (o *output) reset() {
	o.from, o.to, o.open, o.short = 0, 0, 0, false
}

func (o *output) empty() bool { return o.from == o.to }

// room makes place for as many strides as can be had, at most n, moving what
// waits to the front of the buffer only when that gains something.
func (o *output) room(stride, n int) int {
	if o.empty() {
		o.from, o.to = 0, 0
	}
	if (len(o.buf)-o.to)/stride < n && o.from >= stride {
		o.to = copy(o.buf, o.buf[o.from:o.to])
		o.from = 0
	}
	return min((len(o.buf)-o.to)/stride, n)
}

// Reserve implements link.Endpoint.
func (e *Endpoint) Reserve(header, payload, n int) []link.Slot {
	o := &e.out
	if !e.conn.up || header < 0 || header > link.MaxHeader || payload < 0 || header+payload > link.MaxFrame {
		return nil
	}
	o.header, o.payload = header, payload
	o.stride = lenSize + max(header+payload, minFrame)
	want := min(n, outSlots)
	got := o.room(o.stride, want)
	if got < want && !e.conn.wantOut && e.write() {
		got = o.room(o.stride, want)
	}
	if got < n {
		e.stats.RxShort++
		o.short = true
		if !e.conn.wantOut {
			e.loop.Again(e.conn.token) // nothing but the end of the turn holds it up
		}
	}
	for i := range got {
		at := o.to + i*o.stride + lenSize
		body := at + header
		s := &o.slots[i]
		s.Header = o.buf[at:body:body]
		s.Used, s.Off, s.Payload = 0, link.Offload{}, nil
		if payload > 0 {
			o.segs[i][0] = o.buf[body : body+payload : body+payload]
			s.Payload = o.segs[i][:]
		}
	}
	o.open = got
	return o.slots[:got]
}

// Commit implements link.Endpoint. A frame behind one that came out shorter than
// reserved is moved up to it.
func (e *Endpoint) Commit(k int) {
	o := &e.out
	from := o.to
	for i := range min(k, o.open) {
		s := &o.slots[i]
		used := min(max(s.Used, 0), o.payload)
		n := o.header + used
		src := o.buf[from+lenSize : from+lenSize+n]
		dst := o.buf[o.to+lenSize:]
		if from != o.to {
			copy(dst, src)
			e.stats.RxMoved++
		}
		size := max(n, minFrame)
		clear(dst[n:size])
		binary.BigEndian.PutUint32(o.buf[o.to:], uint32(size))
		o.to += lenSize + size
		from += o.stride
		e.stats.RxFrames++
		e.stats.RxBytes += uint64(n)
	}
	o.open = 0
}

// Flush writes what was committed. It runs at the end of every turn.
func (e *Endpoint) Flush() {
	if !e.out.empty() && !e.conn.wantOut {
		e.write()
	}
}

// drained tells the handler that there is room again, when it waits for it and
// half the buffer is free.
func (e *Endpoint) drained() {
	o := &e.out
	if o.short && e.conn.fd >= 0 && o.to-o.from <= len(o.buf)/2 {
		o.short = false
		e.h.Writable()
	}
}
