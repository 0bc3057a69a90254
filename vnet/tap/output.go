package tap

import (
	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

const (
	outSize  = 512 << 10
	outSlots = 256 // the most slots that one reservation has
)

// output is the arena of the slots. Slot i lies at i*stride: the device's header,
// then the frame.
type output struct {
	buf             []byte
	slots           [outSlots]link.Slot
	segs            [outSlots][1][]byte
	lens            [outSlots]int // of committed slots, with the device's header
	open            int           // slots of the reservation
	header, payload int
	stride          int

	from, to int  // committed slots that the interface has not taken yet
	short    bool // a reservation came back short: Writable is owed
}

// Reserve implements link.Endpoint.
func (e *Endpoint) Reserve(header, payload, n int) []link.Slot {
	o := &e.out
	if !e.up || header < 0 || header > link.MaxHeader || payload < 0 || header+payload > link.MaxFrame {
		return nil
	}
	got := 0
	if o.from == o.to {
		o.header, o.payload = header, payload
		o.stride = HdrLen + header + payload
		got = min(n, outSlots, len(o.buf)/o.stride)
	}
	if got < n {
		e.stats.RxShort++
		o.short = true
		if got > 0 {
			e.loop.Again(e.token) // nothing but the end of the turn holds it up
		}
	}
	for i := range got {
		at := i*o.stride + HdrLen
		body, end := at+header, at+header+payload
		s := &o.slots[i]
		s.Header = o.buf[at:body:body]
		s.Used, s.Off, s.Payload = 0, link.Offload{}, nil
		if payload > 0 {
			o.segs[i][0] = o.buf[body:end:end]
			s.Payload = o.segs[i][:]
		}
	}
	o.open = got
	return o.slots[:got]
}

// Commit implements link.Endpoint.
func (e *Endpoint) Commit(k int) {
	o := &e.out
	o.from, o.to = 0, min(k, o.open)
	o.open = 0
	for i := range o.to {
		s := &o.slots[i]
		o.lens[i] = 0
		if s.Used < 0 || s.Used > o.payload || !Encode(o.buf[i*o.stride:], &s.Off, o.header, o.header+s.Used) {
			e.stats.RxOffload++
			continue
		}
		o.lens[i] = HdrLen + o.header + s.Used
	}
	e.write()
}

// write writes what is committed. What the interface does not take stays, and the
// loop watches for room.
func (e *Endpoint) write() {
	o := &e.out
	for ; o.from < o.to; o.from++ {
		n := o.lens[o.from]
		if n == 0 {
			continue
		}
		at := o.from * o.stride
		switch errno := write(e.fd, o.buf[at:at+n]); errno {
		case 0:
			e.stats.RxFrames++
			e.stats.RxBytes += uint64(n - HdrLen)
			e.loop.Worked(eventloop.ToGuest, n)
		case unix.EAGAIN, unix.EINTR:
			e.stats.Blocked++
			_ = e.loop.Modify(e.token, eventloop.In|eventloop.Out)
			return
		case unix.EIO:
			e.stats.RxDown++
		case unix.ENOMEM, unix.ENOBUFS:
			e.stats.RxNoMemory++
		case unix.EBADFD:
			// The handler may be in the middle of its work: tell it in a turn of
			// our own.
			e.lost = errno
			e.loop.Again(e.token)
			o.from, o.to = 0, 0
			return
		default:
			e.stats.RxRefused++
		}
	}
}

// drained goes on where the interface was full, and tells the handler that there
// is room again, when it waits for it.
func (e *Endpoint) drained() {
	o := &e.out
	if o.from < o.to {
		if e.write(); o.from < o.to {
			return
		}
		_ = e.loop.Modify(e.token, eventloop.In)
	}
	if o.short && e.lost == 0 {
		o.short = false
		e.h.Writable()
	}
}
