package linktest

import (
	"fmt"
	"testing"

	"guestwire/vnet/link"
)

// Unlimited as Endpoint.Room takes every frame.
const Unlimited = -1

const poison = 0xdb

// Frame is one frame as it crossed the seam, flattened.
type Frame struct {
	Data []byte // the whole frame, Ethernet header first
	Off  link.Offload
}

// Endpoint is a guest made of memory. Change the exported fields between calls.
type Endpoint struct {
	Capabilities link.Caps // what Caps returns
	Room         int       // frames the guest still has buffers for; Unlimited for no end
	SegLen       int       // payload is handed out in segments of this length; 0: one segment
	Discard      bool      // only count frames; allocation free once warm
	OnFrame      func(Frame)

	Sent    []Frame // committed frames, oldest first, unless Discard
	Count   int     // committed frames
	Bytes   int     // their lengths
	Commits int     // calls of Commit
	Short   bool    // a Reserve came back short: Writable is owed to the handler

	tb      testing.TB
	stats   link.Stats
	slots   []link.Slot
	mem     [][]byte // per slot: header and payload in one allocation
	payload int      // reserved payload bytes per slot
	open    int      // slots of the open reservation
}

// NewEndpoint returns an Endpoint with caps and unlimited room. A breach of the
// contract fails tb, or panics when tb is nil.
func NewEndpoint(tb testing.TB, caps link.Caps) *Endpoint {
	e := &Endpoint{Capabilities: caps, Room: Unlimited, tb: tb}
	if e.Capabilities.MTU == 0 {
		e.Capabilities.MTU = 1500
	}
	if e.Capabilities.Stats == nil {
		e.Capabilities.Stats = &e.stats
	}
	return e
}

// AllCaps are the Caps of a guest that negotiated every offload.
func AllCaps(mtu int) link.Caps {
	return link.Caps{MTU: mtu, Csum: true, TSO4: true, TSO6: true, USO: true}
}

// Caps implements link.Endpoint.
func (e *Endpoint) Caps() link.Caps { return e.Capabilities }

// Post gives the guest n more frames of room and reports whether the handler
// is now owed Writable. The caller then calls Handler.Writable.
func (e *Endpoint) Post(n int) (owed bool) {
	if e.Room != Unlimited {
		e.Room += n
	}
	owed = e.Short && n > 0
	e.Short = e.Short && !owed
	return owed
}

// Reset forgets what was recorded; room and caps stay.
func (e *Endpoint) Reset() {
	e.Sent, e.Count, e.Bytes, e.Commits = e.Sent[:0], 0, 0, 0
}

// Take returns the recorded frames and forgets them.
func (e *Endpoint) Take() []Frame {
	f := e.Sent
	e.Sent = nil
	return f
}

// Reserve implements link.Endpoint.
func (e *Endpoint) Reserve(header, payload, n int) []link.Slot {
	switch {
	case e.open > 0:
		e.fatal("Reserve while a reservation is open")
	case header < 0 || header > link.MaxHeader:
		e.fatal("Reserve: header of %d bytes", header)
	case payload < 0 || header+payload > link.MaxFrame:
		e.fatal("Reserve: frame of %d+%d bytes", header, payload)
	case n < 1:
		e.fatal("Reserve of %d slots", n)
	}
	if e.Room != Unlimited && n > e.Room {
		n, e.Short = e.Room, true
	}
	if n == 0 {
		return nil
	}
	for len(e.slots) < n {
		e.slots = append(e.slots, link.Slot{})
		e.mem = append(e.mem, nil)
	}
	for i := range n {
		e.slot(i, header, payload)
	}
	e.open, e.payload = n, payload
	return e.slots[:n]
}

// slot lays out slot i in its own memory.
func (e *Endpoint) slot(i, header, payload int) {
	if cap(e.mem[i]) < header+payload {
		e.mem[i] = make([]byte, header+payload)
	}
	mem := e.mem[i][:header+payload]
	s := &e.slots[i]
	s.Used, s.Off = 0, link.Offload{}
	s.Header = mem[:header:header]
	s.Payload = s.Payload[:0]
	for rest := mem[header:]; len(rest) > 0; {
		k := len(rest)
		if e.SegLen > 0 {
			k = min(k, e.SegLen)
		}
		s.Payload = append(s.Payload, rest[:k:k])
		rest = rest[k:]
	}
}

// Commit implements link.Endpoint.
func (e *Endpoint) Commit(k int) {
	switch {
	case e.open == 0:
		e.fatal("Commit without a reservation")
	case k < 0 || k > e.open:
		e.fatal("Commit of %d slots", k)
	}
	slots := e.slots[:e.open]
	e.open = 0
	e.Commits++
	for i := range k {
		e.commit(&e.slots[i], e.mem[i])
	}
	if e.Room != Unlimited {
		e.Room -= k
	}
	if e.Discard {
		return
	}
	for i := range slots {
		fill(e.mem[i][:len(slots[i].Header)+e.payload])
	}
}

func (e *Endpoint) commit(s *link.Slot, mem []byte) {
	if s.Used < 0 || s.Used > e.payload {
		e.fatal("slot: Used %d of %d reserved", s.Used, e.payload)
	}
	n := len(s.Header) + s.Used
	if problem := e.breach(s, n); problem != "" {
		e.fatal("frame of %d bytes, %+v: %s", n, s.Off, problem)
	}
	e.Count++
	e.Bytes += n
	e.Capabilities.Stats.RxFrames++
	e.Capabilities.Stats.RxBytes += uint64(n)
	if e.Discard && e.OnFrame == nil {
		return
	}
	f := Frame{Data: append([]byte(nil), mem[:n]...), Off: s.Off}
	if !e.Discard {
		e.Sent = append(e.Sent, f)
	}
	if e.OnFrame != nil {
		e.OnFrame(f)
	}
}

// breach says what is wrong with a frame of n bytes, "" for nothing.
func (e *Endpoint) breach(s *link.Slot, n int) string {
	c, o := &e.Capabilities, &s.Off
	switch {
	case n < 14:
		return "shorter than an Ethernet header"
	case n > link.MaxFrame:
		return "longer than link.MaxFrame"
	case o.GSO != link.GSONone && n > link.MaxGSOFrame:
		return "longer than link.MaxGSOFrame with GSO"
	case o.GSO == link.GSONone && n > c.MTU+14:
		return fmt.Sprintf("longer than the MTU of %d without GSO", c.MTU)
	case o.GSO == link.GSOTCPv4 && !c.TSO4, o.GSO == link.GSOTCPv6 && !c.TSO6,
		o.GSO == link.GSOUDP && !c.USO, o.GSO > link.GSOUDP:
		return "GSO type not in Caps"
	case o.GSO != link.GSONone && (o.SegSize == 0 || !o.NeedsCsum):
		return "GSO needs SegSize and NeedsCsum"
	case (o.NeedsCsum || o.DataValid) && !c.Csum:
		return "checksum offload not in Caps"
	case o.NeedsCsum && (o.CsumStart < 14 || int(o.CsumStart)+int(o.CsumOff)+2 > n):
		return "checksum offsets outside the frame"
	}
	return ""
}

func (e *Endpoint) fatal(format string, a ...any) {
	msg := "linktest: " + fmt.Sprintf(format, a...)
	if e.tb == nil {
		panic(msg)
	}
	e.tb.Helper()
	e.tb.Fatal(msg)
}

func fill(b []byte) {
	for i := range b {
		b[i] = poison
	}
}
