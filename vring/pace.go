package vring

import "guestwire/vring/eventloop"

// A driver that streams, sending frame after frame without waiting for anything
// from us, would wake the device with a kick for each, and be woken for most of
// them itself: with small ones that is most of what they cost both sides. So
// while it streams the device rests between looks at the ring, with kicks off.
const (
	// PaceRest is how long the ring is left alone. What the driver adds meanwhile
	// makes one batch.
	PaceRest = eventloop.Time(100_000)

	// pacePrompt is how soon after a kick was asked for it comes from a driver that
	// streams.
	pacePrompt = eventloop.Time(100_000)

	// pacePrompts is how many prompt kicks in a row make a stream; a driver that had
	// to wait for our call is asked for up to paceMost.
	pacePrompts = 3
	paceMost    = 256

	// paceAnswered is how many rests in a row with answers end a stream.
	paceAnswered = 4
)

// Pace is what a device knows of the habits of a transmit ring's driver. An
// answer (anything towards the guest that it may wait for) since the last batch
// from it means that it may have waited for that: a transaction, or TCP with its
// acknowledgements. Resting would add to its round trip. Answers are told as a
// count that only grows. The zero value is a driver of which nothing is known.
type Pace struct {
	resting bool // the driver streams: rest instead of asking for kicks
	prompt  int  // prompt kicks in a row
	need    int  // how many make a stream

	until    eventloop.Time // end of the rest
	armed    eventloop.Time // when a kick was last asked for, 0: never
	answered uint64         // answers before the last batch
	mixed    int            // rests in a row with answers
	waited   bool           // the stream ended while calls were held back
}

// Resting says whether the device should rest at the end of its turn.
func (p *Pace) Resting() bool { return p.resting }

// Wake ends the stream, if there is one: a kick must be asked for.
func (p *Pace) Wake() { p.resting = false }

// Took notes that a batch came from the ring.
func (p *Pace) Took(answered uint64) {
	if p.mixed++; answered == p.answered {
		p.mixed = 0
	}
	p.answered = answered
}

// Kicked judges a kick.
func (p *Pace) Kicked(now eventloop.Time, answered uint64) {
	if p.resting {
		return
	}
	switch {
	case p.armed == 0 || now-p.armed >= pacePrompt || answered != p.answered:
		p.prompt, p.need = 0, max(p.need/2, pacePrompts)
	case p.waited:
		// It stopped, and went on as soon as it was called: its socket had no room
		// until then. More such rests would only slow it down.
		p.prompt, p.need = 0, min(2*p.need, paceMost)
	default:
		p.prompt++
	}
	p.waited = false
	p.resting = p.prompt >= max(p.need, pacePrompts)
	p.mixed = 0
}

// Rest is called with an empty ring of size entries, from which got chains came
// since the last rest. It returns until when to leave the ring alone; false: the
// stream is over.
func (p *Pace) Rest(now eventloop.Time, got, size int) (eventloop.Time, bool) {
	if got > 0 {
		p.until = now + PaceRest
		if got > size/8 {
			p.until = now + PaceRest/4 // the ring must not run full meanwhile
		}
	}
	p.resting = (got > 0 || now < p.until) && p.mixed < paceAnswered
	return p.until, p.resting
}

// Arm notes that a kick is being asked for, while the driver has not been called
// for so many returned chains.
func (p *Pace) Arm(now eventloop.Time, quiet int) {
	p.armed, p.waited = now, quiet > 0
}
