package fault

import (
	"math/rand/v2"
	"slices"

	"guestwire/vnet/link"
)

// MaxKept is how many frames from the guest are kept while it is stalled; what
// comes after is lost.
const MaxKept = 4096

// Rates are probabilities, 0 to 1, per frame.
type Rates struct {
	Loss, Corrupt, Dup, Reorder float64
	Held                        int // frames that overtake one that is held back; 0: 3
}

// Config describes a Link.
type Config struct {
	Seed             uint64
	ToGuest, ToHost  Rates
	CorruptHeaders   bool // let the flipped bit hit the Ethernet header, too
	CorruptTransport bool // only behind the first 34 bytes, so that IPv4 survives
}

// Counts say what happened to the frames of one direction.
type Counts struct{ Passed, Lost, Corrupted, Duplicated, Reordered int }

// Link is a bad link in front of a handler.
type Link struct {
	c  Config
	h  link.Handler
	ep link.Endpoint

	toGuest, toHost way

	slots   []link.Slot // of the open reservation, in private memory
	payload int
	stalled bool // towards the guest
	owed    bool // Writable, when the stall ends
	kept    []frame
	keep    bool // stalled from the guest
}

// frame is a private copy.
type frame struct {
	data   []byte
	header int // length of the part that goes into Slot.Header
	off    link.Offload
}

// way is one direction.
type way struct {
	rates  Rates
	rng    *rand.Rand
	held   []held
	counts Counts
}

type held struct {
	f    frame
	left int // frames still to overtake it
}

var (
	_ link.Handler  = (*Link)(nil)
	_ link.Endpoint = (*Link)(nil)
)

// New makes a Link in front of h. The device is given the Link instead of h.
func New(c Config, h link.Handler) *Link {
	l := &Link{c: c, h: h}
	// Separate streams: what one direction carries must not change the other.
	l.toGuest = way{rates: c.ToGuest, rng: rand.New(rand.NewPCG(c.Seed, 1))}
	l.toHost = way{rates: c.ToHost, rng: rand.New(rand.NewPCG(c.Seed, 2))}
	return l
}

// Counts returns what happened so far, towards the guest and from it.
func (l *Link) Counts() (toGuest, toHost Counts) { return l.toGuest.counts, l.toHost.counts }

// LinkUp implements link.Handler.
func (l *Link) LinkUp(ep link.Endpoint, fresh bool) {
	l.ep = ep
	l.h.LinkUp(l, fresh)
}

// LinkDown implements link.Handler.
func (l *Link) LinkDown() { l.h.LinkDown() }

// GuestGone implements link.Handler.
func (l *Link) GuestGone() { l.h.GuestGone() }

// Writable implements link.Handler.
func (l *Link) Writable() {
	if l.stalled {
		l.owed = true
		return
	}
	l.h.Writable()
}

// Frames implements link.Handler.
func (l *Link) Frames(batch []link.Frame) {
	var in []frame
	for i := range batch {
		in = append(in, frame{slices.Concat(batch[i].Segs...), 0, batch[i].Off})
	}
	if l.keep {
		n := min(len(in), MaxKept-len(l.kept))
		l.kept = append(l.kept, in[:n]...)
		l.toHost.counts.Lost += len(in) - n
		return
	}
	l.deliver(l.toHost.pass(l, in))
}

// deliver gives frames to the handler.
func (l *Link) deliver(frames []frame) {
	if len(frames) == 0 {
		return
	}
	batch := make([]link.Frame, len(frames))
	for i, f := range frames {
		batch[i] = link.Frame{Off: f.off, Len: len(f.data), Segs: [][]byte{f.data}}
	}
	l.h.Frames(batch)
}

// Caps implements link.Endpoint.
func (l *Link) Caps() link.Caps { return l.ep.Caps() }

// Reserve implements link.Endpoint. The guest's room is only looked at: the
// handler fills private memory, since what it fills may never arrive.
func (l *Link) Reserve(header, payload, n int) []link.Slot {
	if l.stalled {
		l.owed = true
		return nil
	}
	room := len(l.ep.Reserve(header, payload, n))
	if room == 0 {
		return nil
	}
	l.ep.Commit(0)
	l.payload = payload
	l.slots = make([]link.Slot, room)
	for i := range l.slots {
		l.slots[i] = link.Slot{Header: make([]byte, header)}
		if payload > 0 {
			l.slots[i].Payload = [][]byte{make([]byte, payload)}
		}
	}
	return l.slots
}

// Commit implements link.Endpoint.
func (l *Link) Commit(k int) {
	var in []frame
	for _, s := range l.slots[:k] {
		data := slices.Clone(s.Header)
		if s.Used > 0 {
			data = append(data, s.Payload[0][:s.Used]...)
		}
		in = append(in, frame{data, len(s.Header), s.Off})
	}
	l.slots = nil
	l.send(l.toGuest.pass(l, in))
}

// send gives frames to the device. Room was there for one of each; duplicates
// may find none and are lost then.
func (l *Link) send(frames []frame) {
	for _, f := range frames {
		if !link.Send(l.ep, f.data[:f.header], f.data[f.header:], f.off) {
			l.toGuest.counts.Lost++
		}
	}
}

// StallToGuest stops or lets go what goes to the guest.
func (l *Link) StallToGuest(on bool) {
	l.stalled = on
	if !on && l.owed {
		l.owed = false
		l.h.Writable()
	}
}

// StallToHost stops or lets go what comes from the guest.
func (l *Link) StallToHost(on bool) {
	l.keep = on
	if !on {
		in := l.kept
		l.kept = nil
		l.deliver(l.toHost.pass(l, in))
	}
}

// Release delivers what is held back for reordering, for the end of a test or
// when nothing else moves.
func (l *Link) Release() {
	l.deliver(l.toHost.release())
	if l.ep != nil && !l.stalled {
		l.send(l.toGuest.release())
	}
}

// pass draws the fate of each frame.
func (w *way) pass(l *Link, in []frame) (out []frame) {
	for _, f := range in {
		if w.draw(w.rates.Loss) {
			w.counts.Lost++
			continue
		}
		if w.draw(w.rates.Corrupt) {
			w.flip(l, f.data)
		}
		if w.draw(w.rates.Dup) {
			w.counts.Duplicated++
			out = append(out, f)
		}
		if w.draw(w.rates.Reorder) {
			w.counts.Reordered++
			n := w.rates.Held
			if n == 0 {
				n = 3
			}
			w.held = append(w.held, held{f, n})
			continue
		}
		w.counts.Passed++
		out = append(out, f)
		out = append(out, w.overtaken()...)
	}
	return out
}

// overtaken counts one frame past those held back and returns the due ones.
func (w *way) overtaken() (due []frame) {
	rest := w.held[:0]
	for _, x := range w.held {
		if x.left--; x.left > 0 {
			rest = append(rest, x)
		} else {
			due = append(due, x.f)
		}
	}
	w.held = rest
	return due
}

func (w *way) release() (out []frame) {
	for _, x := range w.held {
		out = append(out, x.f)
	}
	w.held = nil
	return out
}

func (w *way) draw(p float64) bool { return p > 0 && w.rng.Float64() < p }

// flip inverts one bit.
func (w *way) flip(l *Link, b []byte) {
	from := 14
	switch {
	case l.c.CorruptTransport:
		from = 34
	case l.c.CorruptHeaders:
		from = 0
	}
	if from < len(b) {
		bit := w.rng.IntN(8 * (len(b) - from))
		b[from+bit/8] ^= 1 << (bit % 8)
		w.counts.Corrupted++
	}
}
