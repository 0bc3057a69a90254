package pcap

import (
	"io"

	"guestwire/vnet/link"
)

const (
	// DefaultSize is how large a file grows when Config does not say.
	DefaultSize = 1 << 30

	bufSize = 256 << 10
)

// Config describes a Capture.
type Config struct {
	W    io.Writer
	Now  func() int64 // nanoseconds since 1970
	Snap int          // bytes recorded of a frame; 0: all
	Size int64        // bytes of file; 0: DefaultSize
}

// Capture records what passes between a device and h.
type Capture struct {
	c  Config
	h  link.Handler
	ep link.Endpoint

	buf   []byte
	size  int64 // of the file, buffered bytes included
	full  bool  // the file has its size, or failed
	err   error
	stats Stats

	slots []link.Slot // of the open reservation
	segs  [][]byte    // scratch
}

// Stats count frames, both directions.
type Stats struct {
	Recorded uint64
	Missed   uint64 // after the end of recording
}

var (
	_ link.Handler  = (*Capture)(nil)
	_ link.Endpoint = (*Capture)(nil)
)

// New makes a Capture in front of h. The device is given the Capture instead of
// h.
func New(c Config, h link.Handler) *Capture {
	if c.Snap <= 0 || c.Snap > link.MaxFrame {
		c.Snap = link.MaxFrame
	}
	if c.Size <= 0 {
		c.Size = DefaultSize
	}
	p := &Capture{c: c, h: h, buf: make([]byte, 0, bufSize)}
	p.buf = append(p.buf, header(c.Snap)...)
	p.size = int64(len(p.buf))
	return p
}

// Flush writes what is buffered. The owner calls it now and then, and at the end.
func (p *Capture) Flush() error {
	if len(p.buf) > 0 && p.err == nil {
		if _, p.err = p.c.W.Write(p.buf); p.err != nil {
			p.full = true
		}
	}
	p.buf = p.buf[:0]
	return p.err
}

// Stats returns the counters.
func (p *Capture) Stats() Stats { return p.stats }

// LinkUp implements link.Handler.
func (p *Capture) LinkUp(ep link.Endpoint, fresh bool) {
	p.ep = ep
	p.h.LinkUp(p, fresh)
}

// LinkDown implements link.Handler.
func (p *Capture) LinkDown() { p.h.LinkDown() }

// GuestGone implements link.Handler.
func (p *Capture) GuestGone() { p.h.GuestGone() }

// Writable implements link.Handler.
func (p *Capture) Writable() { p.h.Writable() }

// Frames implements link.Handler.
func (p *Capture) Frames(batch []link.Frame) {
	now := p.c.Now()
	for i := range batch {
		p.record(now, flagOutbound, batch[i].Segs, batch[i].Len)
	}
	p.h.Frames(batch)
}

// Caps implements link.Endpoint.
func (p *Capture) Caps() link.Caps { return p.ep.Caps() }

// Reserve implements link.Endpoint.
func (p *Capture) Reserve(header, payload, n int) []link.Slot {
	p.slots = p.ep.Reserve(header, payload, n)
	return p.slots
}

// Commit implements link.Endpoint. The frames are recorded while they are still
// the handler's.
func (p *Capture) Commit(k int) {
	now := p.c.Now()
	for i := range p.slots[:min(k, len(p.slots))] {
		s := &p.slots[i]
		p.segs = append(append(p.segs[:0], s.Header), s.Payload...)
		p.record(now, flagInbound, p.segs, len(s.Header)+s.Used)
	}
	p.slots = nil
	p.ep.Commit(k)
}

// record appends one frame of n bytes, the first of segs, to the file.
func (p *Capture) record(now int64, flags uint32, segs [][]byte, n int) {
	snap := min(n, p.c.Snap)
	size := packetLen(snap)
	if p.full || p.size+int64(size) > p.c.Size {
		p.full = true
		p.stats.Missed++
		return
	}
	if len(p.buf)+size > bufSize {
		p.Flush()
	}
	p.buf = packet(p.buf, now, flags, segs, snap, n)
	p.size += int64(size)
	p.stats.Recorded++
}
