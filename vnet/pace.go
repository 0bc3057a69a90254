package vnet

import (
	"guestwire/vring"
	"guestwire/vring/eventloop"
)

// A driver that streams, sending frame after frame without waiting for anything
// from us, would wake us with a kick for each, and would be interrupted for
// each when its buffer comes back: with 1,400-byte datagrams that is most of
// what they cost both sides. So while it streams we rest between looks at the
// ring, with kicks off, and return buffers without a call until many have come
// together.
const (
	// txRest is how long the ring is left alone. What the driver adds meanwhile
	// makes one batch, and one segmented send if it is of one flow.
	txRest = eventloop.Time(100_000)

	// txHeld is how many returned chains the driver is not called for: less than
	// a socket's send buffer of Linux's default size has out (about 90 datagrams).
	txHeld = 32

	// txPrompt is how soon after a kick was asked for it comes from a driver that
	// streams.
	txPrompt = eventloop.Time(100_000)

	// txPrompts is how many prompt kicks in a row make a stream; a driver that had
	// to wait for our call is asked for up to txMaxPrompts.
	txPrompts    = 3
	txMaxPrompts = 256

	// txAnswered is how many rests in a row with frames towards the guest end a
	// stream.
	txAnswered = 4
)

// pace is what is known of the driver's habit. A frame towards the guest since the
// last one from it means that it may have waited for that frame (a transaction,
// TCP with its acknowledgements): resting would add to its round trip.
type pace struct {
	resting bool // the driver streams: rest instead of asking for kicks
	prompt  int  // prompt kicks in a row
	need    int  // how many make a stream

	until    eventloop.Time // end of the rest
	armed    eventloop.Time // when a kick was last asked for, 0: never
	answered uint64         // frames towards the guest before the last one from it
	mixed    int            // rests in a row with frames towards the guest
	waited   bool           // the stream ended while calls were held back
}

// took notes that frames came from the guest; answered counts those towards it
// until then.
func (p *pace) took(answered uint64) {
	if p.mixed++; answered == p.answered {
		p.mixed = 0
	}
	p.answered = answered
}

// kicked judges a kick.
func (p *pace) kicked(now eventloop.Time, answered uint64) {
	if p.resting {
		return
	}
	switch {
	case p.armed == 0 || now-p.armed >= txPrompt || answered != p.answered:
		p.prompt, p.need = 0, max(p.need/2, txPrompts)
	case p.waited:
		// It stopped, and went on as soon as it was called: its socket had no room
		// until then. More such rests would only slow it down.
		p.prompt, p.need = 0, min(2*p.need, txMaxPrompts)
	default:
		p.prompt++
	}
	p.waited = false
	p.resting = p.prompt >= max(p.need, txPrompts)
	p.mixed = 0
}

// rest is called with an empty ring of size entries, from which got chains came
// since the last rest. It returns until when to leave the ring alone; false: the
// stream is over.
func (p *pace) rest(now eventloop.Time, got, size int) (eventloop.Time, bool) {
	if got > 0 {
		p.until = now + txRest
		if got > size/8 {
			p.until = now + txRest/4 // the ring must not run full meanwhile
		}
	}
	p.resting = (got > 0 || now < p.until) && p.mixed < txAnswered
	return p.until, p.resting
}

// arm notes that a kick is being asked for.
func (p *pace) arm(now eventloop.Time, quiet int) {
	p.armed, p.waited = now, quiet > 0
}

// publish ends a turn of queue q: with a call if the driver wants one, unless it
// streams and few chains wait for theirs.
func (p *pace) publish(q *vring.DeviceQueue) {
	if !p.resting {
		q.Publish()
		return
	}
	q.PublishQuietly()
	if q.Quiet() >= min(txHeld, q.Size()/4) {
		q.Signal()
	}
}
