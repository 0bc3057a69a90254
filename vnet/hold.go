package vnet

import "guestwire/vring/eventloop"

// A guest in a transaction sends little, waits for the answer, and needs one
// interrupt for it: the one that brings the answer. By then its driver has also
// found that its own buffers are back (Linux's looks at the transmit ring
// whenever the receive ring calls it). So their call waits for the answer, and a
// little longer for the driver to look.
const (
	// callAwait is how long the call waits for frames towards the guest.
	callAwait = eventloop.Time(200_000)

	// callAfter is how long after those the driver may look by itself.
	callAfter = eventloop.Time(1_000_000)

	// callAnswers is how many turns in a row must have been answered within
	// callAwait for the next one to wait.
	callAnswers = 2

	// callBytes is the most that a turn which waits has taken: whoever sends more
	// needs its buffers to go on.
	callBytes = 4096
)

// hold is what is known of how fast the guest is answered.
type hold struct {
	answers int            // turns in a row that were
	took    eventloop.Time // when the last one took chains, 0: it was answered
	until   eventloop.Time // when the call is due at the latest, 0: no call waits
	frames  uint64         // towards the guest at the last look
}

// publishTx ends a turn that took bytes from the transmit ring in so many
// chains. Streams have their own ways (pace).
func (d *Device) publishTx() {
	t := &d.tx
	h, now := &t.hold, d.loop.Now()
	chains, bytes := t.took, t.bytes
	t.took, t.bytes = 0, 0
	if t.pace.resting {
		h.took, h.until = 0, 0
		t.pace.publish(t.q)
		return
	}
	if chains > 0 {
		t.q.Signal() // of the turn before: for nothing, if the driver has looked
		h.took = now
	}
	d.noteAnswer(now)
	switch {
	case chains > 0 && h.answers >= callAnswers && bytes <= callBytes:
		t.q.PublishQuietly()
		d.holdCall(now + callAwait)
	case chains > 0 || now >= h.until:
		t.q.Publish()
		h.until = 0
	}
	if h.took != 0 && now-h.took > callAwait {
		h.answers, h.took = 0, 0
	}
}

// noteAnswer takes note of frames towards the guest.
func (d *Device) noteAnswer(now eventloop.Time) {
	h := &d.tx.hold
	if d.link.RxFrames == h.frames {
		return
	}
	h.frames = d.link.RxFrames
	if h.took == 0 {
		return
	}
	if now-h.took <= callAwait {
		h.answers = min(h.answers+1, callAnswers)
	}
	h.took = 0
	if h.until != 0 {
		d.holdCall(now + callAfter)
	}
}

// holdCall has the call wait until then.
func (d *Device) holdCall(until eventloop.Time) {
	h := &d.tx.hold
	if h.until = until; !d.loop.AgainAt(d.turn.token, until) {
		d.tx.q.Publish()
		h.until = 0
	}
}
